"""``strandline status``: what is due, held, dead and done, and who is there to do it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from strandline.cli.command import Output, cli_command, show
from strandline.cli.limits import read_limits, waiting_line
from strandline.cli.replay import report_of
from strandline.cli.servers.targets import Running, Servers, opened_servers
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import console, is_rich, styled_text
from strandline.pipelines.generations.registry import serving_generations, settings_differing
from strandline.pipelines.replay.records import replays
from strandline.schemas.display.shown_text import quantity, quote, time_text
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.inspection.status import (
    StatusKeys,
    StatusPipelines,
    StatusPipelinesRow,
    StatusTotals,
    StatusWorkers,
    StatusWorkersRow,
    UsedPipelines,
)
from strandline.schemas.sealed.content import names_encrypted
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import pipeline_named
from strandline.schemas.wire.work import (
    CallsReport,
    KeyWaitReport,
    ModelCallsReport,
    PipelineReport,
    StageReport,
    StatusReport,
    WorkerReport,
)

WATCH_SECONDS = 1.0


@cli_command("status", opened_servers, StatusReport)
@click.option("--watch", is_flag=True, help="Refresh every second, until Ctrl-C.")
def command(running: Running, watch: bool, as_json: bool) -> Output | None:
    """Show pipelines, totals and live workers of a database."""
    if not watch:
        return _look(running)
    _watch(running, as_json=as_json)
    return None


def _look(running: Running) -> Output:
    report, starter = read_status(running.database, running.settings), _starter(running.servers)
    return Output(report, _lines(report, starter), picture=lambda: _picture(report, starter))


def _starter(servers: Servers) -> str:
    """The command that starts a worker here: `worker` alone needs a database and a broker that run."""
    return "strandline up" if servers.alone or servers.broker_url is None else "strandline worker"


def read_status(database: Database, settings: Settings) -> StatusReport:
    """The state of the pipeline in this database, from a few statements."""
    dead_after = settings.worker_dead_after_seconds
    live = database.fetch(StatusWorkers(dead_after_seconds=dead_after))
    workers = [_worker(row) for row in live]
    used = {row.pipeline for row in database.fetch(UsedPipelines())}
    differing = settings_differing(serving_generations(database), settings)
    pipelines = [
        _pipeline(
            row, used, _served_stages(row.generation_id, live), differing, _reasons(row.generation_id, live)
        )
        for row in database.fetch(StatusPipelines(dead_after_seconds=dead_after))
    ]
    (totals,) = database.fetch(StatusTotals())
    registered = {pipeline.name for pipeline in pipelines}
    unserved = {pipeline.name for pipeline in pipelines if pipeline.used and not pipeline.served}
    return StatusReport.of(
        totals,
        pipelines=pipelines,
        model_calls=_calls(json.loads(totals.calls_by_model)),
        workers=workers,
        unserved=sorted(unserved | (used - registered)),
        replays=[report_of(replay) for replay in replays(database, unfinished=True)],
        limits=read_limits(database, settings),
        waiting_for_keys=_waiting_for_keys(database),
    )


def _waiting_for_keys(database: Database) -> list[KeyWaitReport]:
    return [
        KeyWaitReport.of(row, key_ids=row.kek_ids)
        for row in database.fetch(StatusKeys())
        if row.reason.startswith(names_encrypted(row.namespace))
    ]


def _served_stages(generation: int, live: list[StatusWorkersRow]) -> set[str]:
    """The stages that live workers run of this generation; one that cannot be built somewhere is left out."""
    return {stage for worker in live if generation not in worker.unbuildable for stage in worker.stages}


def _reasons(generation: int, live: list[StatusWorkersRow]) -> dict[str, str]:
    """Why work of this generation waits, by stage, as live workers say."""
    reasons: dict[str, str] = {}
    for worker in live:
        reasons |= json.loads(worker.condition).get("reasons", {})
    prefix = f"{generation}/"
    return {key.removeprefix(prefix): reason for key, reason in reasons.items() if key.startswith(prefix)}


def _calls(by_model: list[dict[str, Any]]) -> CallsReport:
    costs = [item["cost_usd"] for item in by_model if item["cost_usd"] is not None]
    return CallsReport(
        calls=sum(item["calls"] for item in by_model),
        input_tokens=sum(item["input_tokens"] for item in by_model),
        output_tokens=sum(item["output_tokens"] for item in by_model),
        cost_usd=sum(costs) if costs else None,
        by_model=[ModelCallsReport(**item) for item in by_model],
    )


def _pipeline(
    row: StatusPipelinesRow,
    used: set[str],
    served: set[str],
    differing: Mapping[str, list[str]],
    reasons: Mapping[str, str],
) -> PipelineReport:
    counts = (row.due, row.leased, row.dead)
    due, leased, dead = ({item["stage"]: item for item in json.loads(text)} for text in counts)
    own = pipeline_named(row.pipeline).stages
    names = list(dict.fromkeys([*own, *due, *leased, *dead]))
    stages = [_stage(stage, due, leased, dead, reasons.get(stage)) for stage in names]
    return PipelineReport(
        name=row.pipeline,
        generation=row.generation_id,
        state=row.state,
        due=sum(stage.due for stage in stages),
        leased=sum(stage.leased for stage in stages),
        dead=sum(stage.dead for stage in stages),
        lag_seconds=max((stage.lag_seconds for stage in stages), default=0.0),
        used=row.pipeline in used,
        served=set(names) <= served,
        differences=differing.get(row.pipeline, []) if row.state == "serving" else [],
        stages=stages,
    )


def _stage(
    name: str,
    due: Mapping[str, Mapping[str, Any]],
    leased: Mapping[str, Mapping[str, Any]],
    dead: Mapping[str, Mapping[str, Any]],
    reason: str | None,
) -> StageReport:
    return StageReport(
        name=name,
        due=due.get(name, {}).get("due", 0),
        leased=leased.get(name, {}).get("leased", 0),
        dead=dead.get(name, {}).get("dead", 0),
        lag_seconds=round(max(0.0, float(due.get(name, {}).get("lag_seconds", 0.0))), 3),
        reason=reason if name in due else None,
        retry_at=dead.get(name, {}).get("retry_at"),
    )


def _worker(row: StatusWorkersRow) -> WorkerReport:
    condition = json.loads(row.condition)
    return WorkerReport(
        worker_id=str(row.worker_id),
        host=row.host,
        pid=row.pid,
        version=row.version,
        stages=row.stages,
        started_at=row.started_at.isoformat(),
        beat_seconds_ago=round(max(0.0, float(row.beat_seconds_ago)), 3),
        dropped_hints=condition.get("dropped_hints", 0),
        lost_threads=condition.get("lost_threads", 0),
        no_broker=condition.get("no_broker"),
    )


def _watch(running: Running, *, as_json: bool) -> None:
    try:
        with ends_as_interrupts() as interrupts:
            if as_json or not is_rich():
                while True:
                    show(_look(running), as_json=as_json)
                    interrupts.pause(WATCH_SECONDS)
            starter = _starter(running.servers)
            with Live(console=console(), auto_refresh=False) as live:
                while True:
                    report = read_status(running.database, running.settings)
                    live.update(_picture(report, starter), refresh=True)
                    interrupts.pause(WATCH_SECONDS)
    except KeyboardInterrupt:
        # Ctrl-C is how watching ends.
        return


def _picture(report: StatusReport, starter: str) -> RenderableType:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("pipeline", style="bold")
    for title in ("due", "held", "dead", "lag"):
        table.add_column(title, justify="right")
    table.add_column("stages")
    for pipeline in report.pipelines:
        name = _label(pipeline)
        dead = styled_text(str(pipeline.dead), style="red" if pipeline.dead else "")
        stages = ", ".join(
            f"{stage.name} {stage.due}" if stage.due else stage.name for stage in pipeline.stages
        )
        table.add_row(
            styled_text(name),
            str(pipeline.due),
            str(pipeline.leased),
            dead,
            f"{pipeline.lag_seconds:.1f} s",
            styled_text(stages),
        )
    notes = [styled_text(line, style="yellow") for line in _warnings(report, starter)]
    return Group(
        table,
        styled_text(),
        styled_text(_totals(report)),
        *(styled_text(line) for line in _worker_lines(report)),
        *notes,
    )


def _label(pipeline: PipelineReport) -> str:
    """The pipeline's name; of a generation that does not serve, also its number and its state."""
    if pipeline.state == "serving":
        return pipeline.name
    return f"{pipeline.name} {pipeline.generation} ({pipeline.state})"


def _lines(report: StatusReport, starter: str) -> list[str]:
    lines = [
        f"{_label(pipeline)}: due {pipeline.due}, held {pipeline.leased}, dead {pipeline.dead},"
        f" lag {pipeline.lag_seconds:.1f} s"
        for pipeline in report.pipelines
    ]
    return [*lines, _totals(report), *_worker_lines(report), *_warnings(report, starter)]


def _totals(report: StatusReport) -> str:
    calls = report.model_calls
    cost = "" if calls.cost_usd is None else f", ${calls.cost_usd:,.2f}"
    return (
        f"{quantity(report.sessions, 'session')}, {quantity(report.messages, 'message')},"
        f" {quantity(report.events, 'flush event')}, {quantity(report.facts, 'fact')},"
        f" {quantity(calls.calls, 'model call')}"
        f" ({quantity(calls.input_tokens + calls.output_tokens, 'token')}{cost})"
    )


def _worker_lines(report: StatusReport) -> list[str]:
    return [
        f"worker {worker.pid} on {worker.host}: {', '.join(worker.stages)}; heartbeat"
        f" {worker.beat_seconds_ago:.1f} s ago"
        + (f"; dropped {worker.dropped_hints:,} unreadable hints" if worker.dropped_hints else "")
        + (f"; {quantity(worker.lost_threads, 'thread')} lost in blocks" if worker.lost_threads else "")
        + (f"; works without its broker ({worker.no_broker})" if worker.no_broker else "")
        for worker in report.workers
    ]


def _warnings(report: StatusReport, starter: str) -> list[str]:
    lines = [
        f"{name} is registered but unserved: sessions feed it, and no live worker runs it"
        if name in {pipeline.name for pipeline in report.pipelines}
        else f"{name} is not registered: sessions name it, and no worker has brought it yet"
        for name in report.unserved
    ]
    lines += [
        f"{stage.name} waits: {stage.reason}"
        for pipeline in report.pipelines
        for stage in pipeline.stages
        if stage.reason
    ]
    lines += [
        f"{quantity(stage.dead, 'dead letter')} of {stage.name}; the next is retried by itself"
        f" {time_text(stage.retry_at)}"
        for pipeline in report.pipelines
        for stage in pipeline.stages
        if stage.retry_at is not None
    ]
    lines += [
        f"{pipeline.name} goes on as it was made; the settings differ ({'; '.join(pipeline.differences)}):"
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
    lines += [waiting_line(limits) for limits in report.limits if limits.waits_until is not None]
    if report.workers and all(worker.no_broker for worker in report.workers):
        lines.append(
            "no worker reaches its broker: their sweeps find due work some seconds later;"
            " `strandline doctor` looks at the broker"
        )
    return lines if report.workers else [*lines, f"no worker is alive; `{starter}` starts one"]
