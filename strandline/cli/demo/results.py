"""The demo's results: its checks, its figures, and memory's material for each question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from uuid import UUID

from strandline.cli.demo.file import Question
from strandline.cli.demo.play import Play
from strandline.cli.servers.models_used import ModelsUsed
from strandline.cli.terminal.numbers import percentile
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.producers.facts.listing import FactRevision
from strandline.schemas.display.shown_text import quantity
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
    put_max_ms: float
    gets: int
    get_p50_ms: float
    get_p99_ms: float
    get_tokens_max: int
    token_limit: int
    gets_over_budget: int
    events: int
    events_by_cause: dict[str, int]
    pipelines: list[str]
    applications: int
    consume_lag_median_seconds: float
    consume_lag_max_seconds: float
    consumed_after_seconds: float | None
    facts: int
    worker_ends: int
    text_model: str
    embedding_model: str


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
    """What memory gives for a question.

    ``facts`` are the closest to the question, ``facts_given`` counts all; ``evidence_given`` are the ids of
    the question's evidence that the prompt contains, ``evidence_from`` says where.
    """

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


def figures(play: Play, *, worker_ends: int, models: ModelsUsed) -> DemoFigures:
    """The demo's figures."""
    events, after = play.look.events, play.consumed_after
    lags = [seconds for event in events for seconds in event.consumed.values()]
    return DemoFigures(
        messages=len(play.messages),
        play_seconds=round(play.seconds, 3),
        put_p50_ms=round(percentile(play.put_ms, 0.5), 3),
        put_p99_ms=round(percentile(play.put_ms, 0.99), 3),
        put_max_ms=round(max(play.put_ms), 3),
        gets=len(play.get_ms),
        get_p50_ms=round(percentile(play.get_ms, 0.5), 3),
        get_p99_ms=round(percentile(play.get_ms, 0.99), 3),
        get_tokens_max=max(play.get_tokens, default=0),
        token_limit=play.memory.token_limit,
        gets_over_budget=play.over_budget,
        events=len(events),
        events_by_cause=dict(Counter(event.row.cause for event in events)),
        pipelines=play.pipelines,
        applications=play.applications,
        consume_lag_median_seconds=round(percentile(lags, 0.5), 3),
        consume_lag_max_seconds=round(max(lags, default=0.0), 3),
        consumed_after_seconds=None if after is None else round(after, 3),
        facts=len(play.facts),
        worker_ends=worker_ends,
        text_model=models.text,
        embedding_model=models.embedding,
    )


def checks(play: Play) -> list[DemoCheck]:
    """Each promise, whether it was kept, and the finding."""
    results = {
        "no message lost": _nothing_lost(play),
        "each message in one flush": _each_in_one_flush(play),
        "every event consumed": _all_consumed(play),
        "no fact twice": _facts_once(play),
        "facts have provenance": _facts_have_provenance(play),
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


def _each_in_one_flush(play: Play) -> tuple[bool, str]:
    events = [event.row for event in play.look.events]
    gaps = [after.from_seq for before, after in pairwise(events) if after.from_seq != before.through_seq + 1]
    if gaps:
        return False, f"the ranges do not join at message {gaps[0]}"
    joined = f"{quantity(len(events), 'flush event')}, one after the other"
    return True, joined if events else "nothing flushed"


def _all_consumed(play: Play) -> tuple[bool, str]:
    events, pipelines, after = len(play.look.events), len(play.pipelines), play.consumed_after
    ended = "then nothing more came" if after is None else f"the last {after:.1f} s after the last put"
    ok = after is not None and play.applications == events * pipelines
    pairs = f"{quantity(events, 'event')} x {quantity(pipelines, 'pipeline')}"
    return ok, f"{pairs}: {play.applications} applied, {ended}"


def _facts_once(play: Play) -> tuple[bool, str]:
    texts = Counter(fact.text for fact in play.facts if fact.invalidated_at is None)
    candidates = Counter(
        (revision.text, revision.event_id, revision.seqs)
        for fact in play.facts
        for revision in fact.revisions
        if revision.operation == "add"
    )
    twice = [text for text, count in texts.items() if count > 1]
    twice += [candidate[0] for candidate, count in candidates.items() if count > 1]
    return not twice, f"twice: {twice[0]}" if twice else f"{quantity(len(texts), 'fact')}, all different"


def _facts_have_provenance(play: Play) -> tuple[bool, str]:
    events = {event.row.event_id for event in play.look.events}
    stored_ids = {message.id for message in play.stored}
    for fact in play.facts:
        if not fact.revisions or not all(_is_traceable(step, events, stored_ids) for step in fact.revisions):
            return False, f"without: {fact.text}"
    return True, "each names its messages, flush, prompt and model"


def _is_traceable(step: FactRevision, events: set[UUID], stored_ids: set[str | None]) -> bool:
    is_of_messages = bool(step.message_ids) and set(step.message_ids) <= stored_ids
    return step.event_id in events and is_of_messages and bool(step.model and step.prompt_hash)


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
