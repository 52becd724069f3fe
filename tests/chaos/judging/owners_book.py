"""A record of the sessions that no producer puts to: the campaign's, which are edited, reset or huge."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.chaos.judging.journal import Ack


@dataclass
class OwnersBook:
    """Acknowledged messages of these sessions, and texts that were taken back; safe to share.

    Attributes:
        acks: what was put and not reset.
        gone: by user, the texts of facts that a person deleted, and of sessions that were reset.
        edits: how many facts were deleted or added by a person.
        resets: how many sessions were reset with what was derived from them.
    """

    acks: list[Ack] = field(default_factory=list)
    gone: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    edits: int = 0
    resets: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def note_put(self, acks: Iterable[Ack]) -> None:
        with self._lock:
            self.acks.extend(acks)

    def note_deleted(self, user: str, text: str) -> None:
        """Before it is deleted: from then on it may be gone."""
        with self._lock:
            self.gone[user].add(text)
            self.edits += 1

    def note_reset(self, user: str, session: str, texts: Iterable[str]) -> None:
        with self._lock:
            self.gone[user].update(texts)
            self.acks = [ack for ack in self.acks if ack.session != session]
            self.resets += 1

    @property
    def gone_texts(self) -> list[str]:
        """All texts that were taken back, of all users."""
        with self._lock:
            return sorted(text for texts in self.gone.values() for text in texts)
