"""Log records on stderr, with their fields, for commands that run in the foreground for long."""

from __future__ import annotations

import logging

from strandline.schemas.display.shown_text import shown, shown_lines

# What every record has; whatever else stands on one was passed as ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}


class FieldFormatter(logging.Formatter):
    """``time level logger: message key=value …``: one line, and a traceback indented below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # as logging calls it
        fields = [f"{key}={value}" for key, value in vars(record).items() if key not in _STANDARD]
        return shown(" ".join([super().formatMessage(record), *fields]))

    def format(self, record: logging.LogRecord) -> str:
        line, *trace = shown_lines(super().format(record))
        return "\n".join([line, *(f"  {of_trace}" for of_trace in trace)])


def log_to_stderr(level: str) -> None:
    """Send records of ``level`` and above to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(FieldFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler], force=True)
