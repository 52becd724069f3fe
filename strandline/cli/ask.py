"""``strandline ask``: memory's material for a question, its sources, and the omissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Literal

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.memories import (
    OpenedSession,
    ReadState,
    coverage_lines,
    omission_lines,
    opened_session,
    read,
    token_limit_option,
)
from strandline.cli.terminal.output import console, say, styled_text
from strandline.pipelines.inspect.explain_fact import excerpt
from strandline.pipelines.transcript import speaker
from strandline.producers.reading.context import GivenMessage, MemoryContext
from strandline.schemas.display.shown_text import quantity, shown_lines
from strandline.schemas.values.message import Message
from strandline.schemas.wire.contexts import GivenFactOut, GivenSummaryOut, SourceOut
from strandline.schemas.wire.report import Report


class GivenMessageReport(Report):
    """A message in the prompt that the search found; one with ``is_beside`` neighbours a match, and has its
    score.
    """

    id: str
    session_id: str
    seq: int
    created_at: datetime | None
    said_by: str
    text: str
    score: float
    similarity: float
    tokens: int
    is_beside: bool


class CitationReport(Report, from_attributes=True):
    """A piece of memory in the prompt; ``id`` and ``sources`` are empty for a summary."""

    number: int
    kind: Literal["fact", "message", "summary"]
    text: str
    id: str
    sources: list[SourceOut]
    at: datetime | None
    score: float


class TokenUseReport(Report):
    """The tokens of the read by use; with ``free`` they add up to the limit, or exceed it."""

    head: int
    window: int
    tail: int
    facts: int
    summary: int
    messages: int
    other: int
    free: int


class RangeReport(Report):
    """Messages of the session that are shown as they were put."""

    messages: int
    from_seq: int
    through_seq: int


class AskReport(ReadState):
    """``strandline ask``: the result of a read with the question, and its sources."""

    question: str
    token_use: TokenUseReport
    head: RangeReport | None
    window: RangeReport | None
    tail: RangeReport | None
    facts: list[GivenFactOut]
    summary: GivenSummaryOut | None
    hits: list[GivenMessageReport]
    citations: list[CitationReport]


def report_answer(question: str, context: MemoryContext, state: ReadState) -> AskReport:
    """The read's result as a report."""
    summary = context.summary
    return AskReport(
        **dict(state),
        question=question,
        token_use=TokenUseReport.of(context.token_use()),
        head=_range(context.head),
        window=_range(context.window),
        tail=_range(context.tail),
        facts=[GivenFactOut.model_validate(fact) for fact in context.facts],
        summary=None if summary is None else GivenSummaryOut.model_validate(summary),
        hits=[_message(hit) for hit in context.hits],
        citations=[CitationReport.model_validate(citation) for citation in context.citations()],
    )


def _range(messages: Sequence[Message]) -> RangeReport | None:
    if not messages:
        return None
    return RangeReport(
        messages=len(messages), from_seq=messages[0].seq or 0, through_seq=messages[-1].seq or 0
    )


def _message(hit: GivenMessage) -> GivenMessageReport:
    message = hit.message
    return GivenMessageReport.of(
        hit,
        id=message.id or "",
        seq=message.seq or 0,
        created_at=message.created_at,
        said_by=speaker(message),
        text=message.text,
    )


MAX_BAR_CELLS = 64
FULL_CELL = "█"
INDENT = 4


@dataclass(frozen=True, slots=True)
class Line:
    """One line, whatever its text holds; wrapped under its own beginning on a terminal."""

    text: str = ""
    style: str = ""
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the bar: a letter draws it where there are no colours; ``note`` explains it."""

    name: str
    letter: str
    style: str
    tokens: int
    note: str = ""


def show_answer(console: Console, report: AskReport) -> None:
    """Print the budget, each piece with its source, the omissions, and memory's progress."""
    paper = _Paper(console)
    paper.print_lines(_title_lines(report))
    paper.print_budget(budget_parts(report))
    for section in (_fact_lines, _summary_lines, _message_lines, _state_lines):
        paper.print_lines(section(report))


def budget_parts(report: AskReport) -> list[Part]:
    """The uses of the read's limit, and the free part; empty parts are left out."""
    use = report.token_use
    beside = sum(hit.is_beside for hit in report.hits)
    messages = f"{len(report.hits):,} found"
    if beside:
        messages += f", {beside:,} of them beside one that matches"
    through = "" if report.summary is None else f"through seq {report.summary.through_seq}"
    parts = [
        Part("head", "h", "blue", use.head, _range_text(report.head)),
        Part("window", "w", "cyan", use.window, _range_text(report.window)),
        Part("tail", "t", "magenta", use.tail, _range_text(report.tail)),
        Part("facts", "f", "green", use.facts, quantity(len(report.facts), "fact")),
        Part("summary", "s", "yellow", use.summary, through),
        Part("messages", "m", "bright_green", use.messages, messages),
        Part("other", "o", "white", use.other, "tags, and what other blocks show"),
        Part("free", ".", "bright_black", use.free, f"of {report.token_limit:,}"),
    ]
    return [part for part in parts if part.tokens]


def divide_cells(amounts: Sequence[int], cells: int) -> list[int]:
    """The cells of a bar for each amount, ``cells`` together: each edge is rounded by itself."""
    total = sum(amounts) or 1
    edges = [0, *(round(cells * amount / total) for amount in accumulate(amounts))]
    return [after - before for before, after in pairwise(edges)]


def _title_lines(report: AskReport) -> Iterator[Line]:
    whose = "" if report.user_id is None else f" of {report.user_id}"
    size = f"{report.tokens:,} of {report.token_limit:,} tokens"
    over = ", over budget" if report.over_budget else ""
    yield Line(report.question.strip() or "(an empty question)", "bold")
    yield Line(f"session {report.session_id}{whose}: {size}{over}")
    yield Line()


def _range_text(messages: RangeReport | None) -> str:
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
        places = [f"{source.session_id} seq {', '.join(map(str, source.seqs))}" for source in fact.sources]
        score = f"score {fact.score:.3f}" if fact.score else "given because it is new"
        origin = f"{'; '.join(places) or 'added by a person'}, {_at(fact.said_at)}"
        yield Line(f"[{number}] {excerpt(fact.text)}")
        yield Line(f"{origin}, {score}, {quantity(fact.tokens, 'token')}, id {fact.fact_id}", "dim", INDENT)


def _summary_lines(report: AskReport) -> Iterator[Line]:
    summary = report.summary
    if summary is None:
        return
    yield from _heading("summary")
    first, *others = shown_lines(summary.text)
    yield Line(f"[{len(report.facts) + 1}] {first}")
    yield from (Line(text, indent=INDENT) for text in others)
    size = f"{quantity(summary.tokens, 'token')}{', shortened' if summary.is_cut else ''}"
    yield Line(f"{report.session_id} through seq {summary.through_seq}, {size}", "dim", INDENT)


def _message_lines(report: AskReport) -> Iterator[Line]:
    if report.hits:
        yield from _heading(f"messages found: {len(report.hits):,}, in the order in which they were said")
    first = len(report.facts) + (report.summary is not None) + 1
    for number, hit in enumerate(report.hits, start=first):
        score = f"score {hit.score:.3f}"
        why = f"beside a message that matches ({score})" if hit.is_beside else score
        place = f"{hit.session_id} seq {hit.seq}, {_at(hit.created_at)}"
        yield Line(f"[{number}] {hit.said_by}: {excerpt(hit.text)}")
        yield Line(f"{place}, {why}, {quantity(hit.tokens, 'token')}, id {hit.id}", "dim", INDENT)


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


def _at(moment: datetime | None) -> str:
    return "at an unknown time" if moment is None else moment.isoformat(sep=" ", timespec="minutes")


class _Paper:
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
        cells = divide_cells([part.tokens for part in parts], min(MAX_BAR_CELLS, self._console.width))
        runs = [(part, count) for part, count in zip(parts, cells, strict=True) if count]
        texts = [f" {part.name:8} {part.tokens:>7,}  {part.note}".rstrip() for part in parts]
        if not self._is_coloured:
            say("".join(part.letter * count for part, count in runs))
            say(*(part.letter + text for part, text in zip(parts, texts, strict=True)))
            return
        bar = (styled_text(FULL_CELL * count, part.style) for part, count in runs)
        self._console.print(Text.assemble(*bar), soft_wrap=True)
        for part, text in zip(parts, texts, strict=True):
            mark = styled_text(FULL_CELL, part.style)
            self._console.print(Text.assemble(mark, styled_text(text), overflow="fold"))


@cli_command("ask", opened_session, AskReport)
@click.argument("question")
@token_limit_option
def command(opened: OpenedSession, question: str, as_json: bool) -> Output | None:
    """Show a session's memory for a question: pieces with their sources, and all omissions.

    The read is `Memory.get` with the default blocks of the session's pipelines; `strandline get` shows its
    messages. No model answers the question: the only model call is its embedding. The application's own
    tokenizer is not available here, so the default one counts memory.
    """
    context, state = read(opened, question)
    report = report_answer(question, context, state)
    if as_json:
        return Output(report, [])
    show_answer(console(), report)
    return None
