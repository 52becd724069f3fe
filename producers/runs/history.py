"""The messages of a session's last runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from strandline.pipelines.flush.plan import UNBOUNDED
from strandline.producers.reading.history.newest import check_bytes
from strandline.producers.sessions import check_unowned
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.runs import MessagesOfRuns
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import HEAD_ROLES, Message, Role, RunStatus, read_rows
from strandline.schemas.values.policy import MAX_INTEGER


@dataclass(frozen=True, slots=True)
class RunHistoryRequest:
    """Which runs, and which of their messages.

    Attributes:
        last_n: number of runs; None: all.
        agent_id, team_id: only runs of these; None: of all.
        max_bytes: of all their messages together.
    """

    identity: SessionIdentity
    last_n: int | None
    skip_roles: tuple[Role, ...] = ()
    skip_statuses: tuple[RunStatus, ...] = ()
    agent_id: str | None = None
    team_id: str | None = None
    max_bytes: int = UNBOUNDED


def run_history(request: RunHistoryRequest) -> Operation[list[Message]]:
    """The messages of the last runs, in the order of the runs: each once, and one system message.

    Raises:
        ConfigurationError: they have more than ``max_bytes``.
        OwnerError: the session belongs to another owner.
    """
    if request.last_n == 0:
        return []
    rows = yield from fetch(
        MessagesOfRuns(
            **request.identity.keys,
            last_n=MAX_INTEGER if request.last_n is None else request.last_n,
            skip_statuses=list(request.skip_statuses),
            agent_id=request.agent_id,
            team_id=request.team_id,
            page_bytes=request.max_bytes,
        )
    )
    if not rows:
        yield from check_unowned(request.identity)
    else:
        check_bytes(rows[-1].bytes_taken, request.max_bytes)
    return list(_once(message for message in read_rows(rows) if message.role not in request.skip_roles))


def _once(messages: Iterable[Message]) -> Iterator[Message]:
    """Each message once, and of each role that heads a prompt the first alone."""
    seen: set[int | str | None] = set()
    for message in messages:
        keys = {message.seq, message.role} if message.role in HEAD_ROLES else {message.seq}
        if not keys & seen:
            yield message
        seen |= keys
