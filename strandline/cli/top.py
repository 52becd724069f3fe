"""``strandline top``: each stage, live, until a key ends it."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Group
from rich.live import Live

from strandline.administration.status import StatusReader, read_rates, read_status
from strandline.cli.command import Output, cli_command
from strandline.cli.servers.targets import Running, opened_servers
from strandline.cli.status import label_of, notes_of, starter_of
from strandline.cli.terminal.interrupts import Interrupts, ends_as_interrupts
from strandline.cli.terminal.output import Row, console, is_rich, styled_text, table
from strandline.schemas.wire.work import PipelineReport, StageReport, StatusReport

# Of the last so many minutes.
RATE_MINUTES = 5
READ_SECONDS = 5.0
HEADERS = ("pipeline", "stage", "due", "held", "dead", "oldest", "done a minute")


@cli_command("top", opened_servers, StatusReport)
def command(running: Running, as_json: bool) -> Output | None:
    """Show each stage live: its due work and the age of that, the rate, and why it waits.

    The numbers are those of `strandline status`. q ends it, p pauses. In a pipe it prints them once.
    """
    if as_json or not (is_rich() and sys.stdin.isatty()):
        report = read_status(running.database, running.settings)
        return Output(report, lines_of_top(report, read_rates(running.database), starter_of(running.servers)))
    try:
        with ends_as_interrupts() as interrupts, keys_read() as wait_for_key:
            _watch(running, interrupts, wait_for_key)
    except KeyboardInterrupt:
        # Ctrl-C is another way to end it.
        return None
    return None


def _watch(running: Running, interrupts: Interrupts, wait_for_key: WaitForKey) -> None:
    lines: list[str] = []
    watch, key, is_paused = StatusReader(running.database, running.settings), "", False
    with Live(console=console(), auto_refresh=False, screen=True) as live:
        while key != "q":
            interrupts.check()
            is_paused ^= key == "p"
            if not is_paused:
                lines = lines_of_top(watch.read(), read_rates(running.database), starter_of(running.servers))
            help_line = f"q: end, p: {'go on; paused' if is_paused else 'pause'}"
            live.update(Group(*map(styled_text, [*lines, "", help_line])), refresh=True)
            key = wait_for_key(READ_SECONDS)


def lines_of_top(report: StatusReport, rates: Mapping[str, Sequence[int]], starter: str) -> list[str]:
    """The stages as a table, and the notes of ``status`` below."""
    rows = [
        _row(pipeline, stage, rates.get(f"{pipeline.generation}/{stage.name}", ()))
        for pipeline in report.pipelines
        for stage in pipeline.stages
    ]
    return [*table(HEADERS, rows), "", *notes_of(report, starter)]


def _row(pipeline: PipelineReport, stage: StageReport, done: Sequence[int]) -> Row:
    rate = sum(done[-RATE_MINUTES:]) / RATE_MINUTES
    counts = (stage.due, stage.leased, stage.dead)
    return (label_of(pipeline), stage.name, *counts, f"{stage.lag_seconds:,.1f} s", f"{rate:,.1f}")


WaitForKey = Callable[[float], str]
"""Waits so many seconds for a key; empty if none came, ``q`` if the terminal is gone."""


@contextmanager
def keys_read() -> Iterator[WaitForKey]:
    """Take each key of the terminal at once; afterwards it is as before."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)

    def wait(seconds: float) -> str:
        ready, _, _ = select.select([number], [], [], seconds)
        return (os.read(number, 1) or b"q").decode("ascii", "ignore") if ready else ""

    try:
        yield wait
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
