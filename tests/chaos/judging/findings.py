"""From what was seen to figures: recoveries by kind, puts, processes that ended by themselves.

Each function fills its part of a report, and gives back what is violated, as sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.chaos.faults.faults import BROKER, POSTGRES
from tests.chaos.judging.journal import Ack
from tests.chaos.judging.observer import Seen
from tests.chaos.judging.recoveries import Recovery
from tests.chaos.judging.report import BOUNDS, Away, FaultRow, Recovered, Report
from tests.chaos.plan import KINDS, Kind, PlannedFault
from tests.chaos.stack import Stack

# A process that finds a server away may end, and has to do so soon.
ENDS_WITHIN_SECONDS = 15.0


def fill_recoveries(
    report: Report, plan: Sequence[PlannedFault], recoveries: Sequence[Recovery], began: float
) -> list[str]:
    """Recoveries, each alone and the longest by kind; gives back those that never came.

    Those that took too long are named in the report, apart: how long depends on the machine as well.
    """
    report.recoveries = [
        Recovered(
            one.number,
            one.kind,
            tuple(one.needs),
            round(one.at - began, 2),
            one.seconds,
            one.raw_seconds,
            _lanes_of([one]),
            _is_of_replays(one),
        )
        for one in recoveries
    ]
    live = [one for one in recoveries if not _is_of_replays(one)]
    for kind in KINDS:
        count = sum(fault.kind == kind for fault in plan)
        report.faults.append(_row(kind, count, [one for one in live if one.kind == kind]))
    report.late = list(_late(live))
    replayed = [one for one in recoveries if _is_of_replays(one)]
    report.replayed_lanes = _lanes_of(replayed) or 0
    report.replayed_lanes_longest = max((one.seconds for one in replayed if one.seconds), default=0.0)
    return [
        f"Fault {one.number} ({one.kind}) was never recovered from."
        for one in recoveries
        if one.seconds is None
    ]


def fill_puts(report: Report, seen: Seen, stack: Stack, *, began: float, calm: float) -> None:
    """How long puts took: while the model was away against the times around it, and at the longest."""
    times = [_milliseconds(seen.acks, began + n * calm, began + (n + 1) * calm) for n in range(3)]
    if all(times):
        before, report.put_p99_outage_ms, after = map(_p99, times)
        report.put_p99_calm_ms = (before, after)
        report.put_p99_ratio = report.put_p99_outage_ms / max(before, after)
    away = stack.timeline.named(POSTGRES)
    with_postgres = [
        ack.took
        for ack in seen.acks
        if all(ack.at < gone.begin or ack.at - ack.took > gone.end for gone in away)
    ]
    report.longest_put = max(with_postgres, default=0.0)
    report.longest_wait = max((ack.waited for ack in seen.acks), default=0.0)
    report.reads = len(seen.reads)


def fill_away(report: Report, stack: Stack, began: float, patience: float = 1.0) -> list[str]:
    """When what was away, and who ended by itself; names whoever had no reason to."""
    report.away = [
        Away(one.name, round(one.begin - began, 2), round(one.end - began, 2))
        for one in stack.timeline.intervals
        if one.end < float("inf")
    ]
    servers = stack.timeline.named(POSTGRES, BROKER)
    unexplained = []
    for child in stack.children:
        for life in child.ended_by_itself:
            report.ended_by_themselves.setdefault(child.name, []).append(life.code)
            if not any(
                gone.begin <= life.end and gone.end >= life.end - patience * ENDS_WITHIN_SECONDS
                for gone in servers
            ):
                unexplained.append(f"{child.name} ended by itself with {life.code}, and no server was away.")
    return unexplained


def _row(kind: Kind, count: int, recoveries: Sequence[Recovery]) -> FaultRow:
    seconds = [one.seconds for one in recoveries if one.seconds is not None]
    raw = [one.raw_seconds for one in recoveries if one.raw_seconds is not None]
    return FaultRow(
        kind,
        count,
        longest=max(seconds, default=None),
        longest_raw=max(raw, default=None),
        bound=BOUNDS.get(kind),
        lanes=_lanes_of(recoveries),
    )


def _lanes_of(recoveries: Sequence[Recovery]) -> int | None:
    """How many lanes the workers concerned held; None where it is not about workers."""
    found = [one.held.found for one in recoveries if one.held is not None]
    return sum(found) if found else None


def _is_of_replays(one: Recovery) -> bool:
    """Whether it is about lanes of replays, which are taken up in their turn, however long that takes."""
    return one.held is not None and one.held.of_replays


def _late(recoveries: Sequence[Recovery]) -> Iterator[str]:
    for one in recoveries:
        bound = BOUNDS.get(one.kind)
        if one.seconds is not None and bound is not None and one.seconds > bound:
            taken = f"recovery took {one.seconds:.1f} s, and {bound:.0f} s are allowed"
            yield f"Fault {one.number} ({one.kind}): {taken}."


def _milliseconds(acks: Sequence[Ack], begin: float, end: float) -> list[float]:
    """What puts of that time took; not a session's first ones, which take more round trips."""
    return sorted(
        1000 * ack.took for ack in acks if begin <= ack.at - ack.took and ack.at < end and ack.number > 2
    )


def _p99(ordered: Sequence[float]) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
