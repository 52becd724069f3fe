"""Messages in windows that workers get with the next delivery, so no memory is derived from them yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from strandline.schemas.display.shown_text import quantity, time_text


@dataclass(frozen=True, slots=True)
class Undelivered:
    """How many messages wait, in how many sessions, and for what.

    Attributes:
        tokens: of the one session, head included; above ``flush_at_tokens`` its oldest are delivered. None:
            there are several sessions.
        deliver_at: the first idle delivery, if its session gets no message before; None: there is none.
    """

    messages: int
    sessions: int = 1
    tokens: int | None = None
    flush_at_tokens: int | None = None
    deliver_at: datetime | None = None

    @classmethod
    def read(cls, marks: Mapping[str, Any]) -> Self | None:
        """From a session's marks as the read statement gives them; None: nothing waits."""
        if not marks.get("undelivered"):
            return None
        at = marks["deliver_at"]
        return cls(
            marks["undelivered"],
            1,
            marks["tokens"],
            marks["flush_at_tokens"],
            None if at is None else datetime.fromisoformat(at),
        )

    def __str__(self) -> str:
        """A sentence for people at a terminal."""
        ways = [] if self.deliver_at is None else [f"when idle ({time_text(self.deliver_at)})"]
        if self.flush_at_tokens is not None:
            ways.insert(0, f"above {self.flush_at_tokens:,} tokens (now {self.tokens:,})")
        verb = "waits" if self.messages == 1 else "wait"
        where = quantity(self.sessions, "window")
        next_delivery = " or ".join([*ways, "by `strandline flush`"])
        return f"{quantity(self.messages, 'message')} {verb} in {where}; next delivery {next_delivery}"
