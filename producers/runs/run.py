"""A run: the messages that one run of an agent brought to a session, under the id that the caller gave it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from strandline.pipelines.flush.plan import UNBOUNDED
from strandline.producers.reading.history import check_bytes
from strandline.producers.sessions import check_unowned
from strandline.producers.writing.correcting.correct import Correction
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.runs import MessagesOfRuns, SeqsOfRuns
from strandline.schemas.values.foreign_values import plain_list, plain_text
from strandline.schemas.values.identity import SessionIdentity, check_name
from strandline.schemas.values.message import (
    HEAD_ROLES,
    ROLES,
    RUN_STATUSES,
    Message,
    Role,
    RunStatus,
    read_rows,
)
from strandline.schemas.values.policy import MAX_INTEGER

DEFAULT_LAST_RUNS = 5
# An unfinished run is not shown as history to another one.
UNFINISHED: tuple[RunStatus, ...] = ("pending", "running", "paused", "cancelled", "error")

Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True)
class SessionRun:
    """A run as it is stored.

    Attributes:
        run_id: the caller's id.
        status: as it was given last.
        seqs: the numbers of its messages, in the order of the run; a message that an earlier run brought has
            the number that it had then.
        agent_id, team_id: who ran, if that was given.
        corrections: what adding it again took back or replaced; empty for a new run.
    """

    run_id: str
    status: RunStatus
    seqs: tuple[int, ...]
    agent_id: str | None = None
    team_id: str | None = None
    corrections: tuple[Correction, ...] = ()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A caller's checked description of a run."""

    identity: SessionIdentity
    run_id: str
    status: RunStatus
    agent_id: str | None
    team_id: str | None

    @classmethod
    def check(
        cls, identity: SessionIdentity, run_id: object, status: object, agent_id: object, team_id: object
    ) -> RunRecord:
        """Check the arguments of a caller.

        Raises:
            ConfigurationError: ``status`` is unknown.
            InvalidMessageError: one of the ids is not a valid name.
        """
        (known,) = _words("status", [status], cast("tuple[RunStatus, ...]", RUN_STATUSES))
        return cls(
            identity,
            check_name("run_id", run_id),
            known,
            None if agent_id is None else check_name("agent_id", agent_id),
            None if team_id is None else check_name("team_id", team_id),
        )


def check_roles(roles: object) -> tuple[Role, ...]:
    """Roles to skip; raises ConfigurationError if they are not a list of roles."""
    return _words("skip_roles", _plain_words("skip_roles", roles), cast("tuple[Role, ...]", ROLES))


def check_statuses(statuses: object) -> tuple[RunStatus, ...]:
    """Statuses to skip; raises ConfigurationError if they are not a list of statuses."""
    known = cast("tuple[RunStatus, ...]", RUN_STATUSES)
    return _words("skip_statuses", _plain_words("skip_statuses", statuses), known)


def _plain_words(name: str, words: object) -> Sequence[object]:
    if not isinstance(words, (list, tuple)):
        raise ConfigurationError(f"{name} is {quote(words)}; it must be a list")
    return plain_list(words)


def _words(name: str, words: Iterable[object], known: tuple[Word, ...]) -> tuple[Word, ...]:
    checked: list[Word] = []
    for word in words:
        text = plain_text(word) if isinstance(word, str) else None
        if text not in known:
            raise ConfigurationError(f"{name} has {quote(word)}, which is not one of {', '.join(known)}")
        checked.append(text)
    return tuple(checked)


@dataclass(frozen=True, slots=True)
class RunHistoryRequest:
    """Which runs: the last so many of an agent or a team; and which messages, within so many bytes."""

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
    seen: set[int | str | None] = set()
    for message in messages:
        keys = {message.seq, message.role} if message.role in HEAD_ROLES else {message.seq}
        if not keys & seen:
            yield message
        seen |= keys
