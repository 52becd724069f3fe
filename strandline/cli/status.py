"""``strandline status``: due, held, dead and done work, and the workers there."""

from __future__ import annotations

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table

from strandline.administration.attention import lines_of
from strandline.administration.status import StatusReader
from strandline.cli.command import Output, cli_command, show
from strandline.cli.servers.targets import Running, Servers, opened_servers
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import console, is_rich, styled_text
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.wire.work import PipelineReport, StatusReport

WATCH_SECONDS = 1.0


@cli_command("status", opened_servers, StatusReport)
@click.option(
    "--watch", is_flag=True, help="Refresh every second, until Ctrl-C; totals of large tables less often."
)
def command(running: Running, watch: bool, as_json: bool) -> Output | None:
    """Show pipelines, totals and live workers of a database."""
    if not watch:
        return _look(running, StatusReader(running.database, running.settings))
    _watch(running, as_json=as_json)
    return None


def _look(running: Running, watch: StatusReader) -> Output:
    report, starter = watch.read(), starter_of(running.servers)
    return Output(report, _lines(report, starter), picture=lambda: _picture(report, starter))


def starter_of(servers: Servers) -> str:
    """The command that starts a worker here."""
    return "strandline up" if servers.alone or servers.broker_url is None else "strandline worker"


def _watch(running: Running, *, as_json: bool) -> None:
    watch = StatusReader(running.database, running.settings)
    try:
        with ends_as_interrupts() as interrupts:
            if as_json or not is_rich():
                while True:
                    show(_look(running, watch), as_json=as_json)
                    interrupts.pause(WATCH_SECONDS)
            starter = starter_of(running.servers)
            with Live(console=console(), auto_refresh=False) as live:
                while True:
                    live.update(_picture(watch.read(), starter), refresh=True)
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
        name = label_of(pipeline)
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
    notes = [styled_text(line, style="yellow") for line in lines_of(report, starter)]
    return Group(
        table,
        styled_text(),
        styled_text(_totals(report)),
        *(styled_text(line) for line in _worker_lines(report)),
        *notes,
    )


def label_of(pipeline: PipelineReport) -> str:
    """A pipeline's name, with its generation unless it serves."""
    if pipeline.state == "serving":
        return pipeline.name
    return f"{pipeline.name} {pipeline.generation} ({pipeline.state})"


def _lines(report: StatusReport, starter: str) -> list[str]:
    lines = [
        f"{label_of(pipeline)}: due {pipeline.due}, held {pipeline.leased}, dead {pipeline.dead},"
        f" lag {pipeline.lag_seconds:.1f} s"
        for pipeline in report.pipelines
    ]
    return [*lines, *notes_of(report, starter)]


def notes_of(report: StatusReport, starter: str) -> list[str]:
    """Totals, the workers, and what keeps memory back."""
    return [_totals(report), *_worker_lines(report), *lines_of(report, starter)]


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
        + (f"; dropped {worker.dropped_hints:,} foreign or unreadable hints" if worker.dropped_hints else "")
        + (f"; {quantity(worker.lost_threads, 'thread')} lost in blocks" if worker.lost_threads else "")
        + (f"; works without its broker ({worker.no_broker})" if worker.no_broker else "")
        for worker in report.workers
    ]
