"""The result of a campaign, as a table for people and as JSON for machines."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.chaos.plan import KINDS, Kind

# Seconds within which work must go on, from when all that it needs is there.
BOUNDS: dict[Kind, float] = {
    "worker killed": 10.0,
    "worker frozen": 10.0,
    "broker restarted": 15.0,
    "broker refuses hints": 15.0,
    "postgres restarted": 15.0,
    "postgres black-holed": 15.0,
    "clock stepped back": 10.0,
}

MEANINGS: dict[Kind, str] = {
    "worker killed": "until the last live lane it held was claimed by another",
    "worker stopped": "the same, from SIGTERM",
    "worker frozen": "the same, from SIGSTOP",
    "producer killed": "until its next acknowledged put",
    "broker emptied": "until a lane was claimed and a receipt written",
    "broker restarted": "the same, from when it accepted connections",
    "broker refuses hints": "the same, from when it refused them",
    "postgres restarted": "the same, from when it accepted connections",
    "postgres black-holed": "the same, from when the line was mended",
    "broker sent junk": "until a lane was claimed and a receipt written",
    "clock stepped back": "until the last live lane it held was claimed by another",
    "poison turn": "until nothing of its session was due",
    "facts edited": "until what was said was derived and its facts were edited",
    "session reset": "until the session was reset",
    "replay in place": "until it was done, and verify was clean",
    "replay anew": "until it served everybody, and verify was clean",
    "release changed": "until all processes ran the next release",
    **dict.fromkeys(
        [kind for kind in KINDS if kind.startswith("model")],
        "until what a model derives was applied, from when it was well",
    ),
}


@dataclass
class FaultRow:
    """One kind: how often, and its longest recovery in seconds, since all that it needed was there
    (``longest``) and since the fault itself (``longest_raw``); the workers concerned held ``lanes``."""

    kind: Kind
    count: int
    longest: float | None
    longest_raw: float | None
    bound: float | None
    lanes: int | None


@dataclass
class Recovered:
    """One fault's recovery: its number and kind, seconds from the plan's begin, how long it took, and how
    many lanes were to be taken up, ``of_replays`` or live; ``needs`` is what stopped the clock while it was
    away."""

    number: int
    kind: Kind
    needs: tuple[str, ...]
    at: float
    seconds: float | None
    raw_seconds: float | None
    lanes: int | None
    of_replays: bool = False


@dataclass
class Away:
    """A part that was away or unwell, and from when until when, in seconds since the plan began."""

    name: str
    begin: float
    end: float


@dataclass
class Report:
    """The whole result; ``violations`` are sentences, and empty when all is well.

    Attributes:
        late: recoveries that came, and took longer than is allowed, as sentences.
        replayed_lanes: lanes of replays that lost workers held; the last of them was taken up, in its turn,
            ``replayed_lanes_longest`` seconds after.
        at_once: faults that lasted at the same time, at most.
        settled_seconds: from the end of the load until nothing was due.
        dead_letters: how many there were before they were retried; ``unexplained`` those that no wrong
            answer of the model explains; ``stuck`` events that did not come through in the end.
        longest_put: seconds of the longest put while Postgres was there; ``longest_wait`` from the first
            attempt to the acknowledgement, repetitions included.
        put_p99_calm_ms: p99 of puts before the model failed, and after it was well again.
        put_p99_ratio: p99 of puts while the model failed, divided by the greater of these two.
        logs: the directory with logs, journals and data; kept where something was violated.
        ended_by_themselves: exit codes of processes that ended without being told to, by name;
            a violation unless Postgres or the broker was away in that life.
        away: what recoveries were not timed in, and when the model was unwell.
    """

    seed: int
    broker: str
    seconds: float = 0.0
    faults: list[FaultRow] = field(default_factory=list)
    recoveries: list[Recovered] = field(default_factory=list)
    at_once: int = 0
    replayed_lanes: int = 0
    replayed_lanes_longest: float = 0.0
    accepted: int = 0
    lost: int = 0
    doubled: int = 0
    reads: int = 0
    events: int = 0
    applied: int = 0
    facts: int = 0
    model_calls: int = 0
    dead_letters: int = 0
    unexplained: int = 0
    stuck: int = 0
    settled_seconds: float = 0.0
    retried_seconds: float = 0.0
    longest_put: float = 0.0
    longest_wait: float = 0.0
    put_p99_calm_ms: tuple[float, float] = (0.0, 0.0)
    put_p99_outage_ms: float = 0.0
    put_p99_ratio: float = 0.0
    ended_by_themselves: dict[str, list[int]] = field(default_factory=dict)
    away: list[Away] = field(default_factory=list)
    verified: str = "not run"
    violations: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    edits: int = 0
    resets: int = 0
    logs: str | None = None
    machine: dict[str, Any] = field(default_factory=dict)


def machine() -> dict[str, Any]:
    return {
        "system": platform.system(),
        "Python": platform.python_version(),
        "processors": os.cpu_count(),
        # Of the whole machine: others may work on it, and times are to be read with that.
        "load": round(os.getloadavg()[1], 1),
    }


def as_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n"


def as_text(report: Report) -> str:
    """The table, then the figures, then a sentence per violation."""
    kept = [f"logs, journals and data: {report.logs}"] if report.logs else []
    lines = [*_fault_lines(report.faults), "", *_figure_lines(report), "", *_verdict(report), *kept]
    return "\n".join(lines)


def _fault_lines(rows: Sequence[FaultRow]) -> list[str]:
    cells = [
        ("fault", "count", "lanes held", "longest recovery", "allowed", "from the fault", "recovery means")
    ]
    cells += [
        (
            row.kind,
            str(row.count),
            "" if row.lanes is None else str(row.lanes),
            _seconds(row.longest),
            _seconds(row.bound),
            _seconds(row.longest_raw),
            MEANINGS[row.kind],
        )
        for row in rows
    ]
    cells.append(("together", str(sum(row.count for row in rows)), "", "", "", "", ""))
    widths = [max(len(line[column]) for line in cells) for column in range(7)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _figure_lines(report: Report) -> list[str]:
    before, after = report.put_p99_calm_ms
    figures = [
        ("seed, broker, time", f"{report.seed}, {report.broker}, {report.seconds:.0f} s"),
        ("faults at once, at most", f"{report.at_once}"),
        (
            "replays' lanes of lost workers",
            f"{report.replayed_lanes:,}, taken up in their turn, after {report.replayed_lanes_longest:.1f} s"
            " at most",
        ),
        ("messages accepted", f"{report.accepted:,}"),
        ("lost, doubled", f"{report.lost}, {report.doubled}"),
        ("reads that were checked", f"{report.reads:,}"),
        ("flush events, applied", f"{report.events:,}, {report.applied:,} (each in 4 stages)"),
        ("facts, model calls", f"{report.facts:,}, {report.model_calls:,}"),
        ("facts edited, sessions reset", f"{report.edits}, {report.resets}"),
        ("dead letters, unexplained", f"{report.dead_letters}, {report.unexplained}"),
        ("stuck after they were retried", f"{report.stuck}"),
        (
            "nothing due after",
            f"{report.settled_seconds:.1f} s; after the retry {report.retried_seconds:.1f} s",
        ),
        ("longest put", f"{report.longest_put:.2f} s; with waiting for Postgres {report.longest_wait:.2f} s"),
        (
            "p99 of puts, calm, model away, calm",
            f"{before:.1f}, {report.put_p99_outage_ms:.1f}, {after:.1f} ms; ratio {report.put_p99_ratio:.2f}",
        ),
        ("ended by themselves", _ended(report.ended_by_themselves)),
        ("strandline verify", report.verified),
        ("machine", ", ".join(f"{name} {value}" for name, value in report.machine.items())),
    ]
    width = max(len(name) for name, _value in figures)
    return [f"{name.ljust(width)}  {value}" for name, value in figures]


def _verdict(report: Report) -> list[str]:
    violations = [*report.violations, *report.late]
    if not violations:
        return ["no violation"]
    repeated = Counter(violations)
    lines = [sentence + (f" ({count} times)" if count > 1 else "") for sentence, count in repeated.items()]
    return [f"{len(lines)} violation{'s' if len(lines) > 1 else ''}:", *(f"- {line}" for line in lines)]


def _ended(by_name: dict[str, list[int]]) -> str:
    return ", ".join(f"{name} ({len(codes)})" for name, codes in by_name.items()) or "none"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"
