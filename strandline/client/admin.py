"""Operators' acts at a service: keys, limits, dead letters, replays, erasures, exports, the audit trail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID

from strandline.client.events import ServiceEvent, follow, follow_async
from strandline.client.operations import Awaiting, Call, Method, Operation, PageOf, Pages, Waiting
from strandline.client.operations import path as route
from strandline.client.remote import PAGE, remote, remote_list
from strandline.client.service import RemoteService
from strandline.client.upkeep.exports import ExportedFile, export_to, export_to_async
from strandline.schemas.wire import acts as wire
from strandline.schemas.wire.base import Page
from strandline.schemas.wire.erasures import (
    ErasureOut,
    ErasureReport,
    ErasureVerdictOut,
    PlannedErasureOut,
    ReceiptReport,
)
from strandline.schemas.wire.explanations import (
    AnyFactExplanation,
    FactExplanation,
    MessageExplanation,
    RemovedFactExplanation,
)
from strandline.schemas.wire.facts import UserOut
from strandline.schemas.wire.keys import Identity, KeyInfo, KeyRequest, KeyRotation, NewKey, RevokedKey
from strandline.schemas.wire.operations import (
    ActOut,
    AuditLevelOut,
    DeadLetterOut,
    LetterActions,
    LimitsIn,
    OperationOut,
    Promotion,
    ReplayIn,
    TrailOut,
)
from strandline.schemas.wire.replay import DiffTotals, EstimatesReport, GenerationsReport, SwitchReport
from strandline.schemas.wire.sessions import SessionOut, SessionPictureOut
from strandline.schemas.wire.work import LimitsReport, NamespaceLimitsReport, StatusReport, WorkerReport


class AdminMethods:
    """The methods of the two faces."""

    def __init__(self, service: RemoteService) -> None:
        self._service = service

    @property
    def service(self) -> RemoteService:
        return self._service

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._service!r})"

    @remote(wire.WHOAMI)
    def whoami(self) -> Identity:
        """Whose the key is, and what it may do."""

    @remote(wire.GET_STATUS)
    def status(self) -> StatusReport:
        """Due, held, dead and done work, and its workers; for an operator of the installation."""

    @remote(wire.GET_WORKERS, Page[WorkerReport])
    def workers(self) -> list[WorkerReport]:
        """The workers with a heartbeat."""

    @remote(wire.POST_KEY)
    def create_key(self, request: KeyRequest) -> NewKey:
        """Make a key; its text is shown only this once.  If the answer is lost, revoke the key."""

    @remote_list(wire.GET_KEYS, KeyInfo)
    def keys(self) -> PageOf[KeyInfo]:
        """The keys of the namespace, ended ones too; an operator of the installation sees those of all."""

    @remote(wire.POST_ROTATION, body=KeyRotation)
    def rotate_key(
        self,
        key_id: str,
        *,
        overlap_seconds: float | None = None,
        expires_in_seconds: float | None = None,
    ) -> NewKey:
        """Make a key with the same scopes; the old one stays valid for a while, by default for a day.

        ``expires_in_seconds``: when the new key ends; default: after the old one's lifetime.
        """

    @remote(wire.DELETE_KEY)
    def revoke_key(self, key_id: str, *, with_made: bool = False) -> RevokedKey:
        """End a key now, perhaps with all that it made; every process refuses it within five seconds."""

    @remote(wire.GET_NAMESPACES, LimitsReport)
    def namespaces(self) -> list[NamespaceLimitsReport]:
        """The limits of namespaces that have some, with their use today and what waits."""

    @remote(wire.GET_LIMITS)
    def limits(self, namespace: str) -> NamespaceLimitsReport:
        """The limits of a namespace; raises NotFoundError if it has none."""

    @remote(wire.PUT_LIMITS)
    def set_limits(self, namespace: str, limits: LimitsIn) -> NamespaceLimitsReport:
        """Set all limits of a namespace; an omitted one is lifted."""

    @remote_list(wire.GET_LETTERS, DeadLetterOut)
    def dead_letters(self, *, pipeline: str | None = None, dropped: bool = False) -> PageOf[DeadLetterOut]:
        """Events that a pipeline gave up on, oldest first, each with its reason."""

    @remote(wire.RETRY_LETTER, query=("stage",), repeat="if_not_done")
    def retry_dead_letter(self, event_id: UUID | str, *, stage: str | None = None) -> LetterActions:
        """Make an event due again, in the stages that gave up on it."""

    @remote(wire.DROP_LETTER, query=("stage",), repeat="if_not_done")
    def drop_dead_letter(self, event_id: UUID | str, *, stage: str | None = None) -> LetterActions:
        """Give an event up for good; its messages stay in the log, and reads no longer wait for them."""

    @remote(wire.POST_REPLAY)
    def start_replay(self, replay: ReplayIn) -> OperationOut:
        """Derive memory again from the log; ``operation`` says how far it is."""

    @remote(wire.ESTIMATE_REPLAY)
    def estimate_replay(self, replay: ReplayIn) -> EstimatesReport:
        """The work and the cost of a replay; nothing is done."""

    @remote_list(wire.GET_OPERATIONS, OperationOut)
    def operations(self) -> PageOf[OperationOut]:
        """Replays, newest first."""

    @remote(wire.GET_OPERATION)
    def operation(self, operation_id: int) -> OperationOut:
        """How a replay stands."""

    @remote(wire.STOP_OPERATION)
    def stop_operation(self, operation_id: int) -> OperationOut:
        """Have a replay stop after its present step; ``resume`` continues it."""

    @remote(wire.GET_GENERATIONS)
    def generations(self, *, pipeline: str | None = None) -> GenerationsReport:
        """The generations of each pipeline, and replays that are not finished."""

    @remote(wire.DIFF_GENERATION)
    def diff_generation(self, generation: int, *, against: int | None = None) -> DiffTotals:
        """How much the memory of a generation differs from that of the serving one, or of another."""

    @remote(wire.PROMOTE_GENERATION)
    def promote_generation(self, generation: int, owner: Promotion | None = None) -> SwitchReport:
        """Let a generation serve all owners that it covers, or one."""

    @remote(wire.PRUNE_GENERATION, repeat="if_not_done")
    def prune_generation(self, generation: int) -> SwitchReport:
        """Delete a generation that does not serve."""

    @remote(wire.ROLL_PIPELINE_BACK)
    def roll_pipeline_back(self, pipeline: str) -> SwitchReport:
        """Let the generation serve again that served before, for all owners."""

    @remote_list(wire.GET_ACTS, ActOut)
    def acts(
        self,
        *,
        namespace: str | None = None,
        kind: str | None = None,
        actor: str | None = None,
        user_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> PageOf[ActOut]:
        """Who did what, newest first; reading it is an act as well."""

    @remote(wire.GET_ACT)
    def act(self, entry_id: UUID | str, *, namespace: str | None = None) -> ActOut:
        """One act; raises NotFoundError if it does not exist."""

    @remote(wire.VERIFY_TRAIL)
    def verify_audit(self, *, namespace: str | None = None) -> TrailOut:
        """Check the chain of seals: whether anything that is sealed was changed, removed or added."""

    @remote(wire.GET_LEVEL, AuditLevelOut)
    def audit_level(self, *, namespace: str | None = None) -> str:
        """The recorded level: ``off``, ``changes`` or ``all``."""

    @remote(wire.PUT_LEVEL, AuditLevelOut, query=("namespace",))
    def set_audit_level(self, level: str, *, namespace: str | None = None) -> str:
        """Set the recorded level; the change itself is recorded."""

    @remote_list(wire.LIST_USERS, UserOut)
    def users(self) -> PageOf[UserOut]:
        """The users of the namespace, with their figures; for a key that is not one user's."""

    @remote_list(wire.GET_SESSIONS, SessionOut)
    def sessions(self, *, user_id: str | None = None) -> PageOf[SessionOut]:
        """The sessions by name: of a user, or of the whole namespace."""

    @remote(wire.GET_SESSION)
    def session(self, session_id: str, *, user_id: str | None = None) -> SessionPictureOut:
        """A session's marks, policy, pipelines with their progress, newest flushes and corrections."""

    @remote(wire.EXPLAIN_MESSAGE)
    def explain_message(
        self, message_id: str, *, session_id: str | None = None, user_id: str | None = None
    ) -> MessageExplanation:
        """The fate of a message; name its session if several use the id."""

    @remote(wire.EXPLAIN_FACT, AnyFactExplanation)
    def explain_fact(
        self, fact_id: UUID | str, *, user_id: str | None = None
    ) -> FactExplanation | RemovedFactExplanation:
        """Where a fact comes from, and what people did to it."""

    @remote(wire.PLAN_USER)
    def plan_user(self, user_id: str) -> PlannedErasureOut:
        """Count the rows that an erasure of the user would delete now, by table; nothing is changed."""

    @remote(wire.PLAN_SESSION)
    def plan_session(self, session_id: str, *, user_id: str | None = None) -> PlannedErasureOut:
        """The same for one session."""

    @remote(wire.ERASE_USER)
    def erase_user(
        self,
        user_id: str,
        *,
        actor: str | None = None,
        items_below: Sequence[Sequence[str]] = (),
        even_if_unknown: bool = False,
        wait: float | None = None,
        idempotency_key: str | None = None,
    ) -> ErasureOut:
        """Erase a user for good; once it returns, nothing can be written for them.

        Args:
            actor: the person who asks for it.
            items_below: paths of items of the namespace that are the user's, each as its labels.
            even_if_unknown: erase also a user of whom nothing is stored, whose name may be misspelt.
            wait: how many seconds to wait for its end; ``erasure`` tells how far it is.
            idempotency_key: the same again is the same erasure, also if the user was readmitted since;
                default: a new one, which stays the same while the request is sent again.

        Raises:
            NotFoundError: nothing is stored of a user of this name.
        """

    @remote(wire.ERASE_SESSION)
    def erase_session(
        self,
        session_id: str,
        *,
        user_id: str | None = None,
        actor: str | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
    ) -> ErasureOut:
        """Erase one session for good, and of its user what only this session gave; as for a user."""

    @remote(wire.READMIT_USER)
    def readmit_user(self, user_id: str, *, actor: str | None = None) -> ReceiptReport:
        """Accept an erased user again, who begins with nothing; raises NotFoundError if no fence stands."""

    @remote(wire.READMIT_SESSION)
    def readmit_session(
        self, session_id: str, *, user_id: str | None = None, actor: str | None = None
    ) -> ReceiptReport:
        """Let an erased session's id be used again by its owner; raises NotFoundError if no fence stands."""

    @remote(wire.GET_ERASURE)
    def erasure(self, number: int) -> ErasureOut:
        """One erasure: how far it is, and its receipt when it is done."""

    @Method
    def receipt(self, number: int) -> Operation[str]:
        """The receipt as it was signed, one line: keep it outside of the database, in a file of such lines.

        ``strandline erasures verify FILE --public-key KEY --offline`` verifies it without the service.

        Raises:
            NotFoundError: the erasure is not done yet.
        """
        return (yield Call("GET", route("erasures", number, "receipt"))).text()

    @remote(wire.VERIFY_ERASURE)
    def verify_erasure(self, number: int) -> ErasureVerdictOut:
        """Whether the receipt is as it was signed, whether the fence stands, and the rows there again."""

    @Pages
    def erasures(self, cursor: str | None, *, user_id: str | None = None) -> Operation[PageOf[ErasureReport]]:
        """The erasures and readmissions of the namespace, or of one user and their sessions, newest first."""
        where = route("erasures") if user_id is None else route("users", user_id, "erasures")
        return (yield Call("GET", where, query={"limit": PAGE, "cursor": cursor})).page(Page[ErasureReport])


class RemoteAdmin(AdminMethods, Waiting):
    """For operators, whose key has the scope ``operate``; lists are iterators that follow the pages."""

    def events(
        self, *, user_id: str | None = None, last_event_id: str | None = None
    ) -> Generator[ServiceEvent, None, None]:
        """The events of the namespace, or of one of its users; resumes by itself when it is cut."""
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


class AsyncRemoteAdmin(AdminMethods, Awaiting):
    """The same for asyncio."""

    def events(
        self, *, user_id: str | None = None, last_event_id: str | None = None
    ) -> AsyncGenerator[ServiceEvent, None]:
        """The events of the namespace, or of one of its users; resumes by itself when it is cut."""
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
