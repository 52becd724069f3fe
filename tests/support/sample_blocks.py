"""Custom blocks as an application would write them; worker processes load them by STRANDLINE_BLOCKS."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from strandline import Message, TextPart

POISON = "zyzzyva"


class MentionCounter:
    """Counts how often a name is said in a session."""

    name = "mentions"
    version = "1"

    def __init__(self, mentioned: str = "Logan") -> None:
        self.mentioned = mentioned

    def initial(self) -> dict[str, int]:
        return {"count": 0}

    def fold(self, state: dict[str, int], messages: Sequence[Message]) -> dict[str, int]:
        return {"count": state["count"] + sum(self.mentioned in message.text for message in messages)}

    def render(self, state: dict[str, int]) -> str:
        return f"{self.mentioned} was mentioned {state['count']} times."


class Diary:
    """Everything that a user has said, over all sessions, in the order in which it was folded."""

    name = "diary"
    version = "1"
    scope = "owner"
    priority = 1

    def initial(self) -> list[str]:
        return []

    def fold(self, state: list[str], messages: Sequence[Message]) -> list[str]:
        if any(POISON in message.text for message in messages) and not forgiving.is_set():
            raise LookupError(f"cannot read {messages[0].text}")
        return [*state, " ".join(message.text for message in messages)]

    def render(self, state: list[str]) -> str | None:
        return "\n".join(state) or None

    def truncate(self, content: str, tokens: int) -> str | None:
        return "\n".join(content.splitlines()[-1:])


class Stuck(Diary):
    """Does not come back from what it is told to be stuck on, until it is let go."""

    name = "stuck"
    scope = "session"

    def fold(self, state: list[str], messages: Sequence[Message]) -> list[str]:
        if any(POISON in message.text for message in messages):
            while not forgiving.wait(0.05):
                pass
        return super().fold(state, messages)


class Log(Diary):
    """The same for one session, with where its messages stand."""

    name = "log"
    scope = "session"

    def fold(self, state: list[Any], messages: Sequence[Message]) -> list[Any]:
        super().fold([], messages)
        assert all(message.created_at is not None for message in messages)
        return [*state, [message.seq for message in messages]]

    def render(self, state: list[Any]) -> str:
        return str(state)


class Pictures(MentionCounter):
    """Shows content parts."""

    name = "pictures"

    def render(self, state: Any) -> Any:
        return [TextPart("a <map>"), {"type": "image_url", "image_url": {"url": "https://example.org/map"}}]


class Whatever(MentionCounter):
    """Returns as its state what a test puts into ``given``."""

    name = "whatever"
    given: Any = None

    def fold(self, state: Any, messages: Sequence[Message]) -> Any:
        return type(self).given


# Whether the poison is read after all, as once a defect is mended.
forgiving = threading.Event()
