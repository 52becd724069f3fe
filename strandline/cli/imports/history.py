"""Imports chat JSONL, tables of other libraries and exported chats, and writes omissions to a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from strandline.chat_import.file_lines import longest_line
from strandline.chat_import.history_import import HistoryImport, Target
from strandline.chat_import.lines_import import ChatImport, Whose
from strandline.chat_import.records import HistorySource, Omission
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import say
from strandline.cli.terminal.progress import LINE_EVERY_BYTES, LINE_EVERY_ROWS, shown_progress
from strandline.producers.writing.validate import PutLimits
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.private_files import open_private
from strandline.schemas.settings import Settings
from strandline.schemas.wire.work import ImportReport

# Of what could not be taken, so much is printed.
MAX_PRINTED_OMISSIONS = 10
# Sources of which a part is told in bytes, and not in rows.
EXPORTS = ("openai", "anthropic")


def import_history(
    source: HistorySource, name: str, target: Target, *, is_dry: bool, omissions_file: Path | None
) -> ImportReport:
    """Import a source, or only read it.

    Raises: as ``HistoryImport.run``; ConfigurationError if ``omissions_file`` cannot be written.
    """
    with (
        _omissions(omissions_file) as omit,
        shown_progress(LINE_EVERY_BYTES if name in EXPORTS else LINE_EVERY_ROWS) as show,
        ends_as_interrupts() as interrupts,
    ):
        chats = HistoryImport(
            source,
            target,
            is_dry=is_dry,
            report=lambda done: show(
                done.portion.done, done.portion.total, quantity(done.added + done.known, "message")
            ),
            omit=omit,
            check=interrupts.check,
        )
        try:
            done = chats.run()
        except KeyboardInterrupt:
            say(f"interrupted: {chats.describe_stored()}", err=True)
            raise
    return ImportReport.of(
        done,
        source=name,
        dry_run=is_dry,
        namespace=target.namespace,
        reasons=dict(chats.reasons.most_common()),
    )


@contextmanager
def _omissions(path: Path | None) -> Iterator[Callable[[Omission], None]]:
    printed = 0

    def tell(omission: Omission) -> None:
        nonlocal printed
        printed += 1
        if printed <= MAX_PRINTED_OMISSIONS:
            say(_sentence(omission), err=True)
        if file is not None:
            place = asdict(omission.place)
            fields = {name: place[name] for name in place if name != "name" or place[name]}
            fields |= {"reason": omission.reason}
            with _name_unwritable(file.name):
                file.write(json.dumps(fields) + "\n")

    file = None
    if path is not None:
        with _name_unwritable(str(path)):
            file = open_private(path, "w", encoding="utf-8")
    try:
        yield tell
    finally:
        if file is not None:
            with _name_unwritable(file.name):
                file.close()


@contextmanager
def _name_unwritable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be written: {error.strerror}.") from None


def _sentence(omission: Omission) -> str:
    place = omission.place
    part = f", {place.part}" if place.part else ""
    return f"{place.table}, row {place.row}{part}: {omission.reason}"


def import_lines(
    file: Path, whose: Whose, settings: Settings, options: Mapping[str, Any], *, is_dry: bool
) -> ImportReport:
    """Import the file, or only check it.

    Raises: as ``ChatImport.run``.
    """
    limits = PutLimits(settings.max_content_bytes, settings.max_metadata_bytes)
    with shown_progress(LINE_EVERY_BYTES) as show, ends_as_interrupts() as interrupts:
        chats = ChatImport(
            file,
            whose,
            max_line_bytes=longest_line(settings),
            options=options,
            report=lambda done: show(
                done.bytes_read, done.bytes_in_all, quantity(done.added + done.known, "message")
            ),
            check=interrupts.check,
            dry_limits=limits if is_dry else None,
        )
        try:
            done = chats.run()
        except KeyboardInterrupt:
            say(f"interrupted: {chats.describe_stored(perhaps_more=True)}", err=True)
            raise
    return ImportReport.of(done, source="jsonl", dry_run=is_dry, namespace=whose.namespace)
