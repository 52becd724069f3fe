"""Agno's ways to look up memories, and one more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock

from agno.memory.v2.memory import Message as AgnoMessage

from strandline.adapters.relevant_facts import pick_facts
from strandline.producers.facts.listing import MAX_LIMIT, Fact
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

DEFAULT_CHOSEN = 10
# The last words of so many users are known, and so many characters of each.
MAX_KNOWN_USERS = 1_024
MAX_QUESTION_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class _Question:
    """What the next run of a user is about."""

    questions: Questions
    user_id: str
    text: str


_next_question: ContextVar[_Question | None] = ContextVar("strandline_agno_v1_question", default=None)


class Questions:
    """What runs are about, since Agno asks for a user's memories without saying so; safe to share."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last_words: OrderedDict[str, str] = OrderedDict()

    def expect(self, user_id: str, text: str) -> None:
        """Hold the question of the next run of this context, for the first ``take`` of its user."""
        _next_question.set(_Question(self, user_id, text))

    def note_words(self, user_id: str, messages: Sequence[AgnoMessage]) -> None:
        """Remember what the user said last."""
        words = [message.get_content_string() for message in messages if message.role == "user"]
        if words:
            with self._lock:
                self._last_words[user_id] = words[-1][-MAX_QUESTION_CHARACTERS:]
                self._last_words.move_to_end(user_id)
                if len(self._last_words) > MAX_KNOWN_USERS:
                    self._last_words.popitem(last=False)

    def take(self, user_id: str) -> str:
        """The question that is expected, once; else what the user said last, or an empty text."""
        expected = _next_question.get()
        if expected is not None and expected.questions is self and expected.user_id == user_id:
            _next_question.set(None)
            return expected.text
        with self._lock:
            return self._last_words.get(user_id, "")


def relevant_facts(facts: OwnerFacts, question: str, limit: int) -> Sequence[Fact]:
    """At most ``limit`` facts, oldest first: all, if there are no more; else those that fit, and new ones."""
    newest = facts.list(limit=limit)
    if not limit or len(newest) == newest.total or not question.strip():
        return newest[::-1]
    return pick_facts(newest, (hit.fact for hit in facts.search(question, limit=limit)), limit)


def search_memories(
    facts: OwnerFacts, query: str | None, limit: int | None, method: str | None
) -> Sequence[Fact]:
    """The facts that a method gives.

    Raises:
        ConfigurationError: the method is unknown, or needs a query.
    """
    if method in (None, "last_n"):
        return facts.list(last_n=MAX_LIMIT if limit is None else limit)
    if method == "first_n":
        return facts.list(first_n=MAX_LIMIT if limit is None else limit)
    if method not in ("agentic", "semantic"):
        raise ConfigurationError(
            f"retrieval_method is {quote(str(method))}; it must be 'last_n', 'first_n', 'agentic' or"
            " 'semantic'."
        )
    if not query:
        raise ConfigurationError(f"retrieval_method='{method}' needs a query.")
    size = DEFAULT_CHOSEN if limit is None else limit
    if method == "agentic":
        return list(facts.choose(query, limit=size))
    return [hit.fact for hit in facts.search(query, limit=size)]
