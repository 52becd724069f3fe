"""A producer's journal: what it was about to put, and what was acknowledged; a kill leaves it whole.

One JSON object a line.  An intent stands before the put, so that a restarted producer can repeat it under
the same id; an acknowledgement is on the disk before the next put of its session begins.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Intent:
    """Message ``number`` of ``writer`` in a session is about to be put."""

    session: str
    writer: str
    number: int


@dataclass(frozen=True, slots=True)
class Ack:
    """A put was acknowledged.

    Attributes:
        id: the message's id.
        digest: of its role and content.
        seq: as the put returned it.
        at: monotonic seconds of the acknowledgement, the same clock in all processes.
        took: seconds of the attempt that was acknowledged.
        waited: seconds since its first attempt in this process, pauses included.
    """

    session: str
    writer: str
    number: int
    id: str
    digest: str
    seq: int
    at: float
    took: float
    waited: float


@dataclass(frozen=True, slots=True)
class Complaint:
    """A fault that a producer found, as a sentence."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Read:
    """A read that succeeded, and how many seconds it took."""

    at: float
    took: float


Entry = Intent | Ack | Complaint | Read
_FORMS: dict[str, type[Entry]] = {form.__name__: form for form in (Intent, Ack, Complaint, Read)}


class Journal:
    """Appends to a journal; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        # A kill may have cut the last line: what follows must not be read as its end.
        if (size := os.fstat(self._file).st_size) and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")

    def write(self, *entries: Entry, durably: bool = False) -> None:
        """Append entries; ``durably`` returns once they are on the disk."""
        lines = "".join(
            json.dumps({"form": type(entry).__name__} | asdict(entry), ensure_ascii=False) + "\n"
            for entry in entries
        )
        with self._lock:
            os.write(self._file, lines.encode())
        if durably:
            os.fdatasync(self._file) if hasattr(os, "fdatasync") else os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


class JournalReader:
    """Reads a journal that is still being written, from where it last stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_entries(self) -> Iterator[Entry]:
        """The entries appended since the last call; a line without an end is left for the next one."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                if (entry := _parse(line)) is not None:
                    yield entry


def _parse(line: bytes) -> Entry | None:
    """The entry of a line; None for one that a kill cut."""
    try:
        fields = json.loads(line)
        return _FORMS[fields.pop("form")](**fields)
    except (ValueError, KeyError, TypeError):
        return None
