"""What ``verify`` gives: totals, coverage, violations, and the owners that it did not check."""

from __future__ import annotations

from uuid import UUID

from strandline.schemas.wire import report


class Violation(report.Report):
    """Something that is not as it must be: its kind, one sentence, and the ids to look for."""

    kind: str
    sentence: str
    namespace: str | None = None
    session_id: str | None = None
    session_key: UUID | None = None
    event_id: UUID | None = None
    fact_id: UUID | None = None
    batch_id: UUID | None = None
    revision: int | None = None
    generation: int | None = None
    stage: str | None = None
    from_seq: int | None = None
    through_seq: int | None = None
    found: int | None = None
    expected: int | None = None
    table: str | None = None


class Coverage(report.Report):
    """One generation that is kept: the events it has applied to the end, what is due in it, and its holes."""

    generation: int
    pipeline: str
    state: str
    applied: int
    due: int
    holes: int


class Unjudged(report.Report):
    """An owner whose rows were not checked: an erasure takes them table by table, and is not finished."""

    erasure: int
    namespace: str
    owner_key: UUID


class Report(report.Report):
    """The totals of what was checked, the work under way, and the violations.

    Attributes:
        applications: receipts of (event, stage, generation) that say applied; ``voids`` those that say void.
        pending: due work; it is under way, and not a violation.
        holes: dead letters; ``dropped`` those that were given up for good.
        tombstones: facts that lost some of their sources to a reset with ``derived``.
        seconds: how long it took.
        generations: the coverage of each derivation that is kept.
        unjudged: the owners that were not checked.
    """

    messages: int
    events: int
    sessions: int
    facts: int
    applications: int
    voids: int
    pending: int
    holes: int
    dropped: int
    tombstones: int
    seconds: float
    generations: tuple[Coverage, ...]
    violations: tuple[Violation, ...]
    unjudged: tuple[Unjudged, ...] = ()
