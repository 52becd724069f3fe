"""Redaction hooks and overflow handlers as an application would write them, found by their places."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from itertools import count
from pathlib import Path
from typing import ClassVar

from strandline import OverflowEvent, RefusalError
from strandline.schemas.errors import ProviderDownError

CANARY = "zanzibar.canary@example.org"
_ADDRESS = re.compile(r"[\w.]+@[\w.]+")

letting_go = threading.Event()
_numbers = count(1)


def hide(text: str) -> str:
    """Hides addresses."""
    return _ADDRESS.sub("[hidden]", text)


class Marked:
    """A hook with a name and a version of its own."""

    name = "house-rules"
    version = "7"

    def __call__(self, text: str) -> str:
        return text.replace("secret", "[redacted]")


class Refusing:
    def __call__(self, text: str) -> str:
        if "secret" in text:
            raise RefusalError("it tells a secret")
        return text


def failing(text: str) -> str:
    raise ValueError(f"cannot read {text}")


def returning_nothing(text: str) -> None:
    del text


def hanging(text: str) -> str:
    letting_go.wait()
    return text


def numbering(text: str) -> str:
    """Another result each time, as no hook should have."""
    return f"{text} ({next(_numbers)})"


class Handler:
    """Notes what it is handed; ``failing`` is what it raises meanwhile."""

    seen: ClassVar[list[OverflowEvent]] = []
    failing: ClassVar[BaseException | None] = None

    def __call__(self, event: OverflowEvent) -> None:
        self.seen.append(event)
        if self.failing is not None:
            raise self.failing


handler = Handler()


async def async_handler(event: OverflowEvent) -> None:
    await asyncio.sleep(0)
    Handler.seen.append(event)


def hanging_handler(event: OverflowEvent) -> None:
    Handler.seen.append(event)
    letting_go.wait()


def writing_handler(event: OverflowEvent) -> None:
    """Appends to the file that the environment names; fails while there is a file beside it that says so."""
    file = Path(os.environ["OVERFLOW_FILE"])
    if file.with_suffix(".down").exists():
        raise ProviderDownError("The store is down.")
    line = {
        "event": str(event.event_id),
        "session": event.session_id,
        "user": event.user_id,
        "namespace": event.namespace,
        "cause": event.cause,
        "texts": [message.text for message in event.messages],
    }
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(line) + "\n")
