"""Exports into files: streamed, and named only when whole.

An export reads live data, so a broken one begins again.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import httpx2

from strandline.client.operations import Call
from strandline.client.problems import Refusal
from strandline.client.retrying import Attempts
from strandline.client.service import RemoteService
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError, ServiceUnavailableError

_TRAILER = "trailer"
# The service sends no line that is as long.
MAX_LINE_BYTES = 64 * 1024 * 1024
# An export may break off at the same place each time.
MAX_BEGUN = 5


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A whole export.

    Attributes:
        path: where it is.
        lines: how many there are of each kind, the last line left out.
        size: in bytes.
    """

    path: Path
    lines: Mapping[str, int]
    size: int


class IncompleteError(Exception):
    """The stream ended before its last line, or has other lines than that says."""


class _File:
    def __init__(self, path: Path, part: Path, file: BinaryIO) -> None:
        self._path, self._part, self._file = path, part, file
        self._counts: Counter[str] = Counter()
        self._expected: Mapping[str, int] | None = None
        self._rest = bytearray()
        self._size = 0

    def take(self, part: bytes) -> None:
        self._file.write(part)
        self._size += len(part)
        first, *others = part.split(b"\n")
        self._rest += first
        for line in others:
            self._count(bytes(self._rest))
            self._rest = bytearray(line)
        if len(self._rest) > MAX_LINE_BYTES:
            raise IncompleteError

    def finish(self) -> ExportedFile:
        if self._rest or self._expected != dict(self._counts):
            raise IncompleteError
        self._file.flush()
        os.fsync(self._file.fileno())
        try:
            os.link(self._part, self._path)  # never in place of a file made in the meantime
        except FileExistsError:
            raise ConfigurationError(f"{self._path} was made meanwhile; name another file.") from None
        except OSError:  # of file systems that have no links
            self._part.replace(self._path)
        return ExportedFile(self._path, dict(self._counts), self._size)

    def _count(self, line: bytes) -> None:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            raise IncompleteError from None
        kind = fields.get("kind") if isinstance(fields, dict) else None
        if self._expected is not None or not isinstance(kind, str):
            raise IncompleteError
        if kind != _TRAILER:
            self._counts[kind] += 1
        elif isinstance(lines := fields.get("lines"), dict):
            self._expected = lines
        else:
            raise IncompleteError


@contextmanager
def begin_file(path: Path) -> Iterator[_File]:
    """A new file next to the path, deleted at the end unless finished."""
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    if path.exists():
        raise ConfigurationError(f"{path} exists; name a file that does not.")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written ({error.strerror}).") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield _File(path, part, file)
    finally:
        part.unlink(missing_ok=True)


class _Attempts(Attempts):
    def __init__(self, service: RemoteService, where: str, user_id: str | None) -> None:
        super().__init__(service.retries)
        self._url = service.url
        self._begun = 0
        self.call = Call("GET", where, user_id=user_id, headers={"Accept": "application/jsonl"})
        self.request = service.request_of(self.call)

    def note_begun(self) -> None:
        self._begun += 1
        self.note_answer()

    def wait_after(self, refused: Refusal | None) -> float:
        if refused is not None and refused.failure is None:
            raise refused.error
        wait = self.next_wait("unknown", None if refused is None else refused.retry_after)
        if wait is not None and self._begun < MAX_BEGUN:
            return wait
        if refused is not None:
            raise refused.error
        if self._begun == 0:
            raise ServiceUnavailableError(
                f"The service at {self._url} cannot be reached; check the URL, and that it runs."
            )
        raise ServiceUnavailableError(
            f"The export from {self._url} broke off ({quantity(self._begun, 'time')}), so there is no file."
            " Try it again later."
        )


def export_to(service: RemoteService, where: str, user_id: str | None, path: str | Path) -> ExportedFile:
    """Stream an export into a file that does not exist yet.

    Raises:
        ConfigurationError: the file exists, or cannot be written.
        ServiceUnavailableError: it cannot be had, or broke off five times; there is no file then.
        StrandlineError: the service refuses it.
    """
    service.client()  # made before the time is counted: it reads the certificates of the system
    attempts = _Attempts(service, where, user_id)
    while True:
        refused: Refusal | None = None
        try:
            with begin_file(Path(path)) as file, service.client().stream(**attempts.request) as response:
                if response.is_success:
                    attempts.note_begun()
                    for part in response.iter_bytes():
                        file.take(part)
                    return file.finish()
                refused = service.refusal(attempts.call, response)
        except (httpx2.RequestError, IncompleteError):
            pass
        time.sleep(attempts.wait_after(refused))


async def export_to_async(
    service: RemoteService, where: str, user_id: str | None, path: str | Path
) -> ExportedFile:
    """Async twin of ``export_to``; writes in threads."""
    service.aclient()
    attempts = _Attempts(service, where, user_id)
    while True:
        refused: Refusal | None = None
        try:
            with begin_file(Path(path)) as file:
                async with service.aclient().stream(**attempts.request) as response:
                    if response.is_success:
                        attempts.note_begun()
                        async for part in response.aiter_bytes():
                            await asyncio.to_thread(file.take, part)
                        return await asyncio.to_thread(file.finish)
                    refused = await service.arefusal(attempts.call, response)
        except (httpx2.RequestError, IncompleteError):
            pass
        await asyncio.sleep(attempts.wait_after(refused))
