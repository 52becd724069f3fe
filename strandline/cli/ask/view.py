"""Shows what a read gave: in colours on a terminal, in plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from strandline.cli.ask.bar import MAX_BAR_CELLS, Part, divide_cells
from strandline.cli.ask.reports import (
    AskReport,
    GivenFactReport,
    GivenMessageReport,
    GivenSummaryReport,
    RangeReport,
    SourceReport,
)
from strandline.cli.servers.reads import coverage_lines, omission_lines
from strandline.cli.terminal.output import say, styled_text
from strandline.pipelines.inspect.rows import excerpt
from strandline.schemas.display.shown_text import quantity, shown_lines

FULL_CELL = "█"
INDENT = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One line, whatever its text holds; wrapped under its own beginning on a terminal."""

    text: str = ""
    style: str = ""
    indent: int = 0


def show_answer(console: Console, report: AskReport) -> None:
    """Print the budget, each piece with its source, what was left out, and how far memory is."""
    paper = _Paper(console)
    paper.print_lines(_title_lines(report))
    paper.print_budget(budget_parts(report))
    for section in (_fact_lines, _summary_lines, _message_lines, _state_lines):
        paper.print_lines(section(report))


def budget_parts(report: AskReport) -> list[Part]:
    """What the read used its limit for, and what is free; parts that are empty are left out."""
    use = report.token_use
    beside = sum(hit.is_beside for hit in report.hits)
    messages = f"{len(report.hits):,} found"
    if beside:
        messages += f", {beside:,} of them beside one that matches"
    through = "" if report.summary is None else f"through seq {report.summary.through_seq}"
    parts = [
        Part("head", "h", "blue", use.head, _range(report.head)),
        Part("window", "w", "cyan", use.window, _range(report.window)),
        Part("tail", "t", "magenta", use.tail, _range(report.tail)),
        Part("facts", "f", "green", use.facts, quantity(len(report.facts), "fact")),
        Part("summary", "s", "yellow", use.summary, through),
        Part("messages", "m", "bright_green", use.messages, messages),
        Part("other", "o", "white", use.other, "tags, and what other blocks show"),
        Part("free", ".", "bright_black", use.free, f"of {report.token_limit:,}"),
    ]
    return [part for part in parts if part.tokens]


def _title_lines(report: AskReport) -> Iterator[Line]:
    whose = "" if report.user_id is None else f" of {report.user_id}"
    size = f"{report.tokens:,} of {report.token_limit:,} tokens"
    over = ", over budget" if report.over_budget else ""
    yield Line(report.question.strip() or "(an empty question)", "bold")
    yield Line(f"session {report.session_id}{whose}: {size}{over}")
    yield Line()


def _range(messages: RangeReport | None) -> str:
    if messages is None:
        return ""
    count = quantity(messages.messages, "message")
    if messages.from_seq == messages.through_seq:
        return f"{count}, seq {messages.from_seq}"
    return f"{count}, seq {messages.from_seq} to {messages.through_seq}"


def _fact_lines(report: AskReport) -> Iterator[Line]:
    if report.facts:
        yield from _heading(f"facts: {len(report.facts):,}")
    for number, fact in enumerate(report.facts, start=1):
        yield Line(f"[{number}] {excerpt(fact.text)}")
        yield Line(_fact_source(fact), "dim", INDENT)


def _summary_lines(report: AskReport) -> Iterator[Line]:
    if report.summary is None:
        return
    yield from _heading("summary")
    first, *others = shown_lines(report.summary.text)
    yield Line(f"[{len(report.facts) + 1}] {first}")
    yield from (Line(text, indent=INDENT) for text in others)
    yield Line(_summary_source(report.session_id, report.summary), "dim", INDENT)


def _message_lines(report: AskReport) -> Iterator[Line]:
    if report.hits:
        yield from _heading(f"messages found: {len(report.hits):,}, in the order in which they were said")
    first = len(report.facts) + (report.summary is not None) + 1
    for number, hit in enumerate(report.hits, start=first):
        yield Line(f"[{number}] {hit.said_by}: {excerpt(hit.text)}")
        yield Line(_message_source(hit), "dim", INDENT)


def _state_lines(report: AskReport) -> Iterator[Line]:
    yield Line()
    if not (report.facts or report.summary or report.hits):
        yield Line("no piece of memory was given")
    if not report.question.strip():
        yield Line("an empty question searches for nothing, so memory gives its newest facts and the summary")
    yield from (Line(text, "yellow") for text in omission_lines(report))
    yield from (Line(text) for text in coverage_lines(report))
    if not report.covered_through:
        yield Line("the session has no pipelines, so no memory is derived from it")
    elif report.caught_up:
        yield Line("caught up: memory covers all flushed messages", "green")


def _heading(text: str) -> Iterator[Line]:
    yield Line()
    yield Line(text, "bold")


def _fact_source(fact: GivenFactReport) -> str:
    places = "; ".join(map(_place, fact.sources)) or "added by a person"
    score = f"score {fact.score:.3f}" if fact.score else "given because it is new"
    return f"{places}, {_at(fact.said_at)}, {score}, {quantity(fact.tokens, 'token')}"


def _summary_source(session_id: str, summary: GivenSummaryReport) -> str:
    cut = ", shortened" if summary.is_cut else ""
    return f"{session_id} through seq {summary.through_seq}, {quantity(summary.tokens, 'token')}{cut}"


def _message_source(hit: GivenMessageReport) -> str:
    score = f"score {hit.score:.3f}"
    why = f"beside a message that matches ({score})" if hit.is_beside else score
    place = f"{hit.session_id} seq {hit.seq}"
    return f"{place}, {_at(hit.created_at)}, {why}, {quantity(hit.tokens, 'token')}"


def _place(source: SourceReport) -> str:
    return f"{source.session_id} seq {', '.join(map(str, source.seqs))}"


def _at(moment: datetime | None) -> str:
    return "at an unknown time" if moment is None else moment.isoformat(sep=" ", timespec="minutes")


class _Paper:
    """Prints to one console: in colours if it is a terminal that can show them, else in plain lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._is_coloured = console.is_terminal and console.encoding.startswith("utf")

    def print_lines(self, lines: Iterable[Line]) -> None:
        for line in lines:
            if self._is_coloured:
                indent = min(line.indent, self._console.width // 4)
                text = styled_text(line.text or " ", line.style, overflow="fold")
                self._console.print(Padding(text, (0, 0, 0, indent), expand=False))
            else:
                say(f"{'':{line.indent}}{line.text}")

    def print_budget(self, parts: Sequence[Part]) -> None:
        """The bar, and a line for each of its parts; letters stand for colours."""
        cells = divide_cells([part.tokens for part in parts], min(MAX_BAR_CELLS, self._console.width))
        runs = [(part, count) for part, count in zip(parts, cells, strict=True) if count]
        if self._is_coloured:
            bar = (styled_text(FULL_CELL * count, part.style) for part, count in runs)
            self._console.print(Text.assemble(*bar), soft_wrap=True)
        else:
            say("".join(part.letter * count for part, count in runs))
        for part in parts:
            self._print_part(part, f" {part.name:8} {part.tokens:>7,}  {part.note}".rstrip())

    def _print_part(self, part: Part, text: str) -> None:
        if self._is_coloured:
            mark = styled_text(FULL_CELL, part.style)
            self._console.print(Text.assemble(mark, styled_text(text), overflow="fold"))
        else:
            say(part.letter + text)
