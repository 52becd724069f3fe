"""Obstacles to memory, in sentences: for ``strandline status``, and for the page."""

from __future__ import annotations

from strandline.schemas.display.shown_text import quantity, quote, time_text
from strandline.schemas.values.undelivered import Undelivered
from strandline.schemas.wire.work import NamespaceLimitsReport, StageReport, Standing, StatusReport

# Workers chain acts within seconds; the alert StrandlineTrailNotChained has the same bound.
UNCHAINED_SECONDS = 600.0


def lines_of(report: Standing | StatusReport, starter: str) -> list[str]:
    """A sentence for each thing that keeps memory back; ``starter``: the command that starts a worker."""
    lines = [
        f"{name} is registered but unserved: sessions feed it, and no live worker runs it"
        if name in {pipeline.name for pipeline in report.pipelines}
        else f"{name} is not registered: sessions name it, and no worker has brought it yet"
        for name in (report.unserved if report.workers else ())
    ]
    lines += [
        f"{stage.name} waits: {stage.reason}"
        for pipeline in report.pipelines
        for stage in pipeline.stages
        if stage.reason
    ]
    lines += [
        f"{quantity(stage.dead, 'dead letter')} of {stage.name}: {stage.dead_reason} {_retry_of(stage)}"
        for pipeline in report.pipelines
        for stage in pipeline.stages
        if stage.dead
    ]
    lines += [
        f"{pipeline.name} keeps its settings; this process has others ({'; '.join(pipeline.differences)}):"
        f" `strandline replay --new --pipeline {pipeline.name}` derives with them"
        for pipeline in report.pipelines
        if pipeline.differences
    ]
    lines += [
        f"replay {replay.replay_id} of {replay.pipeline}, generation {replay.generation}: {replay.state},"
        f" {replay.counts.get('phase', 'under way')}"
        for replay in report.replays
    ]
    lines += [
        f"{quantity(one.events, 'event')} in {quantity(one.lanes, 'lane')} of {quote(one.namespace)} wait for"
        f" a key ({', '.join(map(quote, one.key_ids))}): {one.reason}"
        for one in report.waiting_for_keys
    ]
    if isinstance(report, StatusReport) and report.waiting is not None:
        lines.append(str(Undelivered(**dict(report.waiting))))
    lines += [waiting_line(limits) for limits in report.limits if limits.waits_until is not None]
    if report.unchained_seconds > UNCHAINED_SECONDS:
        lines.append(
            f"the audit trail is not chained: its oldest act has waited {report.unchained_seconds:,.0f} s"
            " for a worker with a sweep"
        )
    if report.workers and all(worker.no_broker for worker in report.workers):
        lines.append(
            "no worker reaches its broker: their sweeps find due work some seconds later;"
            " `strandline doctor` looks at the broker"
        )
    return lines if report.workers else [*lines, f"no worker is alive; `{starter}` starts one"]


def _retry_of(stage: StageReport) -> str:
    if stage.retry_at is not None:
        return f"The next is retried by itself {time_text(stage.retry_at)}."
    return "Remove the cause, then retry: `strandline dead-letters`."


def waiting_line(limits: NamespaceLimitsReport) -> str:
    """Work that waits for a budget, and until when."""
    why = (
        f"has used up its budget of {limits.waits_for}"
        if any(_is_used_up(limits, budget) for budget in (limits.waits_for or "").split(", "))
        else f"has the rest of its budget of {limits.waits_for} in the hands of workers"
    )
    return (
        f"namespace {limits.namespace} {why}:"
        f" {quantity(limits.due, 'event')}, counted in each stage, {'waits' if limits.due == 1 else 'wait'}"
        f" until {limits.waits_until:%Y-%m-%d %H:%M:%S %Z}"
    )


def _is_used_up(limits: NamespaceLimitsReport, budget: str) -> bool:
    """Whether all of it was used; otherwise workers hold the rest, and return it within a minute."""
    used, limit = getattr(limits, f"{budget}_today", 0), getattr(limits, f"{budget}_per_day", None)
    return limit is not None and used >= limit
