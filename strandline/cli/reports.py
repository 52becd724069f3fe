"""What ``get``, ``search`` and ``facts`` print under ``--json``."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

from strandline.schemas.wire.contexts import OmissionOut
from strandline.schemas.wire.explanations import FactEventTrace
from strandline.schemas.wire.facts import CaptureOut, FiguresOut, TopicOut, UserOut
from strandline.schemas.wire.report import Report


class ReadMessage(Report):
    """A message of a read; ``message`` is in the form of OpenAI's chat API.

    A message made for the read (memory without a pinned head) has neither ``seq`` nor ``id``.
    """

    seq: int | None
    id: str | None
    created_at: datetime | None
    message: dict[str, Any]


class ReadState(Report):
    """A read within ``token_limit``: its size, memory's progress, and the omissions."""

    namespace: str
    session_id: str
    user_id: str | None
    token_limit: int
    tokens: int
    over_budget: bool
    caught_up: bool
    covered_through: dict[str, int]
    omitted: list[OmissionOut]


class ReadReport(ReadState):
    """``strandline get``: as ``Memory.get`` gives it, within ``token_limit``."""

    messages: list[ReadMessage]


class HitReport(Report):
    """A message or a fact that a search found; ``similarity`` null where only words were compared."""

    kind: Literal["message", "fact"]
    score: float
    similarity: float | None
    text: str
    session_id: str | None
    seq: int | None
    id: str
    said_by: str | None
    at: datetime | None


class SearchReport(Report):
    """``strandline search``: hits, best first.

    Attributes:
        problem: why only words were compared; null if vectors were as well.
    """

    namespace: str
    session_id: str | None
    user_id: str | None
    scope: Literal["session", "owner"]
    query: str
    hits: list[HitReport]
    problem: str | None


class FactReport(Report):
    """A fact; what the times mean stands at ``strandline.Fact``."""

    fact_id: UUID
    text: str
    topics: list[str]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    valid_from: datetime
    valid_until: datetime | None
    live: bool
    invalidated_by: UUID | None
    condensed_into: UUID | None
    feedback: str | None
    message_ids: list[str]


class FactsReport(Report):
    """``strandline facts list``: a page, and how many there are; ``next_offset`` null at the end."""

    namespace: str
    user_id: str | None
    session_id: str | None
    total: int
    next_offset: int | None
    facts: list[FactReport]


class FactStep(Report):
    """One step of a fact's history: derived from messages, or done by a person (``actor``)."""

    number: int
    operation: str
    at: datetime
    text: str
    session_id: str | None
    message_ids: list[str]
    model: str | None
    actor: str | None
    by_a_person: bool


class FactHistoryReport(Report):
    """``strandline facts history``: oldest first; of a removed fact only people's acts."""

    fact_id: UUID
    gone: bool
    live: bool
    text: str | None
    steps: list[FactStep]
    deeds: list[FactEventTrace]


class CaptureActReport(CaptureOut):
    """One act: the choice of a namespace or an owner, its actor and its time."""

    number: int
    actor: str | None
    created_at: datetime


class CaptureReport(CaptureOut):
    """``strandline facts capture``: what applies now, and the acts of this level, newest first."""

    namespace: str
    user_id: str | None
    session_id: str | None
    acts: list[CaptureActReport]


class OwnerFiguresReport(Report):
    """``strandline facts figures``: of a user or the owner of a session; the most frequent topics first."""

    namespace: str
    user_id: str | None
    session_id: str | None
    figures: FiguresOut
    topics: list[TopicOut]


class UsersReport(Report):
    """``strandline facts users``: a page by name; ``after`` is what ``--after`` takes, null at the end."""

    namespace: str
    users: list[UserOut]
    after: str | None
