"""Exporting: everything stored about an owner or a session, as lines, in bounded memory.

Each page is a statement of its own, so concurrent writes may be in it or not; the trailer counts the given
lines.  Content goes through ``decoding`` alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime
from typing import Any

from strandline.pipelines.audit.appending import Act, append_act
from strandline.producers.execution import OperationRunner
from strandline.producers.exports.lines import HeaderLine, TrailerLine
from strandline.producers.exports.pages import ExportTarget, Section, is_last, sections
from strandline.schemas.errors import ConflictError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.exported import ExportedLine
from strandline.schemas.queries.upkeep.erasures import UnfinishedErasure
from strandline.schemas.values.identity import Owner
from strandline.schemas.version import VERSION


def export_lines(runner: OperationRunner, target: ExportTarget, session_id: str | None) -> Iterator[str]:
    """Every line, as JSON without the end of the line."""
    runner.run(_begin_export(target))
    counts: Counter[str] = Counter()
    yield _write_line(_header(target, session_id), counts)
    for section in sections(target):
        last: Any | None = None
        while True:
            page = runner.run(_page(section, last))
            for row in page:
                yield _write_line(section.line(row), counts)
            if is_last(page, section):
                break
            last = page[-1]
    yield _write_line(TrailerLine(lines=dict(counts)), counts)


async def aexport_lines(
    runner: OperationRunner, target: ExportTarget, session_id: str | None
) -> AsyncGenerator[str, None]:
    """Async twin of ``export_lines``."""
    await runner.arun(_begin_export(target))
    counts: Counter[str] = Counter()
    yield _write_line(_header(target, session_id), counts)
    for section in sections(target):
        last: Any | None = None
        while True:
            page = await runner.arun(_page(section, last))
            for row in page:
                yield _write_line(section.line(row), counts)
            if is_last(page, section):
                break
            last = page[-1]
    yield _write_line(TrailerLine(lines=dict(counts)), counts)


def count_lines(target: ExportTarget) -> Operation[int]:
    """The rows of an export; none of an erased owner."""
    rows = 0
    for section in sections(target):
        rows += len((yield from _page(section, None)))
    return rows


def _begin_export(target: ExportTarget) -> Operation[None]:
    """Record the beginning before the first line; raises ConflictError in an unfinished erasure."""
    owner = Owner(target.namespace, target.user_id, target.owner_key)
    unfinished = UnfinishedErasure(owner_key=target.owner_key, session_key=target.session_key)
    for erasure in (yield from fetch(unfinished)):
        raise ConflictError(
            f"Erasure {erasure.number} is not finished, so an export would be of its remains; run the same"
            " erasure again first.",
            for_clients="An erasure is not finished, so an export would be of its remains; ask for the"
            " same erasure again first.",
        )
    yield from append_act(owner, Act.here("export"))


def _page(section: Section, last: Any | None) -> Operation[list[Any]]:
    rows = yield from fetch(section.page(last))
    return rows


def _header(target: ExportTarget, session_id: str | None) -> HeaderLine:
    return HeaderLine(
        of="user" if session_id is None else "session",
        namespace=target.namespace,
        user_id=target.user_id,
        session_id=session_id,
        owner_key=target.owner_key,
        release=VERSION,
        exported_at=datetime.now(UTC),
    )


def _write_line(line: ExportedLine, counts: Counter[str]) -> str:
    counts[line.kind] += 1
    return line.model_dump_json()
