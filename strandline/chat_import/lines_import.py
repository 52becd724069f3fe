"""Importing chat JSONL: lines of many sessions, put in bulk, session by session.

Reads the file once and keeps at most some ten thousand messages, or some ten megabytes, in memory.  Each
message has an id: its own, or one derived from its session, its place in the session and its words.  So
importing the same file again, or a longer one with the same beginning, adds only missing messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from strandline.chat_import.file_lines import object_in, read_lines
from strandline.memory import Memory
from strandline.producers.writing.bulk_import import Imported
from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import (
    ConfigurationError,
    InvalidMessageError,
    OutcomeUnknownError,
    StrandlineError,
)
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.values.message import Message

# Messages that one transaction takes in, and those in memory at once; and about how many bytes they take.
MAX_MESSAGES_PER_CHUNK = 2_000
MAX_MESSAGES_IN_MEMORY = 20_000
MAX_BYTES_PER_CHUNK = 16_000_000
MAX_BYTES_IN_MEMORY = 64_000_000
# A value's memory when read, however short its text; the first few of a line are in its own bytes.
BYTES_PER_VALUE = 100
USUAL_VALUES = 16

_PLACE = re.compile(r"messages\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Whose:
    """The session and user of each line: a fixed name, or a field of the line (``metadata.session``).

    With neither, a line's session is its ``session_id``, and its user its ``user_id``, if any.
    """

    session: str | None = None
    session_field: str = "session_id"
    user: str | None = None
    user_field: str = "user_id"
    namespace: str = DEFAULT_NAMESPACE

    @property
    def fields(self) -> tuple[str, str]:
        """The fields that name a line's session and user, which are not part of its message."""
        return self.session_field, self.user_field

    def session_of(self, line: Mapping[str, Any], where: str) -> str:
        if self.session is not None:
            return self.session
        session_id = _name(_at(line, self.session_field), self.session_field, where)
        if not session_id:
            raise ConfigurationError(
                f"{where} has no {quote(self.session_field)}; name the field that has the session with"
                " --session-field, or put all lines into one session with --session."
            )
        return session_id

    def user_of(self, line: Mapping[str, Any], where: str) -> str | None:
        if self.user is not None:
            return self.user
        return _name(_at(line, self.user_field), self.user_field, where)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of an import: ``bytes_read`` of ``bytes_in_all``."""

    bytes_read: int = 0
    bytes_in_all: int = 0
    sessions: int = 0
    added: int = 0
    known: int = 0
    events: int = 0


@dataclass(slots=True)
class _Chunk:
    session: str
    user: str | None
    messages: list[dict[str, Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    bytes_read: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.messages) >= MAX_MESSAGES_PER_CHUNK or self.bytes_read >= MAX_BYTES_PER_CHUNK


class ChatImport:
    """One import; ``run`` can be interrupted, and called again by another process on the same file.

    Args:
        max_line_bytes: a longer line is refused (``longest_line``).
        options: arguments of ``Memory.from_defaults``: limits, memory blocks, URLs.
        report: called with the progress after each chunk.
        check: called at each piece that is read; raises if the import is to end.
        dry_limits: put nothing; check every line, by these bounds on a message, and count it as added.
    """

    def __init__(
        self,
        path: Path,
        whose: Whose,
        *,
        max_line_bytes: int,
        options: Mapping[str, Any] | None = None,
        report: Callable[[Progress], None] = lambda _progress: None,
        check: Callable[[], None] = lambda: None,
        dry_limits: PutLimits | None = None,
    ) -> None:
        self._path = path
        self._dry_limits = dry_limits
        self._whose = whose
        self._max_line_bytes = max_line_bytes
        self._options = dict(options or {})
        self._report = report
        self._check = check
        self._seen: dict[str, int] = {}
        self._waiting: dict[str, _Chunk] = {}
        self._progress = Progress()
        self._last: Memory | None = None

    def run(self) -> Progress:
        """Import everything.

        Raises:
            ConfigurationError: the file cannot be read, or a line is not a message; the error names it.
                Earlier lines may have been imported.
            StrandlineError: as for a put.
        """
        self._progress = Progress(bytes_in_all=check_readable(self._path))
        try:
            self._put_lines()
        except StrandlineError as error:
            stored = self.describe_stored(perhaps_more=isinstance(error, OutcomeUnknownError))
            raise type(error)(f"{_as_sentence(str(error))} {stored}") from error
        finally:
            if self._last is not None:
                self._last.close()
        return self._progress

    def describe_stored(self, *, perhaps_more: bool) -> str:
        """How much of the file is stored after an import that ended early, and how to resume.

        ``perhaps_more``: the import ended while messages may have been on their way.
        """
        done = self._progress.added + self._progress.known
        if self._dry_limits is not None or (not done and not perhaps_more):
            return "Nothing of the file was stored."
        verb = "is" if done == 1 else "are"
        more = ", and perhaps some more" if perhaps_more else ""
        return (
            f"{quantity(done, 'message')} of the file {verb} stored{more};"
            " run the same import again: it adds the missing ones, and nothing twice."
        )

    def _put_lines(self) -> None:
        messages = bytes_read = 0
        for number, size, line in self._lines():
            chunk = self._take(number, line)
            chunk.bytes_read += size
            messages, bytes_read = messages + 1, bytes_read + size
            if chunk.is_full:
                messages, bytes_read = messages - len(chunk.messages), bytes_read - chunk.bytes_read
                self._put(self._waiting.pop(chunk.session))
            elif messages >= MAX_MESSAGES_IN_MEMORY or bytes_read >= MAX_BYTES_IN_MEMORY:
                messages = bytes_read = 0
                self._put_all()
        self._put_all()

    def _lines(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        lines = read_lines(self._path, self._max_line_bytes, self._check)
        for number, line in enumerate(lines, start=1):
            bytes_read = self._progress.bytes_read + len(line)
            self._progress = replace(self._progress, bytes_read=bytes_read)
            if line.strip():
                values = sum(map(line.count, (b",", b"[", b"{"))) - USUAL_VALUES
                size = len(line) + BYTES_PER_VALUE * max(0, values)
                yield number, size, _read(line, self._where(number))

    def _take(self, number: int, line: dict[str, Any]) -> _Chunk:
        session = self._whose.session_of(line, self._where(number))
        user = self._whose.user_of(line, self._where(number))
        chunk = self._waiting.setdefault(session, _Chunk(session, user))
        if chunk.user != user:
            raise ConfigurationError(
                f"{self._where(number)} belongs to another user than earlier lines of session {session!r};"
                " a session has one user. Name the field that has the user with --user-field, or put these"
                " lines into another session."
            )
        place = self._seen.get(session, 0)
        self._seen[session] = place + 1
        message = {name: value for name, value in line.items() if name not in self._whose.fields}
        if message.get("id") is None:
            message["id"] = _id(place, message, self._where(number))
        chunk.messages.append(message)
        chunk.lines.append(number)
        return chunk

    def _put_all(self) -> None:
        for session in list(self._waiting):
            self._put(self._waiting.pop(session))

    def _put(self, chunk: _Chunk) -> None:
        try:
            imported = self._import(chunk)
        except InvalidMessageError as error:
            place = _PLACE.search(error.field)
            where = self._where(chunk.lines[int(place[1]) if place else 0])
            raise ConfigurationError(f"{where}: {_PLACE.sub('message', str(error))}.") from None
        flushed = imported.flushed
        self._progress = replace(
            self._progress,
            sessions=len(self._seen),
            added=self._progress.added + imported.added,
            known=self._progress.known + imported.known,
            events=self._progress.events + (len(flushed.event_ids) if flushed is not None else 0),
        )
        self._report(self._progress)

    def _import(self, chunk: _Chunk) -> Imported:
        if self._dry_limits is not None:
            for place, message in enumerate(chunk.messages):
                where = f"messages[{place}]"
                prepare(Message.from_openai(message, where=where), where, self._dry_limits)
            return Imported(known=0, added=len(chunk.messages))
        self._last = Memory.from_defaults(
            chunk.session, user_id=chunk.user, namespace=self._whose.namespace, **self._options
        )
        return self._last.import_messages(chunk.messages)

    def _where(self, number: int) -> str:
        return f"{self._path}, line {number}"


def check_readable(path: Path) -> int:
    """Return the size of the file.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        # A pipe stays closed: opened and closed here, it would end whoever writes into it.
        if not path.is_fifo():
            path.open("rb").close()
        return path.stat().st_size
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None


def _as_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _read(line: bytes, where: str) -> dict[str, Any]:
    try:
        return object_in(line)
    except ValueError as error:
        raise ConfigurationError(f"{where} {error}.") from None


def _at(line: Mapping[str, Any], path: str) -> object:
    value: object = line
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _name(value: object, field: str, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    kinds = {dict: "an object", list: "a list", bool: "true or false", float: "a fraction"}
    raise ConfigurationError(
        f"{where}: {quote(field)} is {kinds[type(value)]}; it must be text or a whole number. Name a field"
        " inside an object with a dot, such as metadata.session."
    )


def _id(place: int, line: Mapping[str, Any], where: str) -> str:
    try:
        identity = json.dumps([place, line.get("role"), line.get("content")], sort_keys=True, default=str)
    except RecursionError:
        raise ConfigurationError(f"{where} is nested too deeply.") from None
    return blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
