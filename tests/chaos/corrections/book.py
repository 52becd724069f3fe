"""What every session has to show, and the words that nothing may show any more.

Each message but the commonplace ones holds a word that is like no other.  A word is gone from a session once
a call that took it away has returned, and gone for good once no session holds it any more.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from strandline import Memory
from tests.chaos.corrections.gate import Gate

WORD = re.compile(r"\bq\d+z\b")


def words_of(text: str) -> set[str]:
    """The words of messages that the text holds."""
    return set(WORD.findall(text))


@dataclass
class Session:
    """A session beside the versions that its messages have had: (number of the correction, text).

    Attributes:
        taken: numbers that a correction took back.
        refusals: numbers that a call did not find; something must have taken each of them by the end.
        begins_at: where its log begins, as far as resets are known.
        gone: words that none of its messages has any more.
        numbers: of its corrections, each once.
        past_lives: the messages that resets left to what was derived from them, life by life.
        popped: the numbers that pops returned.
        runs: of each run the texts as they were given, with the numbers that they have.
        gate: what needs the session alone closes it.
    """

    name: str
    user: str | None
    memory: Memory
    versions: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    refusals: set[int] = field(default_factory=set)
    begins_at: int = 0
    gone: set[str] = field(default_factory=set)
    past_lives: list[list[dict[str, Any]]] = field(default_factory=list)
    is_open: bool = True
    popped: set[int] = field(default_factory=set)
    runs: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    gate: Gate = field(default_factory=Gate)

    def lines(self) -> dict[int, str]:
        """The messages as they stand."""
        return {seq: max(self.versions[seq])[1] for seq in sorted(self.versions)}

    def remembered(self) -> set[str]:
        """The texts that memory is to hold: of the messages as they stand, and of past lives."""
        lives = {str(message["content"]) for life in self.past_lives for message in life}
        return lives | set(self.lines().values())


@dataclass
class Book:
    """All sessions of a campaign; every method may be called from any thread."""

    sessions: dict[str, Session] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    _holders: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _forks: dict[str, tuple[Session, int]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def add(self, session: Session) -> Session:
        with self._lock:
            self.sessions[session.name] = session
            return session

    def open_sessions(self) -> list[Session]:
        """Those that are put to and corrected."""
        with self._lock:
            return [session for session in self.sessions.values() if session.is_open]

    def lines(self, session: Session) -> dict[int, str]:
        with self._lock:
            return session.lines()

    def gone_words(self, session: Session | None = None) -> frozenset[str]:
        """What no read that begins now may show: of a session's messages, or (None) of anything."""
        with self._lock:
            return frozenset(self.gone if session is None else session.gone)

    def place(self, session: Session, texts: Iterable[tuple[int, str]], number: int = 0) -> None:
        """Messages have these texts since the correction of that number (0: since they were put)."""
        with self._lock:
            for seq, text in texts:
                self._place(session, seq, number, text)

    def take(self, session: Session, seqs: Iterable[int]) -> None:
        """A correction took these messages back."""
        with self._lock:
            for seq in seqs:
                session.taken.add(seq)
                self._lose(session, session.versions.pop(seq, ()))

    def pop(self, session: Session, seq: int) -> bool:
        """A pop returned this message; False if another one had."""
        with self._lock:
            is_first = seq not in session.popped
            session.popped.add(seq)
            self.take(session, [seq])
            return is_first

    def renumber(
        self, session: Session, lines: dict[int, str], moved: dict[int, int], numbers: dict[int, int]
    ) -> None:
        """The session, which nobody else writes, has these messages now.

        Args:
            moved: from old numbers to those under which the same messages were put again.
            numbers: of the corrections that replaced messages, by message.
        """
        with self._lock:
            before = session.lines()
            for seq, text in lines.items():
                if before.get(seq) != text:
                    self._hold(session.name, [(0, text)])
            kept = set().union(*map(words_of, lines.values()))
            for seq, text in before.items():
                if lines.get(seq) == text:
                    continue
                number = session.versions.pop(seq)[-1][0]
                if seq not in lines:
                    session.taken.add(seq)
                if seq not in moved:
                    lost = " ".join(words_of(text) - kept)
                    self._lose(session, [(number, lost)])
            for seq, text in lines.items():
                if before.get(seq) != text:
                    session.versions[seq] = [(numbers.get(seq, 0), text)]
            for run in session.runs.values():
                run[:] = [(text, moved.get(seq, seq)) for text, seq in run]

    def begin_anew(self, session: Session, begins_at: int) -> None:
        """A reset that forgets returned; the log begins there or later."""
        with self._lock:
            session.begins_at = max(session.begins_at, begins_at)
            for seq in [seq for seq in session.versions if seq < session.begins_at]:
                self._lose(session, session.versions.pop(seq))
            for life in session.past_lives:
                self._lose(session, [(0, str(message["content"])) for message in life])
            session.past_lives.clear()

    def leave_life(self, session: Session, messages: list[dict[str, Any]], begins_at: int) -> None:
        """A reset that forgets nothing left what was derived of these messages as it is."""
        with self._lock:
            session.past_lives.append(messages)
            session.versions.clear()
            session.begins_at = begins_at

    @contextmanager
    def forking(self, source: Session, through_seq: int) -> Iterator[None]:
        """Until the copy is known, it may hold whatever the source has held up to there since this began."""
        token = uuid4().hex
        with self._lock:
            self._forks[token] = source, through_seq
            for seq, versions in source.versions.items():
                if seq <= through_seq:
                    self._hold(token, versions)
        try:
            yield
        finally:
            with self._lock:
                del self._forks[token]
                for word, holders in self._holders.items():
                    self._release(token, word, holders)

    def _place(self, session: Session, seq: int, number: int, text: str) -> None:
        version = (number, text)
        for token, (source, through_seq) in self._forks.items():
            if source is session and seq <= through_seq:
                self._hold(token, [version])
        self._hold(session.name, [version])
        if seq in session.taken or seq < session.begins_at:
            self._lose(session, [version])
            return
        versions = session.versions.setdefault(seq, [])
        versions.append(version)
        versions.sort()
        self._lose(session, versions[:-1])
        del versions[:-1]

    def _hold(self, holder: str, versions: Iterable[tuple[int, str]]) -> None:
        for _, text in versions:
            for word in words_of(text):
                self._holders[word].add(holder)

    def _lose(self, session: Session, versions: Iterable[tuple[int, str]]) -> None:
        for _, text in versions:
            for word in words_of(text):
                session.gone.add(word)
                self._release(session.name, word, self._holders[word])

    def _release(self, holder: str, word: str, holders: set[str]) -> None:
        if holder in holders:
            holders.discard(holder)
            if not holders:
                self.gone.add(word)
