"""What operators do at a service: keys, limits, dead letters, replays, generations, the audit trail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

from strandline.client import admin_operations as asked
from strandline.client.events import ServiceEvent, follow, follow_async
from strandline.client.operations import apaging, awaiting, blocking, paging, path
from strandline.client.service import RemoteService


class ServiceAdmin:
    """What the two faces have in common."""

    def __init__(self, service: RemoteService) -> None:
        self._service = service

    @property
    def service(self) -> RemoteService:
        return self._service

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._service!r})"


class RemoteAdmin(ServiceAdmin):
    """For operators, whose key has the scope ``operate``; lists are iterators that follow the pages."""

    whoami = blocking(asked.whoami)
    status = blocking(asked.status)
    workers = blocking(asked.workers)
    create_key = blocking(asked.create_key)
    keys = paging(asked.keys)
    rotate_key = blocking(asked.rotate_key)
    revoke_key = blocking(asked.revoke_key)
    namespaces = blocking(asked.namespaces)
    limits = blocking(asked.limits)
    set_limits = blocking(asked.set_limits)
    dead_letters = paging(asked.dead_letters)
    retry_dead_letter = blocking(asked.retry_dead_letter)
    drop_dead_letter = blocking(asked.drop_dead_letter)
    start_replay = blocking(asked.start_replay)
    estimate_replay = blocking(asked.estimate_replay)
    operations = paging(asked.operations)
    operation = blocking(asked.operation)
    stop_operation = blocking(asked.stop_operation)
    generations = blocking(asked.generations)
    diff_generation = blocking(asked.diff_generation)
    promote_generation = blocking(asked.promote_generation)
    prune_generation = blocking(asked.prune_generation)
    roll_pipeline_back = blocking(asked.roll_pipeline_back)
    acts = paging(asked.acts)
    act = blocking(asked.act)
    verify_audit = blocking(asked.verify_audit)
    audit_level = blocking(asked.audit_level)
    set_audit_level = blocking(asked.set_audit_level)
    users = paging(asked.users)
    sessions = paging(asked.sessions)
    session = blocking(asked.session)

    def events(
        self, *, user_id: str | None = None, last_event_id: str | None = None
    ) -> Iterator[ServiceEvent]:
        """What happens in the namespace, or to one of its users; resumes by itself when it is cut."""
        return follow(self._service, path("events"), user_id, last_event_id)


class AsyncRemoteAdmin(ServiceAdmin):
    """The same for asyncio."""

    whoami = awaiting(asked.whoami)
    status = awaiting(asked.status)
    workers = awaiting(asked.workers)
    create_key = awaiting(asked.create_key)
    keys = apaging(asked.keys)
    rotate_key = awaiting(asked.rotate_key)
    revoke_key = awaiting(asked.revoke_key)
    namespaces = awaiting(asked.namespaces)
    limits = awaiting(asked.limits)
    set_limits = awaiting(asked.set_limits)
    dead_letters = apaging(asked.dead_letters)
    retry_dead_letter = awaiting(asked.retry_dead_letter)
    drop_dead_letter = awaiting(asked.drop_dead_letter)
    start_replay = awaiting(asked.start_replay)
    estimate_replay = awaiting(asked.estimate_replay)
    operations = apaging(asked.operations)
    operation = awaiting(asked.operation)
    stop_operation = awaiting(asked.stop_operation)
    generations = awaiting(asked.generations)
    diff_generation = awaiting(asked.diff_generation)
    promote_generation = awaiting(asked.promote_generation)
    prune_generation = awaiting(asked.prune_generation)
    roll_pipeline_back = awaiting(asked.roll_pipeline_back)
    acts = apaging(asked.acts)
    act = awaiting(asked.act)
    verify_audit = awaiting(asked.verify_audit)
    audit_level = awaiting(asked.audit_level)
    set_audit_level = awaiting(asked.set_audit_level)
    users = apaging(asked.users)
    sessions = apaging(asked.sessions)
    session = awaiting(asked.session)

    def events(
        self, *, user_id: str | None = None, last_event_id: str | None = None
    ) -> AsyncGenerator[ServiceEvent, None]:
        """What happens in the namespace, or to one of its users; resumes by itself when it is cut."""
        return follow_async(self._service, path("events"), user_id, last_event_id)
