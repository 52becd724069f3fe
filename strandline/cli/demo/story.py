"""Tells the demo on a console: the play as it goes, then memory, answers, checks and figures."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from strandline.cli.demo.play import Look
from strandline.cli.demo.results import AnswerReport, DemoCheck, DemoFigures, EvidenceReport
from strandline.cli.terminal.output import styled_text
from strandline.producers.facts.listing import Fact
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.display.shown_text import quantity

PLAY_STEPS = 5
FACTS_TOLD = 8
IDS_TOLD = 6
MESSAGES_TOLD = 3
TEXT_CHARACTERS = 140
LABEL_WIDTH = 9
MIN_QUESTION_CELLS = 8


class PlayView:
    """A line per flush event, per end of one and per fifth of the play; on a terminal two bars below them."""

    def __init__(self, console: Console, *, total: int, pipelines: Sequence[str]) -> None:
        self._console = console
        self._total = total
        self._pipelines = pipelines
        self._flushed = 0
        self._consumed: set[int] = set()
        self.looked_at = 0.0
        columns = ("  {task.description:8}", "{task.completed:,} / {task.total:,} {task.fields[unit]}")
        bars = (TextColumn(columns[0]), BarColumn(), TextColumn(columns[1]))
        self.bars = Progress(*bars, console=console, disable=not console.is_terminal)
        self._played = self.bars.add_task("played", total=total, unit="messages")
        self._window = self.bars.add_task("window", total=0, unit="tokens; flushes above the mark")

    def put(self, number: int, milliseconds: float) -> None:
        """A message was put, the ``number``-th."""
        self.bars.update(self._played, completed=number)
        if number * PLAY_STEPS // self._total > (number - 1) * PLAY_STEPS // self._total:
            self._say(f"put {number} of {self._total} messages (the last one in {milliseconds:.1f} ms)")

    def look(self, seen: Look) -> None:
        """Tell the news since the last look."""
        self.looked_at = time.monotonic()
        self.bars.update(self._window, completed=seen.tokens, total=seen.mark)
        for number, event in enumerate(seen.events[self._flushed :], start=self._flushed + 1):
            row, is_newest = event.row, number == len(seen.events)
            window = f"; the window now holds {seen.tokens} of {seen.mark}" if is_newest else ""
            self._say(
                f"flush event {number} ({row.cause}): messages {row.from_seq}-{row.through_seq},"
                f" {quantity(row.tokens, 'token')}{window}"
            )
        self._flushed = len(seen.events)
        for number, event in enumerate(seen.events, start=1):
            if number not in self._consumed and event.is_consumed_by(self._pipelines):
                self._consumed.add(number)
                slowest = max(event.consumed.values(), default=0.0)
                facts = quantity(seen.facts, "fact")
                self._say(f"flush event {number} consumed after {slowest:.2f} s; {facts} known")

    def _say(self, line: str) -> None:
        self._console.print(styled_text(line))


class Story:
    """Prints to one console, styled or plain as that is."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: str, style: str = "") -> None:
        self.console.print(styled_text(f"  {text}", style=style))

    def heading(self, text: str) -> None:
        self.console.print()
        if self.console.is_terminal:
            self.console.print(Rule(styled_text(f"{text} ", style="bold"), align="left", style="dim"))
        else:
            self.console.print(styled_text(f"== {text}"))

    def pairs(self, pairs: Mapping[str, str]) -> None:
        for label, value in pairs.items():
            self._row(label, value)

    def worker(self, pids: Collection[int], attach: str, *, until: str = "") -> None:
        self._row("worker", f"process {', '.join(map(str, sorted(pids)))}" if pids else "none")
        self.command(f"another one, from a second terminal{until and f', {until}'}:", attach)
        self.console.print()

    def command(self, words: str, command: str) -> None:
        """A command is on a separate line that is never broken, so that it can be copied."""
        self.console.print(styled_text(f"            {words}", style="dim"))
        self.console.print(styled_text(f"            {command}"), soft_wrap=True)

    def memory(self, facts: Sequence[Fact], look: Look, context: MemoryContext) -> None:
        """The derived memory, and the next read's result."""
        numbers = {event.row.event_id: number for number, event in enumerate(look.events, start=1)}
        self.heading(f"Facts: {len(facts)}, the latest {min(len(facts), FACTS_TOLD)} of them")
        for fact in facts[:FACTS_TOLD]:
            self._row("-", " ".join(fact.text.split()), label_width=1)
            self._row("", _provenance(fact, numbers), style="dim", label_width=1)
        if look.summary:
            self.heading(f"Summary, through message {look.summary_through}")
            for line in look.summary.splitlines():
                self._row("", line, label_width=0)
        covered = ", ".join(f"{name} through {seq}" for name, seq in context.covered_through.items())
        self.heading("The next read returns")
        self._row("messages", f"{len(context)}, {quantity(context.tokens, 'token')}")
        self._row("covered", f"{covered}; {'caught up' if context.caught_up else 'not caught up yet'}")
        if context.omitted:
            self._row("left out", "; ".join(item.reason for item in context.omitted))

    def answers(self, answers: Sequence[AnswerReport], *, in_full: bool) -> None:
        """A line for each question; then each in full, or the first that got all its evidence."""
        if not answers:
            return
        self.heading(f"Questions: {len(answers)}, and where each got its evidence from")
        self._table(answers)
        whole = [answer for answer in answers if answer.evidence and not answer.evidence_missing]
        self.heading("The questions in full" if in_full else "One of them in full")
        for answer in answers if in_full else [*whole, *answers][:1]:
            self._answer(answer)

    def evidence(self, evidence: EvidenceReport, *, stand_ins: bool) -> None:
        """How much of the evidence the questions got, in sentences."""
        self.line(
            f"Memory gave all the evidence for {evidence.questions_with_all} of"
            f" {quantity(evidence.questions, 'question')}, and {evidence.share_given:.0%} of all evidence"
            f" ({evidence.evidence_given} of {quantity(evidence.evidence, 'message')}).",
            "bold",
        )
        self.line(
            f"Each read had a limit of {quantity(evidence.token_limit, 'token')};"
            f" the conversation has {evidence.conversation_tokens:,}."
        )
        if stand_ins and evidence.questions_with_all < evidence.questions:
            self.line(
                "The stand-ins only pick whole sentences by simple rules; a real model (OPENAI_API_KEY or"
                " OPENAI_BASE_URL) words facts itself, and merges what belongs together."
            )

    def results(self, checks: Sequence[DemoCheck], figures: DemoFigures) -> None:
        self.heading("Checks")
        for check in checks:
            style = "" if check.ok else "bold red"
            self._row("ok" if check.ok else "FAILED", f"{check.name}: {check.found}", style, label_width=6)
        self.heading("Figures")
        causes = ", ".join(f"{count} {cause}" for cause, count in figures.events_by_cause.items())
        put, get = (figures.put_p50_ms, figures.put_p99_ms), (figures.get_p50_ms, figures.get_p99_ms)
        median, longest = figures.consume_lag_median_seconds, figures.consume_lag_max_seconds
        pairs = {
            "messages": f"{figures.messages:,} put in {figures.play_seconds:.1f} s",
            "put": "p50 {:.2f} ms, p99 {:.2f} ms (flushes included)".format(*put),
            "get": "p50 {:.2f} ms, p99 {:.2f} ms".format(*get) + f" ({figures.gets} reads)",
            "events": f"{quantity(figures.events, 'flush event')} ({causes or 'none'})",
            "lag": f"median {median:.2f} s, at most {longest:.2f} s from flush to consumed",
        }
        if figures.worker_ends:
            pairs["worker"] = f"ended unexpectedly: {figures.worker_ends}"
        self.pairs(pairs)

    def _table(self, answers: Sequence[AnswerReport]) -> None:
        rows = [(_share(answer), _origins(answer)) for answer in answers]
        shares = max(cell_len(share) for share, _ in rows)
        room = self.console.width - 6 - shares - max(cell_len(origins) for _, origins in rows)
        for answer, (share, origins) in zip(answers, rows, strict=True):
            question = styled_text(" ".join(answer.question.split()))
            question.truncate(max(room, MIN_QUESTION_CELLS), overflow="ellipsis", pad=True)
            style = "yellow" if answer.evidence_missing else "green"
            line = Text.assemble("  ", question, "  ", (f"{share:>{shares}}", style), "  ", origins)
            self.console.print(line, no_wrap=True, overflow="ellipsis")

    def _answer(self, answer: AnswerReport) -> None:
        self._row("?", answer.question, "bold", label_width=1)
        rows = [] if answer.answer is None else [("expected", answer.answer)]
        rows += [("fact", f"{_cut(fact.text)}  [{_ids(fact.message_ids)}]") for fact in answer.facts]
        first, others = answer.retrieved[:MESSAGES_TOLD], answer.retrieved[MESSAGES_TOLD:]
        rows += [("found", f"{_cut(message.text)}  [{message.id}]") for message in first]
        if others:
            rows.append(("", f"and {_ids([message.id for message in others])}"))
        for label, text in rows:
            self._row(label, " ".join(text.split()), indent=4)
        if answer.evidence:
            missing = answer.evidence_missing
            text = f"{_share(answer)} given ({_ids(answer.evidence)})"
            text += f"; missing {_ids(missing)}" if missing else ""
            self._row("evidence", text, "yellow" if missing else "green", indent=4)
        self.console.print()

    def _row(
        self, label: str, text: str, style: str = "", *, indent: int = 2, label_width: int = LABEL_WIDTH
    ) -> None:
        if not self.console.is_terminal:
            line = f"{'':{indent}}{label:{label_width}} {text}".rstrip()
            self.console.print(styled_text(line), soft_wrap=True)
            return
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(min_width=label_width)
        table.add_row(styled_text(label, style="dim"), styled_text(text, style=style, overflow="fold"))
        self.console.print(Padding(table, (0, indent)))


def _share(answer: AnswerReport) -> str:
    return f"{len(answer.evidence_given)} of {len(answer.evidence)}" if answer.evidence else "-"


def _origins(answer: AnswerReport) -> str:
    places = answer.evidence_from.model_dump()
    counts = {"found": places.pop("messages"), **places}
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "-"


def _provenance(fact: Fact, numbers: Mapping[UUID, int]) -> str:
    last = fact.revisions[-1]
    flush = numbers.get(last.event_id, "?") if last.event_id else "by hand"
    model = f"{last.operation} by {last.model} ({last.prompt_hash})"
    return f"from {_ids(fact.message_ids)}, flush {flush}, {model}"


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARACTERS else line[: TEXT_CHARACTERS - 1].rstrip() + "…"


def _ids(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:IDS_TOLD]) or "nothing"
    return shown if len(ids) <= IDS_TOLD else f"{shown} and {len(ids) - IDS_TOLD} more"
