"""What ``demo`` prints under ``--json``."""

from __future__ import annotations

from strandline.schemas.wire.report import Report


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
    """How many messages of a question's evidence each part of the prompt gives; a message may be in several.

    ``messages`` are those that the search found, ``facts`` those that a fact comes from, ``summary`` those of
    which it has a sentence in the same words, ``window`` those that are shown as they were put.
    """

    messages: int
    facts: int
    summary: int
    window: int


class AnswerReport(Report):
    """The memory returned for a question.

    ``facts`` are those closest to the question, ``facts_given`` counts all; ``evidence_given`` are the ids of
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
