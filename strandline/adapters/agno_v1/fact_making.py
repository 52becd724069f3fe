"""Having facts made on call, beside those that a session's runs give by themselves."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from threading import Lock

from agno.memory.v2.memory import Message as AgnoMessage

from strandline.producers.writing.sources import FactChanges
from strandline.schemas.errors import InvalidMessageError

MAX_KNOWN_TEXTS = 10_000


class RunTexts:
    """What users said in the runs that were added last, of which facts are made anyway."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[bytes, None] = OrderedDict()

    def add(self, user_id: str, messages: Sequence[AgnoMessage]) -> None:
        """Note the texts of a run."""
        with self._lock:
            for message in messages:
                self._known[_key(user_id, message)] = None
            while len(self._known) > MAX_KNOWN_TEXTS:
                self._known.popitem(last=False)

    def take(self, user_id: str, messages: Sequence[AgnoMessage]) -> bool:
        """Whether all of these were said in a run; each is taken once."""
        keys = [_key(user_id, message) for message in messages]
        with self._lock:
            if not all(key in self._known for key in keys):
                return False
            for key in keys:
                self._known.pop(key, None)
            return True


def conversation_of(message: str | None, messages: Sequence[AgnoMessage] | None) -> list[AgnoMessage]:
    """The messages of a call; raises InvalidMessageError if there are none."""
    if message:
        return [AgnoMessage(role="user", content=message)]
    if not messages or isinstance(messages, str):
        raise InvalidMessageError("messages", "give a message, or a list of at least one")
    return list(messages)


def change_sentence(changes: FactChanges) -> str:
    """What came of a call, for whoever reads Agno's answers."""
    if changes.failure is not None:
        return "The request could not be carried out, and nothing was changed; an operator is needed."
    if not changes.is_complete:
        return "The request is recorded; workers carry it out."
    lines = [f"Added: {fact.text}" for fact in changes.added]
    lines += [f"Updated: {fact.text}" for fact in changes.updated]
    if changes.deleted:
        lines.append(f"Deleted memories: {len(changes.deleted)}")
    return "\n".join(lines) or "Nothing was changed."


def _key(user_id: str, message: AgnoMessage) -> bytes:
    content = f"{len(user_id)}.{user_id}.{message.role}.{message.get_content_string()}"
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=16).digest()
