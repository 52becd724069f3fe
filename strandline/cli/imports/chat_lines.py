"""Imports chat JSONL, as ``strandline import`` does without ``--from``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strandline.chat_import.file_lines import longest_line
from strandline.chat_import.lines_import import ChatImport, Progress, Whose
from strandline.cli.imports.progress import LINE_EVERY_BYTES, shown_progress
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import say
from strandline.producers.writing.validate import PutLimits
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.settings import Settings
from strandline.schemas.wire.work import ImportReport


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
    return _report(done, whose.namespace, is_dry=is_dry)


def _report(done: Progress, namespace: str, *, is_dry: bool) -> ImportReport:
    return ImportReport(
        source="jsonl",
        dry_run=is_dry,
        namespace=namespace,
        sessions=done.sessions,
        added=done.added,
        known=done.known,
        events=done.events,
    )
