"""The standard streams where they are closed, full, or have no reader; and log records on stderr."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TypeGuard

import click

from strandline.schemas.display.shown_text import shown, shown_lines
from strandline.schemas.settings import LogFormat
from strandline.schemas.tracing import current_traceparent

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


# The fields of every record; any other was passed as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}


class FieldFormatter(logging.Formatter):
    """``time level logger: message key=value …``: one line, and a traceback indented below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # as logging calls it
        fields = [f"{key}={value}" for key, value in vars(record).items() if key not in _STANDARD]
        return shown(" ".join([super().formatMessage(record), *fields]))

    def format(self, record: logging.LogRecord) -> str:
        line, *trace = shown_lines(super().format(record))
        return "\n".join([line, *(f"  {of_trace}" for of_trace in trace)])


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``time`` (UTC), ``level``, ``logger``, ``message``, ``trace`` and fields.

    In a span, ``trace_id`` and ``span_id`` as well.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (traceparent := current_traceparent()) is not None:
            _, fields["trace_id"], fields["span_id"], _ = traceparent.split("-")
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields | line, default=str)


def log_to_stderr(level: str, log_format: LogFormat) -> None:
    """Send records of ``level`` and above to stderr."""
    handler = logging.StreamHandler()
    text = FieldFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=level, handlers=[handler], force=True)
