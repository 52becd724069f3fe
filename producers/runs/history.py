"""The messages of a session's last runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from strandline.pipelines.flush.plan import UNBOUNDED
from strandline.producers.reading.history import check_bytes
from strandline.producers.sessions import check_unowned
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.runs import MessagesOfRuns, SeqsOfRuns
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

    @property
    def params(self) -> dict[str, Any]:
        """Which runs, as parameters of statements."""
        return {
            **self.identity.keys,
            "last_n": MAX_INTEGER if self.last_n is None else self.last_n,
            "skip_statuses": list(self.skip_statuses),
            "agent_id": self.agent_id,
            "team_id": self.team_id,
        }


def run_history(request: RunHistoryRequest) -> Operation[list[Message]]:
    """The messages of the last runs, in the order of the runs: each once, and one system message.

    Raises:
        ConfigurationError: they have more than ``max_bytes``.
        OwnerError: the session belongs to another owner.
    """
    if request.last_n == 0:
        return []
    rows = yield from fetch(MessagesOfRuns(**request.params, page_bytes=request.max_bytes))
    if not rows:
        yield from check_unowned(request.identity)
    else:
        check_bytes(rows[-1].bytes_taken, request.max_bytes)
    return list(_once(message for message in read_rows(rows) if message.role not in request.skip_roles))


def run_seqs(request: RunHistoryRequest) -> Operation[list[int]]:
    """The numbers of these messages, each once; raises OwnerError as ``run_history`` does."""
    rows = yield from fetch(SeqsOfRuns(**request.params, skip_roles=list(request.skip_roles)))
    if not rows:
        yield from check_unowned(request.identity)
    return list(dict.fromkeys(row.seq for row in rows))


def _once(messages: Iterable[Message]) -> Iterator[Message]:
    """Each message once, and of each role that heads a prompt the first alone."""
    seen: set[int | str | None] = set()
    for message in messages:
        keys = {message.seq, message.role} if message.role in HEAD_ROLES else {message.seq}
        if not keys & seen:
            yield message
        seen |= keys
