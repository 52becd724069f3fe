"""The demo while it runs: a live picture on a terminal, one line per event elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from strandline.cli.demo.observer import Look, SeenEvent
from strandline.cli.terminal.output import styled_text
from strandline.schemas.display.shown_text import quantity

FRAMES_PER_SECOND = 12
EVENTS_SHOWN = 7
SUMMARY_CHARACTERS = 260
PLAIN_STEPS = 5


class View(Protocol):
    """Shows the progress of the demo; called from several threads."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def put(self, number: int, milliseconds: float) -> None: ...

    def look(self, seen: Look) -> None: ...

    def note(self, line: str) -> None: ...


class PlainView:
    """A line per flush event and per fifth of the play, without control codes."""

    def __init__(self, console: Console, *, total: int, pipelines: Sequence[str]) -> None:
        self._console = console
        self._total = total
        self._pipelines = pipelines
        self._lock = threading.Lock()
        self._flushed = 0
        self._consumed: set[object] = set()

    def start(self) -> None:
        return

    def stop(self) -> None:
        return

    def put(self, number: int, milliseconds: float) -> None:
        before = (number - 1) * PLAIN_STEPS // self._total
        if number * PLAIN_STEPS // self._total > before:
            self._print(f"put {number} of {self._total} messages (the last one in {milliseconds:.1f} ms)")

    def look(self, seen: Look) -> None:
        for number, event in enumerate(seen.events[self._flushed :], start=self._flushed + 1):
            newest = number == len(seen.events)
            window = f"; the window now holds {seen.tokens} of {seen.mark}" if newest else ""
            self._print(
                f"flush event {number} ({event.cause}): messages {event.from_seq}-{event.through_seq},"
                f" {quantity(event.tokens, 'token')}{window}"
            )
        self._flushed = len(seen.events)
        for number, event in enumerate(seen.events, start=1):
            if event.event_id not in self._consumed and event.is_consumed_by(self._pipelines):
                self._consumed.add(event.event_id)
                slowest = max(event.consumed.values(), default=0.0)
                facts = quantity(seen.facts, "fact")
                self._print(f"flush event {number} consumed after {slowest:.2f} s; {facts} known")

    def note(self, line: str) -> None:
        self._print(line)

    def _print(self, line: str) -> None:
        with self._lock:
            self._console.print(styled_text(line))


class LiveView:
    """A view of the session that is redrawn a few times a second, and stays when the demo is over."""

    def __init__(self, console: Console, *, total: int, pipelines: Sequence[str]) -> None:
        self._total = total
        self._pipelines = pipelines
        self._seen = Look()
        self._put = 0
        self._milliseconds = 0.0
        self._live = Live(
            console=console,
            get_renderable=self._picture,
            refresh_per_second=FRAMES_PER_SECOND,
            vertical_overflow="crop",
        )

    def start(self) -> None:
        self._live.start(refresh=True)

    def stop(self) -> None:
        self._live.stop()

    def put(self, number: int, milliseconds: float) -> None:
        self._put, self._milliseconds = number, milliseconds

    def look(self, seen: Look) -> None:
        self._seen = seen

    def note(self, line: str) -> None:
        self._live.console.print(styled_text(f"  ! {line}", style="yellow"))

    def _picture(self) -> RenderableType:
        seen = self._seen
        parts: list[RenderableType] = [_bars(seen, self._put, self._total, self._milliseconds), styled_text()]
        if seen.events:
            parts += [_events(seen, self._pipelines), styled_text()]
        parts.append(_facts(seen))
        if seen.summary:
            parts.append(_summary(seen))
        return Padding(Group(*parts), (1, 2))


def _bars(seen: Look, put: int, total: int, milliseconds: float) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", width=8)
    grid.add_column(width=36)
    grid.add_column(justify="right", width=24)
    grid.add_column(style="dim")
    full = seen.mark or 1
    grid.add_row(
        "played", ProgressBar(total, put), f"{put:,} / {total:,} messages", f"put {milliseconds:.1f} ms"
    )
    grid.add_row(
        "window",
        ProgressBar(full, min(seen.tokens, full), complete_style="cyan", finished_style="cyan"),
        f"{seen.tokens:,} / {seen.mark:,} tokens",
        "flushes above the mark",
    )
    return grid


def _events(seen: Look, pipelines: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("flush", justify="right")
    table.add_column("cause")
    table.add_column("messages")
    table.add_column("tokens", justify="right")
    for pipeline in pipelines:
        table.add_column(f"{pipeline} {seen.consumed_by(pipeline)}/{len(seen.events)}", justify="right")
    first = max(0, len(seen.events) - EVENTS_SHOWN)
    for number, event in enumerate(seen.events[first:], start=first + 1):
        states = [_state(event, pipeline) for pipeline in pipelines]
        span = f"{event.from_seq}–{event.through_seq}"
        table.add_row(str(number), event.cause, span, f"{event.tokens:,}", *states)
    return table


def _state(event: SeenEvent, pipeline: str) -> Text:
    if pipeline not in event.consumed:
        return styled_text("…", style="yellow")
    if event.outcomes[pipeline] != "applied":
        return styled_text(event.outcomes[pipeline], style="red")
    return styled_text(f"{event.consumed[pipeline]:.2f} s", style="green")


def _facts(seen: Look) -> RenderableType:
    latest = styled_text("  the latest:" if seen.facts else "  so far", "dim")
    title = Text.assemble(styled_text(quantity(seen.facts, "fact"), "bold"), latest)
    lines = [styled_text(f"  {fact}", no_wrap=True, overflow="ellipsis") for fact in seen.latest_facts]
    return Group(title, *lines)


def _summary(seen: Look) -> RenderableType:
    through = styled_text(f"  through message {seen.summary_through}", "dim")
    title = Text.assemble(styled_text("summary", "bold"), through)
    text = " ".join(seen.summary.split())
    begins = text if len(text) <= SUMMARY_CHARACTERS else text[:SUMMARY_CHARACTERS].rstrip() + " …"
    return Group(styled_text(), title, Padding(styled_text(begins), (0, 0, 0, 2)))
