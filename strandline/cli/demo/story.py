"""The demo on a console: the play as it goes, then memory, answers, checks and figures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from rich.console import Console
from rich.rule import Rule

from strandline.cli.demo.play import Look, Play, Question
from strandline.cli.terminal.output import percentile, styled_text, table
from strandline.memory import Memory
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.producers.facts.listing import Fact
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.message import Message
from strandline.schemas.wire.report import Report

FACTS_PER_ANSWER = 2
# A shorter sentence may be the same by chance.
MIN_QUOTED_CHARACTERS = 12


class DemoCheck(Report):
    """Something the demo holds itself to."""

    name: str
    ok: bool
    found: str


class DemoFigures(Report):
    """Measured during the play; times in the unit that the name ends in."""

    messages: int
    play_seconds: float
    put_p50_ms: float
    put_p99_ms: float
    gets: int
    get_p50_ms: float
    get_p99_ms: float
    get_tokens_max: int
    events: int
    events_by_cause: dict[str, int]
    applications: int
    consume_lag_median_seconds: float
    consume_lag_max_seconds: float
    facts: int
    worker_ends: int


class GivenFact(Report):
    """A fact in the prompt, with the messages that it comes from."""

    text: str
    message_ids: list[str]


class GivenMessage(Report):
    """A message in the prompt that the search found."""

    id: str
    text: str


class EvidencePlaces(Report):
    """How much of a question's evidence is found, behind a fact, quoted or shown; some is in several."""

    messages: int
    facts: int
    summary: int
    window: int


class AnswerReport(Report):
    """The read for a question: the facts closest to it, and how much of its evidence, from where."""

    question: str
    answer: str | None
    facts_given: int
    facts: list[GivenFact]
    retrieved: list[GivenMessage]
    window_message_ids: list[str]
    evidence: list[str]
    evidence_given: list[str]
    evidence_from: EvidencePlaces

    @property
    def evidence_missing(self) -> list[str]:
        return [item for item in self.evidence if item not in self.evidence_given]


class EvidenceReport(Report):
    """All questions that name their evidence: how many got all of it, and how much of it was given in all."""

    token_limit: int
    conversation_tokens: int
    questions: int
    questions_with_all: int
    evidence: int
    evidence_given: int
    share_given: float


class DemoReport(Report):
    """``strandline demo --json``."""

    ok: bool
    session_id: str
    user_id: str
    file: str
    home: str
    worker_pid: int | None
    checks: list[DemoCheck]
    figures: DemoFigures
    questions: list[AnswerReport]
    evidence: EvidenceReport | None


def figures(play: Play, *, worker_ends: int) -> DemoFigures:
    events = play.look.events
    lags = [seconds for event in events for seconds in event.consumed.values()]
    return DemoFigures(
        messages=len(play.messages),
        play_seconds=round(play.seconds, 3),
        put_p50_ms=round(percentile(play.put_ms, 0.5), 3),
        put_p99_ms=round(percentile(play.put_ms, 0.99), 3),
        gets=len(play.get_ms),
        get_p50_ms=round(percentile(play.get_ms, 0.5), 3),
        get_p99_ms=round(percentile(play.get_ms, 0.99), 3),
        get_tokens_max=max(play.get_tokens, default=0),
        events=len(events),
        events_by_cause=dict(Counter(event.row.cause for event in events)),
        applications=play.applications,
        consume_lag_median_seconds=round(percentile(lags, 0.5), 3),
        consume_lag_max_seconds=round(max(lags, default=0.0), 3),
        facts=play.look.facts,
        worker_ends=worker_ends,
    )


def checks(play: Play, database: Database) -> list[DemoCheck]:
    """Each promise, whether it was kept, and the finding."""
    results = {
        "no message lost": _nothing_lost(play),
        "every event consumed": _all_consumed(play),
        "nothing doubled or made up": _nothing_wrong(database),
        "reads within the limit": _within_limit(play),
    }
    return [DemoCheck(name=name, ok=ok, found=finding) for name, (ok, finding) in results.items()]


def _nothing_lost(play: Play) -> tuple[bool, str]:
    sent, stored = play.messages, play.stored
    if len(sent) != len(stored):
        return False, f"{len(sent)} put, {len(stored)} read back"
    for number, (put, read) in enumerate(zip(sent, stored, strict=True), start=1):
        is_same = put.role == read.role and put.to_dict() == read.to_dict() and put.metadata == read.metadata
        if not is_same or put.id not in {None, read.id}:
            return False, f"message {number} came back different"
    return True, f"all {len(sent)} read back in order, with the same ids and contents"


def _all_consumed(play: Play) -> tuple[bool, str]:
    events, pipelines, after = len(play.look.events), len(play.pipelines), play.consumed_after
    ended = "then nothing more came" if after is None else f"the last {after:.1f} s after the last put"
    ok = after is not None and play.applications == events * pipelines
    pairs = f"{quantity(events, 'event')} x {quantity(pipelines, 'pipeline')}"
    return ok, f"{pairs}: {play.applications} applied, {ended}"


def _nothing_wrong(database: Database) -> tuple[bool, str]:
    """As ``strandline verify`` proves it: each message in one flush, each fact once, and from messages."""
    report = verify(database)
    for violation in report.violations:
        return False, violation.sentence
    return True, f"{quantity(report.events, 'flush event')} and {quantity(report.facts, 'fact')} add up"


def _within_limit(play: Play) -> tuple[bool, str]:
    reads = quantity(len(play.get_tokens), "read")
    finding = (
        f"{reads}, the largest {max(play.get_tokens, default=0):,} of {play.memory.token_limit:,} tokens"
    )
    if play.over_budget:
        finding += f"; {play.over_budget} said to be over budget"
    return not play.unexplained, finding


def ask(play: Play, question: Question) -> AnswerReport:
    """Read memory with the question, and find out which messages the prompt comes from."""
    context = play.get(question.question)
    ids = {message.seq: message.id or "" for message in play.stored}
    window = [message.id for message in context if message.id is not None and message.seq is not None]
    facts = []
    for fact in context.facts:
        here = [source for source in fact.sources if source.session_id == play.memory.session_id]
        seqs = [seq for source in here for seq in source.seqs]
        facts.append(GivenFact(text=fact.text, message_ids=[ids[seq] for seq in seqs if seq in ids]))
    summary = "" if context.summary is None else context.summary.text
    # The prompt has them in the order in which they were said; only the first few are printed.
    best_first = sorted(context.hits, key=lambda hit: -hit.score)
    retrieved = [GivenMessage(id=hit.message.id or "", text=str(hit.message)) for hit in best_first]
    places: dict[str, set[str | None]] = {
        "messages": {message.id for message in retrieved},
        "facts": {message_id for fact_given in facts for message_id in fact_given.message_ids},
        "summary": {message.id for message in play.stored if _quotes(summary, message)},
        "window": {*window},
    }
    evidence = list(dict.fromkeys(question.evidence or ()))
    return AnswerReport(
        question=question.question,
        answer=question.answer,
        facts_given=len(facts),
        facts=_closest(question.question, facts),
        retrieved=retrieved,
        window_message_ids=window,
        evidence=evidence,
        evidence_given=[item for item in evidence if any(item in of_place for of_place in places.values())],
        evidence_from=EvidencePlaces(
            **{name: len(of_place & {*evidence}) for name, of_place in places.items()}
        ),
    )


def add_up(
    answers: Sequence[AnswerReport], *, token_limit: int, conversation_tokens: int
) -> EvidenceReport | None:
    """The evidence of all questions together; None if no question names its own."""
    answers = [answer for answer in answers if answer.evidence]
    if not answers:
        return None
    evidence = sum(len(answer.evidence) for answer in answers)
    evidence_given = sum(len(answer.evidence_given) for answer in answers)
    return EvidenceReport(
        token_limit=token_limit,
        conversation_tokens=conversation_tokens,
        questions=len(answers),
        questions_with_all=sum(not answer.evidence_missing for answer in answers),
        evidence=evidence,
        evidence_given=evidence_given,
        share_given=round(evidence_given / evidence, 4),
    )


def _quotes(summary: str, message: Message) -> bool:
    lines = [line.strip() for line in summary.splitlines()]
    quotations = [*lines, *(line.partition(": ")[2] for line in lines)]
    return any(len(words) >= MIN_QUOTED_CHARACTERS and words in message.text for words in quotations)


def _closest(question: str, facts: Sequence[GivenFact]) -> list[GivenFact]:
    words = set(query_lexemes(question))
    shared = [(len(words & set(query_lexemes(fact.text))), fact) for fact in facts]
    ranked = sorted((pair for pair in shared if pair[0]), key=lambda pair: -pair[0])
    return [fact for _, fact in ranked[:FACTS_PER_ANSWER]]


PLAY_STEPS = 5
FACTS_TOLD = 8
IDS_TOLD = 6
MESSAGES_TOLD = 3
TEXT_CHARACTERS = 140
LABEL_WIDTH = 9


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

    def memory(self, look: Look, memory: Memory) -> None:
        """The derived memory, and the next read's result."""
        facts, context = memory.facts.list(limit=FACTS_TOLD), memory.get()
        numbers = {event.row.event_id: number for number, event in enumerate(look.events, start=1)}
        self.heading(f"Facts: {facts.total}, the latest {len(facts)} of them")
        for fact in facts:
            self._row("-", " ".join(fact.text.split()), label_width=1)
            self._row("", _provenance(fact, numbers), style="dim", label_width=1)
        if context.summary is not None:
            self.heading(f"Summary, through message {context.summary.through_seq}")
            for line in context.summary.text.splitlines():
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

    def next_steps(self, commands: Mapping[str, str]) -> None:
        self.heading("Try next")
        for words, command in commands.items():
            self.command(f"{words}:", command)

    def _table(self, answers: Sequence[AnswerReport]) -> None:
        rows = [(_share(answer), _origins(answer), " ".join(answer.question.split())) for answer in answers]
        for line in table(("given", "from", "question"), rows):
            self.console.print(styled_text(f"  {line}"), no_wrap=True, overflow="ellipsis")

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
        line = f"{'':{indent}}{label:{label_width}} {text}".rstrip()
        self.console.print(styled_text(line, style), soft_wrap=True)


class PlayView:
    """Tells a line per flush event, per end of one and per fifth of the play."""

    def __init__(self, story: Story, play: Play) -> None:
        self._story, self._play = story, play
        self._flushed = 0
        self._consumed: set[int] = set()
        self.looked_at = 0.0

    def put(self) -> None:
        """A message was put."""
        number, total = len(self._play.put_ms), len(self._play.messages)
        if number * PLAY_STEPS // total > (number - 1) * PLAY_STEPS // total:
            last = f"the last one in {self._play.put_ms[-1]:.1f} ms"
            self._story.line(f"put {number} of {total} messages ({last})")

    def look(self, seen: Look) -> None:
        """Tell the news since the last look."""
        self.looked_at = time.monotonic()
        for number, event in enumerate(seen.events[self._flushed :], start=self._flushed + 1):
            row, is_newest = event.row, number == len(seen.events)
            window = f"; the window now holds {seen.tokens} of {seen.mark}" if is_newest else ""
            self._story.line(
                f"flush event {number} ({row.cause}): messages {row.from_seq}-{row.through_seq},"
                f" {quantity(row.tokens, 'token')}{window}"
            )
        self._flushed = len(seen.events)
        for number, event in enumerate(seen.events, start=1):
            if number not in self._consumed and event.is_consumed_by(self._play.pipelines):
                self._consumed.add(number)
                slowest = max(event.consumed.values(), default=0.0)
                facts = quantity(seen.facts, "fact")
                self._story.line(f"flush event {number} consumed after {slowest:.2f} s; {facts} known")


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
