"""Prints the demo's results: servers, memory, answers, checks and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from strandline.cli.demo.file import Conversation
from strandline.cli.demo.observer import Look
from strandline.cli.demo.reports import AnswerReport, DemoCheck, DemoFigures, EvidenceReport
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
MIN_QUESTION_CELLS = 8


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

    def answers(self, answers: Sequence[AnswerReport], *, in_full: bool) -> None:
        """A line for each question; then each in full, or the first that got all its evidence."""
        if not answers:
            return
        self._heading(f"Questions: {len(answers)}, and where each got its evidence from")
        self._table(answers)
        whole = [answer for answer in answers if answer.evidence and not _list_missing(answer)]
        self._heading("The questions in full" if in_full else "One of them in full")
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

    def service(self, curl: str) -> None:
        """A command line that reads the session over HTTP, while the servers stay."""
        self._attach("the same memory over HTTP, from a second terminal:", curl)

    def _table(self, answers: Sequence[AnswerReport]) -> None:
        """One line a question, which is cut to the width."""
        rows = [(_share(answer), _origins(answer)) for answer in answers]
        shares = max(cell_len(share) for share, _ in rows)
        room = self._console.width - 6 - shares - max(cell_len(origins) for _, origins in rows)
        for answer, (share, origins) in zip(answers, rows, strict=True):
            question = styled_text(" ".join(answer.question.split()))
            question.truncate(max(room, MIN_QUESTION_CELLS), overflow="ellipsis", pad=True)
            style = "yellow" if _list_missing(answer) else "green"
            line = Text.assemble("  ", question, "  ", (f"{share:>{shares}}", style), "  ", origins)
            self._console.print(line, no_wrap=True, overflow="ellipsis")

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
            missing = _list_missing(answer)
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


def _list_missing(answer: AnswerReport) -> list[str]:
    return [item for item in answer.evidence if item not in answer.evidence_given]


def _share(answer: AnswerReport) -> str:
    return f"{len(answer.evidence_given)} of {len(answer.evidence)}" if answer.evidence else "-"


def _origins(answer: AnswerReport) -> str:
    """The parts of the prompt that give evidence, each with the number of its messages."""
    places = answer.evidence_from
    counts = {
        "found": places.messages,
        "facts": places.facts,
        "summary": places.summary,
        "window": places.window,
    }
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "-"


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
