"""What operators do at a service: keys, limits, dead letters, replays, erasures, exports, the audit trail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

from strandline.client import admin_operations as asked
from strandline.client.events import ServiceEvent, follow, follow_async
from strandline.client.operations import async_iterator, async_method, sync_iterator, sync_method
from strandline.client.operations import path as route
from strandline.client.service import RemoteService
from strandline.client.upkeep import erasures as erasing
from strandline.client.upkeep.exports import ExportedFile, export_to, export_to_async


class ServiceAdmin:
    """Shared by the two faces."""

    def __init__(self, service: RemoteService) -> None:
        self._service = service

    @property
    def service(self) -> RemoteService:
        return self._service

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._service!r})"


class RemoteAdmin(ServiceAdmin):
    """For operators, whose key has the scope ``operate``; lists are iterators that follow the pages."""

    whoami = sync_method(asked.whoami)
    status = sync_method(asked.status)
    workers = sync_method(asked.workers)
    create_key = sync_method(asked.create_key)
    keys = sync_iterator(asked.keys)
    rotate_key = sync_method(asked.rotate_key)
    revoke_key = sync_method(asked.revoke_key)
    namespaces = sync_method(asked.namespaces)
    limits = sync_method(asked.limits)
    set_limits = sync_method(asked.set_limits)
    dead_letters = sync_iterator(asked.dead_letters)
    retry_dead_letter = sync_method(asked.retry_dead_letter)
    drop_dead_letter = sync_method(asked.drop_dead_letter)
    start_replay = sync_method(asked.start_replay)
    estimate_replay = sync_method(asked.estimate_replay)
    operations = sync_iterator(asked.operations)
    operation = sync_method(asked.operation)
    stop_operation = sync_method(asked.stop_operation)
    generations = sync_method(asked.generations)
    diff_generation = sync_method(asked.diff_generation)
    promote_generation = sync_method(asked.promote_generation)
    prune_generation = sync_method(asked.prune_generation)
    roll_pipeline_back = sync_method(asked.roll_pipeline_back)
    acts = sync_iterator(asked.acts)
    act = sync_method(asked.act)
    verify_audit = sync_method(asked.verify_audit)
    audit_level = sync_method(asked.audit_level)
    set_audit_level = sync_method(asked.set_audit_level)
    users = sync_iterator(asked.users)
    sessions = sync_iterator(asked.sessions)
    session = sync_method(asked.session)
    explain_message = sync_method(asked.explain_message)
    explain_fact = sync_method(asked.explain_fact)
    plan_user = sync_method(erasing.plan_user)
    plan_session = sync_method(erasing.plan_session)
    erase_user = sync_method(erasing.erase_user)
    erase_session = sync_method(erasing.erase_session)
    readmit_user = sync_method(erasing.readmit_user)
    readmit_session = sync_method(erasing.readmit_session)
    erasure = sync_method(erasing.erasure)
    receipt = sync_method(erasing.receipt)
    verify_erasure = sync_method(erasing.verify_erasure)
    erasures = sync_iterator(erasing.erasures)

    def events(
        self, *, user_id: str | None = None, last_event_id: str | None = None
    ) -> Generator[ServiceEvent, None, None]:
        """What happens in the namespace, or to one of its users; resumes by itself when it is cut."""
        return follow(self._service, route("events"), user_id, last_event_id)

    def export_user(self, user_id: str, path: str | Path) -> ExportedFile:
        """Write everything that is kept about a user to a file that does not exist yet, as lines of JSON.

        The file has its name only when it is whole; an export that breaks off is begun again.
        """
        return export_to(self._service, route("users", user_id, "export"), None, path)

    def export_session(
        self, session_id: str, path: str | Path, *, user_id: str | None = None
    ) -> ExportedFile:
        """The same for one session."""
        return export_to(self._service, route("sessions", session_id, "export"), user_id, path)


class AsyncRemoteAdmin(ServiceAdmin):
    """The same for asyncio."""

    whoami = async_method(asked.whoami)
    status = async_method(asked.status)
    workers = async_method(asked.workers)
    create_key = async_method(asked.create_key)
    keys = async_iterator(asked.keys)
    rotate_key = async_method(asked.rotate_key)
    revoke_key = async_method(asked.revoke_key)
    namespaces = async_method(asked.namespaces)
    limits = async_method(asked.limits)
    set_limits = async_method(asked.set_limits)
    dead_letters = async_iterator(asked.dead_letters)
    retry_dead_letter = async_method(asked.retry_dead_letter)
    drop_dead_letter = async_method(asked.drop_dead_letter)
    start_replay = async_method(asked.start_replay)
    estimate_replay = async_method(asked.estimate_replay)
    operations = async_iterator(asked.operations)
    operation = async_method(asked.operation)
    stop_operation = async_method(asked.stop_operation)
    generations = async_method(asked.generations)
    diff_generation = async_method(asked.diff_generation)
    promote_generation = async_method(asked.promote_generation)
    prune_generation = async_method(asked.prune_generation)
    roll_pipeline_back = async_method(asked.roll_pipeline_back)
    acts = async_iterator(asked.acts)
    act = async_method(asked.act)
    verify_audit = async_method(asked.verify_audit)
    audit_level = async_method(asked.audit_level)
    set_audit_level = async_method(asked.set_audit_level)
    users = async_iterator(asked.users)
    sessions = async_iterator(asked.sessions)
    session = async_method(asked.session)
    explain_message = async_method(asked.explain_message)
    explain_fact = async_method(asked.explain_fact)
    plan_user = async_method(erasing.plan_user)
    plan_session = async_method(erasing.plan_session)
    erase_user = async_method(erasing.erase_user)
    erase_session = async_method(erasing.erase_session)
    readmit_user = async_method(erasing.readmit_user)
    readmit_session = async_method(erasing.readmit_session)
    erasure = async_method(erasing.erasure)
    receipt = async_method(erasing.receipt)
    verify_erasure = async_method(erasing.verify_erasure)
    erasures = async_iterator(erasing.erasures)

    def events(
        self, *, user_id: str | None = None, last_event_id: str | None = None
    ) -> AsyncGenerator[ServiceEvent, None]:
        """What happens in the namespace, or to one of its users; resumes by itself when it is cut."""
        return follow_async(self._service, route("events"), user_id, last_event_id)

    async def export_user(self, user_id: str, path: str | Path) -> ExportedFile:
        """Write everything that is kept about a user to a file that does not exist yet, as lines of JSON.

        The file has its name only when it is whole; an export that breaks off is begun again.
        """
        return await export_to_async(self._service, route("users", user_id, "export"), None, path)

    async def export_session(
        self, session_id: str, path: str | Path, *, user_id: str | None = None
    ) -> ExportedFile:
        """The same for one session."""
        return await export_to_async(self._service, route("sessions", session_id, "export"), user_id, path)
