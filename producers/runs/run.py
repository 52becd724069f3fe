"""A run: the messages that one run of an agent brought to a session, under the id that the caller gave it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from strandline.producers.writing.correcting.correct import Correction
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.foreign_values import plain_list, plain_text
from strandline.schemas.values.identity import SessionIdentity, check_name
from strandline.schemas.values.message import ROLES, RUN_STATUSES, Role, RunStatus

DEFAULT_LAST_RUNS = 5
# What a run said that did not come to its end, or has not yet, is no history for another one.
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
    """What a caller says of a run, checked."""

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
