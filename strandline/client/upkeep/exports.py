"""Exports into files: streamed, and under their name only when they are whole.

An export is of what there is while it is read, so one that broke off is not gone on with, but begun again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
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
from strandline.client.problems import error_of, kind_of, problem_of
from strandline.client.retrying import failure_of, retry_after_of
from strandline.client.service import RemoteService
from strandline.schemas.errors import ConfigurationError, ServiceUnavailableError, StrandlineError

_TRAILER = "trailer"


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
    """One attempt: a file beside the one that it is to be, which only its user can read."""

    def __init__(self, path: Path, part: Path, file: BinaryIO) -> None:
        self._path, self._part, self._file = path, part, file
        self._counts: Counter[str] = Counter()
        self._expected: Mapping[str, int] | None = None
        self._rest = b""
        self._size = 0

    def take(self, part: bytes) -> None:
        """Write a part of the stream, and count its lines."""
        self._file.write(part)
        self._size += len(part)
        *lines, self._rest = (self._rest + part).split(b"\n")
        for line in lines:
            self._count(line)

    def finish(self) -> ExportedFile:
        """Give it its name."""
        if self._rest or self._expected is None or dict(self._expected) != dict(self._counts):
            raise IncompleteError
        self._file.flush()
        os.fsync(self._file.fileno())
        self._part.replace(self._path)
        return ExportedFile(self._path, dict(self._counts), self._size)

    def _count(self, line: bytes) -> None:
        try:
            fields = json.loads(line)
            kind = fields["kind"]
        except (ValueError, TypeError, KeyError):
            raise IncompleteError from None
        if self._expected is not None:
            raise IncompleteError
        if kind == _TRAILER:
            self._expected = fields["lines"]
        else:
            self._counts[kind] += 1


@contextmanager
def begin_file(path: Path) -> Iterator[_File]:
    """A new file beside the path, which is gone at the end unless it was finished."""
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


class _Attempts:
    """How often an export was begun, and whether it is begun again."""

    def __init__(self, service: RemoteService, where: str, user_id: str | None) -> None:
        self._service = service
        call = Call("GET", where, user_id=user_id, headers={"Accept": "application/jsonl"})
        self.request = service.request_of(call)
        self._number = 0
        self._began_at = time.monotonic()

    def wait_after(self, refusal: httpx2.Response | None) -> float:
        """How long to wait before it is begun again; raises an error if it is not."""
        retry_after: float | None = None
        error: StrandlineError = ServiceUnavailableError(
            f"The export from {self._service.url} broke off each time, so there is no file."
            " Try it again later."
        )
        if refusal is not None:
            problem = problem_of(refusal.content, refusal.headers.get("content-type"))
            retry_after = retry_after_of(refusal.headers.get("retry-after"))
            error = error_of(problem, refusal.status_code, retry_after)
            if failure_of(kind_of(problem), refusal.status_code) is None:
                raise error
        self._number += 1
        wait = self._service.retries.wait_seconds(
            "always",
            "unknown",
            attempt=self._number,
            spent_seconds=time.monotonic() - self._began_at,
            retry_after=retry_after,
            random=random.random,
        )
        if wait is None:
            raise error
        return wait


def export_to(service: RemoteService, where: str, user_id: str | None, path: str | Path) -> ExportedFile:
    """Stream an export into a file that does not exist yet.

    Raises:
        ConfigurationError: the file exists, or cannot be written.
        ServiceUnavailableError: it broke off each time; there is no file then.
        StrandlineError: the service refuses it.
    """
    attempts = _Attempts(service, where, user_id)
    while True:
        refusal: httpx2.Response | None = None
        try:
            with begin_file(Path(path)) as file, service.client().stream(**attempts.request) as response:
                if response.is_success:
                    for part in response.iter_bytes():
                        file.take(part)
                    return file.finish()
                response.read()
                refusal = response
        except (httpx2.RequestError, IncompleteError):
            pass
        time.sleep(attempts.wait_after(refusal))


async def export_to_async(
    service: RemoteService, where: str, user_id: str | None, path: str | Path
) -> ExportedFile:
    """Async twin of ``export_to``; writes in threads."""
    attempts = _Attempts(service, where, user_id)
    while True:
        refusal: httpx2.Response | None = None
        try:
            with begin_file(Path(path)) as file:
                async with service.aclient().stream(**attempts.request) as response:
                    if response.is_success:
                        async for part in response.aiter_bytes():
                            await asyncio.to_thread(file.take, part)
                        return await asyncio.to_thread(file.finish)
                    await response.aread()
                    refusal = response
        except (httpx2.RequestError, IncompleteError):
            pass
        await asyncio.sleep(attempts.wait_after(refusal))
