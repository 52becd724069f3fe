"""Prints the demo's results: servers, memory, answers, checks and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table

from strandline.cli.demo.file import Conversation
from strandline.cli.demo.observer import Look
from strandline.cli.demo.reports import AnswerReport, DemoCheck, DemoFigures
from strandline.cli.servers.models_used import ModelsUsed
from strandline.cli.terminal.output import styled_text
from strandline.producers.facts.listing import Fact
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.display.shown_text import quantity

FACTS_TOLD = 8
IDS_TOLD = 6
MESSAGES_TOLD = 3
TEXT_CHARACTERS = 140
LABEL_WIDTH = 9


class Story:
    """Prints to one console, styled or plain as that is."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def open(self, conversation: Conversation, models: ModelsUsed, home: Path) -> None:
        self._heading("Strandline demo")
        questions = (
            f" and {quantity(len(conversation.questions), 'question')}" if conversation.questions else ""
        )
        messages = quantity(len(conversation.messages), "message")
        self._pairs(
            {
                "plays": f"{conversation.path.name}: {messages}{questions}",
                "models": models.announcement,
                "servers": f"its own PostgreSQL and broker, in {home}",
            }
        )

    def worker(self, pid: int, attach: str) -> None:
        self._pairs({"worker": f"process {pid}"})
        self._attach("another one, from a second terminal:", attach)
        self._line()

    def line(self, text: str, style: str = "") -> None:
        self._console.print(styled_text(f"  {text}", style=style))

    def facts(self, facts: Sequence[Fact], look: Look) -> None:
        numbers = {event.event_id: number for number, event in enumerate(look.events, start=1)}
        self._heading(f"Facts: {len(facts)}, the latest {min(len(facts), FACTS_TOLD)} of them")
        for fact in facts[:FACTS_TOLD]:
            self._item(fact.text, _provenance(fact, numbers))

    def summary(self, look: Look) -> None:
        if look.summary:
            self._heading(f"Summary, through message {look.summary_through}")
            for line in look.summary.splitlines():
                self._row("", line, label_width=0)

    def coverage(self, context: MemoryContext) -> None:
        covered = ", ".join(f"{name} through {seq}" for name, seq in context.covered_through.items())
        left_out = "; ".join(item.reason for item in context.omitted)
        self._heading("The next read returns")
        pairs = {
            "messages": f"{len(context)}, {quantity(context.tokens, 'token')}",
            "covered": f"{covered}; {'caught up' if context.caught_up else 'not caught up yet'}",
        }
        self._pairs(pairs | ({"left out": left_out} if left_out else {}))

    def answers(self, answers: Sequence[AnswerReport], *, of: int, stand_ins: bool) -> None:
        if not answers:
            return
        self._heading(f"Questions: {len(answers)} of {of}")
        for answer in answers:
            self._answer(answer)
        with_evidence = [answer for answer in answers if answer.evidence]
        whole = sum(set(answer.evidence) <= set(answer.evidence_given) for answer in with_evidence)
        if with_evidence:
            self.line(f"memory gave all the evidence for {whole} of {len(with_evidence)} questions", "bold")
            if stand_ins and whole < len(with_evidence):
                self.line(
                    "the stand-ins only pick whole sentences by simple rules; a real model (OPENAI_API_KEY or"
                    " OPENAI_BASE_URL) words facts itself, and merges what belongs together"
                )

    def checks(self, checks: Sequence[DemoCheck]) -> None:
        self._heading("Checks")
        for check in checks:
            text = f"{check.name}: {check.found}"
            self._row(
                "ok" if check.ok else "FAILED", text, style="" if check.ok else "bold red", label_width=6
            )

    def figures(self, figures: DemoFigures) -> None:
        self._heading("Figures")
        causes = ", ".join(f"{count} {cause}" for cause, count in figures.events_by_cause.items())
        pairs = {
            "messages": f"{figures.messages:,} put in {figures.play_seconds:.1f} s",
            "put": f"p50 {figures.put_p50_ms:.2f} ms, p99 {figures.put_p99_ms:.2f} ms (flushes included)",
            "get": f"p50 {figures.get_p50_ms:.2f} ms, p99 {figures.get_p99_ms:.2f} ms ({figures.gets} reads)",
            "tokens": f"at most {figures.get_tokens_max:,} of {figures.token_limit:,} in a read",
            "events": f"{quantity(figures.events, 'flush event')} ({causes or 'none'})",
            "applied": f"{figures.applications} (event, pipeline) pairs: {', '.join(figures.pipelines)}",
            "lag": f"median {figures.consume_lag_median_seconds:.2f} s, at most"
            f" {figures.consume_lag_max_seconds:.2f} s from flush to consumed",
            "facts": f"{figures.facts}",
            "models": f"{figures.text_model}, {figures.embedding_model}",
        }
        if figures.worker_ends:
            pairs["worker"] = f"ended unexpectedly: {figures.worker_ends}"
        self._pairs(pairs)

    def close(self, pids: Sequence[int], attach: str, *, stays: bool) -> None:
        self._line()
        self._pairs({"worker": f"process {', '.join(map(str, pids))}" if pids else "none"})
        if stays:
            self._attach("another one, from a second terminal, until Ctrl-C here:", attach)

    def _answer(self, answer: AnswerReport) -> None:
        self._row("?", answer.question, style="bold", label_width=1)
        if answer.answer is not None:
            self._detail("answer", answer.answer)
        for fact in answer.facts:
            self._detail("fact", f"{_cut(fact.text)}  [{_ids(fact.message_ids)}]")
        for message in answer.retrieved[:MESSAGES_TOLD]:
            self._detail("found", f"{_cut(message.text)}  [{message.id}]")
        if len(answer.retrieved) > MESSAGES_TOLD:
            self._detail("", f"and {_ids([message.id for message in answer.retrieved[MESSAGES_TOLD:]])}")
        if answer.evidence:
            missing = [item for item in answer.evidence if item not in answer.evidence_given]
            evidence = (
                f"{len(answer.evidence_given)} of {len(answer.evidence)} given ({_ids(answer.evidence)})"
            )
            style = "green" if not missing else "yellow"
            self._detail("evidence", evidence + (f"; missing {_ids(missing)}" if missing else ""), style)
        self._line()

    def _detail(self, label: str, text: str, style: str = "") -> None:
        self._row(label, " ".join(text.split()), style=style, indent=4)

    def _item(self, text: str, origin: str) -> None:
        self._row("-", " ".join(text.split()), label_width=1)
        self._row("", origin, style="dim", label_width=1)

    def _heading(self, text: str) -> None:
        self._line()
        if self._console.is_terminal:
            self._console.print(Rule(styled_text(f"{text} ", style="bold"), align="left", style="dim"))
        else:
            self._console.print(styled_text(f"== {text}"))

    def _pairs(self, pairs: Mapping[str, str]) -> None:
        for label, value in pairs.items():
            self._row(label, value)

    def _row(
        self, label: str, text: str, *, style: str = "", indent: int = 2, label_width: int = LABEL_WIDTH
    ) -> None:
        """A label and its text: wrapped beside it on a terminal, one line elsewhere."""
        if not self._console.is_terminal:
            self._console.print(
                styled_text(f"{'':{indent}}{label:{label_width}} {text}".rstrip()), soft_wrap=True
            )
            return
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(min_width=label_width)
        table.add_column()
        table.add_row(styled_text(label, style="dim"), styled_text(text, style=style, overflow="fold"))
        self._console.print(Padding(table, (0, indent)))

    def _attach(self, words: str, command: str) -> None:
        """A command is on a separate line that is never broken, so that it can be copied."""
        self._console.print(styled_text(f"            {words}", style="dim"))
        self._console.print(styled_text(f"            {command}"), soft_wrap=True)

    def _line(self) -> None:
        self._console.print()


def _provenance(fact: Fact, numbers: Mapping[UUID, int]) -> str:
    last = fact.revisions[-1]
    flush = numbers.get(last.event_id, "?") if last.event_id else "by hand"
    return (
        f"from {_ids(fact.message_ids)}, flush {flush}, {last.operation} by {last.model} ({last.prompt_hash})"
    )


def _cut(text: str) -> str:
    """A text of moderate length, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= TEXT_CHARACTERS else line[: TEXT_CHARACTERS - 1].rstrip() + "…"


def _ids(ids: Sequence[str]) -> str:
    shown = ", ".join(ids[:IDS_TOLD]) or "nothing"
    return shown if len(ids) <= IDS_TOLD else f"{shown} and {len(ids) - IDS_TOLD} more"
