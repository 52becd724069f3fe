"""Hits: the scope and kinds of a search, and its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args
from uuid import UUID

from strandline.producers.arguments import check_flag
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.foreign_values import plain_scalar
from strandline.schemas.values.message import Message

SearchScope = Literal["session", "owner", "shared"]
HitKind = Literal["message", "fact"]

MESSAGES_ALONE: tuple[HitKind, ...] = ("message",)

_SCOPES: tuple[SearchScope, ...] = get_args(SearchScope)
_KINDS: tuple[HitKind, ...] = get_args(HitKind)


# Of one message: its session's key, as a number since these are compared sooner, and its own number there.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class HitFact:
    """A fact that a search found: its id, for ``memory.facts.get``, and its text.

    Attributes:
        said_at: when it was last said.
        sources: the messages that it comes from, each with its session's name; empty if a person added it.
    """

    fact_id: UUID
    text: str
    said_at: datetime
    sources: Mapping[Place, str] = field(default_factory=dict)
    # A read's derivative, made once.
    shown: dict[object, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def read(cls, fact_id: UUID, text: str, said_at: datetime, sources: Sequence[Any] | None) -> HitFact:
        """From the rows of a statement, with ``sources`` as the fragment ``said_in`` gives them."""
        places = {
            (int(key.replace("-", ""), 16), seq): name
            for key, name, seqs in sources or ()
            for seq in seqs or ()
        }
        return cls(fact_id, text, said_at, places)

    @classmethod
    def read_json(cls, fact: Mapping[str, Any]) -> HitFact:
        said_at = datetime.fromisoformat(fact["said_at"])
        return cls.read(UUID(fact["fact_id"]), fact["text"], said_at, fact["sources"])


class Utterance:
    """A message that searches may find again, with its derivatives.

    Attributes:
        line: as shown by a read, once one did.
    """

    __slots__ = ("line", "message", "place", "session_key", "text", "words")

    def __init__(self, session_key: UUID, message: Message) -> None:
        self.session_key = session_key
        self.message = message
        self.place: Place = (session_key.int, message.seq or 0)
        self.text = message.shown_text
        self.line: str | None = None
        self.words: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A hit of a search: consecutive messages of one session, or a fact.

    Attributes:
        score: how well it matches, 0 to 1; comparable only within one search.
        session_key: the messages' session; None for a fact, which may come from several.
        messages: the matching messages; empty for a fact.
        similarity: the cosine similarity of its best piece, or of the messages that a fact comes from; 0 if
            only words were compared.
        fact: the fact, or None for messages.
        has_vector: false for a message that no vectors cover yet, so that only its words counted.
        beside_seqs: the ``seq`` of ``messages`` that do not match themselves, but neighbour a match: a
            question with its answer.
        utterance: its only message in the form in which the process keeps it, if it does.
    """

    score: float
    session_key: UUID | None
    messages: tuple[Message, ...]
    similarity: float = 0.0
    fact: HitFact | None = None
    has_vector: bool = True
    beside_seqs: frozenset[int] = frozenset()
    utterance: Utterance | None = None

    @property
    def kind(self) -> HitKind:
        return "message" if self.fact is None else "fact"


# Given the query and the hits of a search, best first, gives the hits to show, in their order.
Reranker = Callable[[str, Sequence[Hit]], Sequence[Hit]]


def checked_kinds(kinds: object) -> tuple[HitKind, ...]:
    """The kinds of hits that a caller wants, each once; raises ConfigurationError if they are not valid."""
    elements: list[object] = []
    if isinstance(kinds, Sequence) and not isinstance(kinds, str):
        try:
            elements = [plain_scalar(kind) for kind in kinds]
        except Exception as error:  # the edge to foreign code: the caller's classes
            raise ConfigurationError("kinds cannot be read as a list.") from error
    if not elements:
        raise ConfigurationError(
            f"kinds is {quote(kinds)}; it must be a list of {' and '.join(map(repr, _KINDS))}."
        )
    for kind in elements:
        if not isinstance(kind, str) or kind not in _KINDS:
            raise ConfigurationError(
                f"kinds holds {quote(kind)}; a hit is one of {' and '.join(map(repr, _KINDS))}."
            )
    return tuple(kind for kind in _KINDS if kind in elements)


def check_scope(scope: object, kinds: Sequence[HitKind], exclude_current: object) -> None:
    """Raise ConfigurationError unless ``scope`` is one, and the other two go with it."""
    if not isinstance(scope, str) or scope not in _SCOPES:
        raise ConfigurationError(f"scope is {quote(scope)}; it must be 'session', 'owner' or 'shared'.")
    if check_flag("exclude_current", exclude_current) and scope == "session":
        raise ConfigurationError(
            "exclude_current=True leaves nothing to search in scope='session'; search scope 'owner' or"
            " 'shared'.",
            for_clients="`exclude_current` leaves nothing to search in the scope `session`.",
        )
    if scope == "shared" and "fact" in kinds:
        raise ConfigurationError(
            "kinds holds 'fact' with scope='shared', but facts belong to one owner and are never shared;"
            " search scope 'owner' for them.",
            for_clients="Facts belong to one owner and are never shared: search the scope `owner` for them.",
        )


def check_filtered(scope: SearchScope, kinds: Sequence[HitKind]) -> None:
    """Raise ConfigurationError unless a search with filters can be of this scope, and for these kinds."""
    if scope == "shared" or "fact" in kinds:
        raise ConfigurationError(
            "roles, metadata, since and until choose messages of one owner; search the scope 'session' or"
            " 'owner' with kinds=['message'].",
            for_clients="Filters choose messages of one owner: search `session` or `owner`, for messages.",
        )
