"""The standard streams where they are closed, full, or have no reader any more."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeGuard

import click

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def open_closed_streams() -> None:
    """Open each standard stream that was closed before the start on the null device.

    Otherwise the first socket or file would get its number, and the output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # which gets the lowest number that is free: this one
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  # for as long as the process runs
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def drop_output() -> None:
    """Drop what could not be written to stdout, so that Python does not try it again when it ends."""
    _drop(sys.stdout)


def is_of_output(error: Exception) -> TypeGuard[OSError]:
    """Whether the system refused a stream's output, and not a file that it names."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _UNWRITABLE


def complain(text: str) -> None:
    """Print to stderr; where that cannot be written either, the exit code alone tells."""
    try:
        click.echo(text, err=True)
    except OSError:
        _drop(sys.stderr)


def _drop(stream: IO[str]) -> None:
    with suppress(OSError, ValueError):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
