"""Windows that this process has read before, so that the next read fetches only new messages.

Messages never change, so a cached window can be wrong only about where it begins and ends.  A read sends
the range that it knows; the statement checks, in its own snapshot, whether the last message of that range
still exists under its seq and with its seal, and if so returns only the messages after it.  Since messages
are removed newest first (``pop``) and no seq is used twice, all other known messages then exist as well.

The seal identifies the row: the session's life, id, digest and time of the message, and the transaction that
wrote it.  A database that was restored from a dump, or a standby that took over without the last messages,
has other rows, even if ids, seqs and texts repeat.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from sys import getsizeof
from typing import Any
from uuid import UUID

from strandline.producers.reading.call_pairs import is_settled
from strandline.producers.search.hits import HitFact, Place
from strandline.schemas.values.message import NOTHING, Message, StoredMessage, is_unchangeable, read_rows

SessionKey = tuple[UUID, UUID]

# Of a message in memory, without its texts.
_MESSAGE_BYTES = 600
# Of a fact, or a message that was found, about.
FACT_BYTES = 1_000


@dataclass(frozen=True)
class KnownWindow:
    """The messages of a window in order, as of an earlier read.

    Attributes:
        seqs: the seqs of the messages.
        entries: each message as a value that is safe to share, or as the row to make it from.
        tokens: the sum of the messages' tokens.
        seal: the seal of the last message, as the statement ``read`` makes it.
        size: approximate memory of the messages, in bytes.
    """

    seqs: tuple[int, ...] = ()
    entries: tuple[Message | StoredMessage, ...] = ()
    tokens: int = 0
    seal: str = ""
    size: int = 0

    @cached_property
    def is_shareable(self) -> bool:
        """Whether who gets these messages can change nothing in them."""
        return {*map(type, self.entries)} <= {Message}

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages; mutable ones are built again each time."""
        if self.is_shareable:
            return self.entries  # type: ignore[return-value]
        return tuple([one if isinstance(one, Message) else read_rows([one])[0] for one in self.entries])

    @cached_property
    def is_plain(self) -> bool:
        """Whether no message makes or answers a call, as none does that is a text alone."""
        return not [one for one in self.entries if not isinstance(one, Message) or one.tool_call_id]

    @cached_property
    def texts(self) -> frozenset[str]:
        """The messages' texts."""
        return frozenset([message.text for message in self.messages])

    def by_place(self, session: int) -> Mapping[Place, Message]:
        """The messages by their places; made once."""
        known: dict[Place, Message] | None = self.__dict__.get("places")
        if known is None:
            known = self.__dict__["places"] = {(session, one.seq or 0): one for one in self.messages}
        return known

    def is_settled(self, messages: Sequence[Message]) -> bool:
        """Whether each result among its messages, which are given, is behind its call; looked at once."""
        known: bool | None = self.__dict__.get("settled")
        if known is None:
            known = self.__dict__["settled"] = self.is_plain or is_settled(messages)
        return known

    def move_to(self, window_from: int, rows: Sequence[StoredMessage], seal: str) -> KnownWindow:
        """The window as it is now: from ``window_from`` on, with the new rows at the end.

        ``seal`` is that of its last message now; empty if the window has no messages.
        """
        if not rows and self.seqs and self.seqs[0] >= window_from:
            return self
        begin = bisect_left(self.seqs, window_from)
        gone = self.entries[:begin]
        new, size = _entries(rows)
        moved = KnownWindow(
            seqs=(*self.seqs[begin:], *[row.seq for row in rows]),
            entries=(*self.entries[begin:], *new),
            tokens=self.tokens - sum(map(_tokens, gone)) + sum([row.tokens for row in rows]),
            seal=seal,
            size=self.size - sum(map(_size, gone)) + size,
        )
        if not gone and self.is_plain:
            moved._learn(self.__dict__, KnownWindow(entries=tuple(new)))
        return moved

    def _learn(self, known: Mapping[str, Any], new: KnownWindow) -> None:
        """Take over the work on the messages before the new ones; all are plain, or nothing is."""
        if not new.is_plain:
            return
        self.__dict__["is_plain"] = True
        if "texts" in known:
            self.__dict__["texts"] = known["texts"] | new.texts
        if places := known.get("places"):
            self.__dict__["places"] = places | new.by_place(next(iter(places))[0])


NOTHING_KNOWN = KnownWindow()


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The newest facts of a session's owner, at most ``most`` of them, oldest first, as of a version."""

    version: str | None = None
    most: int = 0
    facts: tuple[HitFact, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownSession:
    """An earlier read of a session.

    Attributes:
        answer: its parameters and result, in a form that only ``reading.read`` knows.
        size: approximate memory of all of it, in bytes.
        vain: ids of calls, whose results the window has, that are not in the log.
    """

    window: KnownWindow = NOTHING_KNOWN
    facts: KnownFacts = KnownFacts()
    answer: Any = None
    size: int = 0
    vain: frozenset[str] = frozenset()


UNKNOWN = KnownSession()


class WindowCache:
    """The most recent reads of sessions; safe to share between threads.

    ``erasures`` is the newest erasure (or readmission) that it knows of: each read brings the number of the
    database, and if that is another one, cached data of erased owners is dropped.

    Args:
        max_bytes: the approximate memory that it may take; 0 keeps none.
        on_erased: is told of owners that were erased, so that other caches drop them too.
    """

    def __init__(
        self, max_bytes: int, on_erased: Callable[[Collection[UUID]], None] = lambda _owners: None
    ) -> None:
        self.erasures = 0
        self._max_bytes = max_bytes
        self._on_erased = on_erased
        self._bytes = 0
        self._lock = threading.Lock()
        self._sessions: OrderedDict[SessionKey, KnownSession] = OrderedDict()

    @property
    def size(self) -> int:
        """The approximate memory in use, in bytes."""
        return self._bytes

    def find(self, session: SessionKey) -> KnownSession:
        """The known state of a session, or ``UNKNOWN``."""
        with self._lock:
            known = self._sessions.get(session)
            if known is None:
                return UNKNOWN
            self._sessions.move_to_end(session)
            return known

    def keep(self, session: SessionKey, known: KnownSession, erasures: int = 0) -> None:
        """Keep it for the next read; the least recently read sessions make room.

        ``erasures``: the number that came with it.  If the cache knows of later ones, it is not kept: its
        owner may have been erased since.
        """
        with self._lock:
            self._drop(session)
            if not known.size or known.size > self._max_bytes or erasures < self.erasures:
                return
            self._sessions[session] = known
            self._bytes += known.size
            while self._bytes > self._max_bytes:
                _, dropped = self._sessions.popitem(last=False)
                self._bytes -= dropped.size

    def forget_erased(self, owners: Collection[UUID] | None, erasures: int) -> None:
        """Drop data of these erased owners (None: everything), up to this number."""
        with self._lock:
            self.erasures = erasures
            for session in [one for one in self._sessions if owners is None or one[0] in owners]:
                self._drop(session)
        self._on_erased(owners or ())

    @property
    def is_empty(self) -> bool:
        with self._lock:
            return not self._sessions

    def _drop(self, session: SessionKey) -> None:
        self._bytes -= self._sessions.pop(session, UNKNOWN).size


def _entries(rows: Sequence[StoredMessage]) -> tuple[list[Message | StoredMessage], int]:
    entries: list[Message | StoredMessage] = []
    size = 0
    for row, message in zip(rows, read_rows(rows), strict=True):
        content = message.content
        if (
            type(content) is str
            and message.metadata is message.extra is NOTHING
            and message.name is None
            and message.tool_calls is None
            and message.tool_call_id is None
        ):
            size += _MESSAGE_BYTES + content.__sizeof__()  # as with most
            entries.append(message)
        else:
            entries.append(message if is_unchangeable(message) else row)
            size += _size(entries[-1])
    return entries, size


def _tokens(entry: Message | StoredMessage) -> int:
    return entry.tokens or 0


def _size(entry: Message | StoredMessage) -> int:
    """Its bytes in memory: a text is as wide as its widest character, and each value has a header."""
    if not isinstance(entry, Message):
        return _MESSAGE_BYTES + getsizeof(entry.envelope) + getsizeof(entry.metadata)
    size = _MESSAGE_BYTES + getsizeof(entry.content)
    if entry.name is None and entry.tool_call_id is None and entry.metadata is entry.extra is NOTHING:
        return size  # as with most
    size += getsizeof(entry.name) + getsizeof(entry.tool_call_id)
    return size + _size_of_scalars(entry.metadata) + _size_of_scalars(entry.extra)


def _size_of_scalars(values: Mapping[str, Any]) -> int:
    return getsizeof(values) + sum(map(getsizeof, values)) + sum(map(getsizeof, values.values()))
