"""Having facts made on call, and looking them up in Agno's ways and one more."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import blake2b

from agno.memory.v2.memory import Message as AgnoMessage

from strandline import ConfigurationError, Fact, InvalidMessageError
from strandline.adapters.recently_used import RecentlyUsed
from strandline.adapters.relevant_facts import pick_facts
from strandline.producers.facts.listing import MAX_LIMIT
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.display.shown_text import quote

MAX_KNOWN_TEXTS = 10_000


class RunTexts:
    """The users' words in the runs that were added last, of which facts are made anyway."""

    def __init__(self) -> None:
        self._known: RecentlyUsed[bytes, bool] = RecentlyUsed(MAX_KNOWN_TEXTS)

    def add(self, user_id: str, messages: Sequence[AgnoMessage]) -> None:
        """Note the texts of a run."""
        for message in messages:
            self._known.put(_key(user_id, message), True)

    def take(self, user_id: str, messages: Sequence[AgnoMessage]) -> bool:
        """Whether all of these were said in a run; each is taken once."""
        keys = [_key(user_id, message) for message in messages]
        is_known = all(map(self._known.get, keys))
        for key in keys if is_known else ():
            self._known.remove(key)
        return is_known


def conversation_of(message: str | None, messages: Sequence[AgnoMessage] | None) -> list[AgnoMessage]:
    """The messages of a call; raises InvalidMessageError if there are none."""
    if message:
        return [AgnoMessage(role="user", content=message)]
    if not messages or isinstance(messages, str):
        raise InvalidMessageError("messages", "give a message, or a list of at least one")
    return list(messages)


def _key(user_id: str, message: AgnoMessage) -> bytes:
    content = f"{len(user_id)}.{user_id}.{message.role}.{message.get_content_string()}"
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).digest()


DEFAULT_CHOSEN = 10
# The last words of so many users are known, and so many characters of each.
MAX_KNOWN_USERS = 1_024
MAX_QUESTION_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class _Question:
    questions: Questions
    user_id: str
    text: str


_next_question: ContextVar[_Question | None] = ContextVar("strandline_agno_v1_question", default=None)


class Questions:
    """The subject of runs, since Agno asks for a user's memories without naming it; safe to share."""

    def __init__(self) -> None:
        self._last_words: RecentlyUsed[str, str] = RecentlyUsed(MAX_KNOWN_USERS)

    def expect(self, user_id: str, text: str) -> None:
        """Hold the question of the next run of this context, for the first ``take`` of its user."""
        _next_question.set(_Question(self, user_id, text))

    def note_words(self, user_id: str, messages: Sequence[AgnoMessage]) -> None:
        """Remember the user's last words."""
        words = [message.get_content_string() for message in messages if message.role == "user"]
        if words:
            self._last_words.put(user_id, words[-1][-MAX_QUESTION_CHARACTERS:])

    def take(self, user_id: str) -> str:
        """The expected question, once; else the user's last words, or an empty text."""
        expected = _next_question.get()
        if expected is not None and expected.questions is self and expected.user_id == user_id:
            _next_question.set(None)
            return expected.text
        return self._last_words.get(user_id) or ""


def relevant_facts(facts: OwnerFacts, question: str, limit: int) -> Sequence[Fact]:
    """At most ``limit`` facts, oldest first; if there are more, the matching ones and some of the newest."""
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
