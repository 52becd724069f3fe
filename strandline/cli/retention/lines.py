"""Output of the retention commands: lines for people, and the parts of their reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from strandline.cli.retention.durations import DURATIONS, duration_text
from strandline.cli.retention.reports import StatusReport
from strandline.retention import ArchivedRange, Past, Removal, Retention
from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.values.message import Message


def policy_lines(applied: Retention) -> Iterator[str]:
    names = {field: name.replace("_", " ") for name, (field, _meaning) in DURATIONS.items()}
    for field in fields(applied):
        value = getattr(applied, field.name)
        if not value:
            continue
        if field.name in names:
            yield f"  {names[field.name]}: {duration_text(value)}"
        elif field.name == "max_messages":
            yield f"  max messages: {value:,}"
        elif field.name == "archive":
            yield f"  archive: {value}"
        else:
            yield "  facts lose what a message gave them when it leaves"


def past_line(row: Past) -> str:
    parts = {
        "expired": row.expired,
        "past their age": row.aged,
        "beyond the number": row.surplus,
    }
    reasons = ", ".join(f"{number:,} {why}" for why, number in parts.items() if number)
    reasons += f"; {row.waiting:,} of them wait for their flush" if row.waiting else ""
    kept = f"; {row.important:,} important stay" if row.important else ""
    return f"{row.namespace}/{row.session_id}: {reasons}{kept}"


def run_lines(done: Removal) -> Iterator[str]:
    yield (
        f"{quantity(done.removed, 'message')} removed in {quantity(done.steps, 'step')},"
        f" {done.archived:,} archived, {done.kept:,} important kept"
    )
    if done.waiting:
        yield f"{quantity(done.waiting, 'session')} waiting: workers still derive what is to leave"
    if done.busy:
        yield f"{quantity(done.busy, 'step')} left to another process"
    if done.given_up:
        yield f"{quantity(done.given_up, 'step')} given up: the retention was changed since"
    if done.failed:
        yield f"{quantity(done.failed, 'step')} failed; `strandline retention status` says why"


def waiting_lines(waiting: int) -> Iterator[str]:
    if waiting:
        yield f"{quantity(waiting, 'message')} waiting: a flush leaves once all of it is past its time"


def status_lines(report: StatusReport) -> Iterator[str]:
    yield (
        f"{quantity(report.removed, 'message')} removed, {report.archived:,} archived,"
        f" {report.kept:,} important kept"
    )
    yield f"{quantity(report.open_steps, 'step')} under way, {report.failing_steps:,} failing"
    if report.waiting_lives:
        yield f"{quantity(report.waiting_lives, 'session')} ended, and not removed yet"
    yield "`strandline retention plan` says what is past its time, and what waits for its flush"
    for step in report.steps:
        where = "without an archive" if step.archive is None else f"to {step.archive}"
        error = f": {step.last_error}" if step.last_error else ""
        yield (
            f"{step.namespace}/{step.session_id}, messages {step.from_seq} to {step.through_seq},"
            f" {where}: {step.state}, {quantity(step.attempts, 'attempt')}{error}"
        )
    for one in report.passes:
        at = time_text(one.started_at)
        counts = ", ".join(f"{number:,} {name}" for name, number in sorted(one.counts.items()))
        yield f"pass {one.run_id}, {at}: {one.state}{f' ({counts})' if counts else ''}"


def range_line(one: ArchivedRange) -> str:
    where = "removed without an archive" if one.archive is None else f"{one.archive} {one.object_name or ''}"
    kept = f", {len(one.kept_seqs)} important kept" if one.kept_seqs else ""
    return f"messages {one.from_seq} to {one.through_seq} ({one.cause}), {one.state}{kept}: {where.strip()}"


def message_fields(message: Message) -> dict[str, Any]:
    return {
        "seq": message.seq,
        "id": message.id,
        "created_at": message.created_at.isoformat() if message.created_at else None,
        **message.to_dict(),
        **({"metadata": dict(message.metadata)} if message.metadata else {}),
    }
