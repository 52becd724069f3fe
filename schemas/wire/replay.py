"""The output of ``replay`` and ``generations`` under ``--json``."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from strandline.schemas.wire.report import Report
from strandline.schemas.wire.work import ReplayReport


class EstimateReport(Report):
    """A dry run of one pipeline; fields that are null cannot be estimated."""

    pipeline: str
    generation: int
    new: bool
    differences: list[str]
    events: int
    tokens: int
    batches: int
    stored_batches: int
    model_calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class EstimatesReport(Report):
    """``strandline replay --dry-run``."""

    pipelines: list[EstimateReport]


class ReplaysReport(Report):
    """``strandline replay``."""

    replays: list[ReplayReport]


class GenerationReport(Report):
    """One generation; ``owners`` counts those it serves while others are served by another.

    ``differences`` says where the settings of this process differ from those of the serving generation.
    """

    generation: int
    pipeline: str
    state: str
    version: str
    made_with: dict[str, Any]
    created_at: str
    served_until: str | None
    filled: bool
    due: int
    dead: int
    owners: int
    differences: list[str]


class GenerationsReport(Report):
    """``strandline generations list``; ``replays`` are the unfinished ones."""

    generations: list[GenerationReport]
    replays: list[ReplayReport]


class FactChangeReport(Report):
    """A fact that was added, is gone, or is worded otherwise."""

    change: str
    before: str | None
    after: str | None


class StateChangeReport(Report):
    """The state of one session, or of the owner (``session_id`` empty), in both."""

    session_id: str
    before: str | None
    after: str | None


class OwnerDiffReport(Report):
    """The differences of one owner."""

    namespace: str
    user_id: str | None
    session_id: str
    same: int
    facts: list[FactChangeReport]
    states: list[StateChangeReport]


class QuestionReport(Report):
    """A question's first ten hits, as texts, in each of two generations.

    ``expected_old`` and ``expected_new`` say whether one of them contains the expected text; the coverage is
    the share of the evidence that they are, or come from; null where the question names none.
    """

    question: str
    found_old: list[str]
    found_new: list[str]
    expected_old: bool | None
    expected_new: bool | None
    coverage_old: float | None
    coverage_new: float | None


class DiffTotals(Report):
    """Two generations of a pipeline: ``totals`` counts added, changed, gone and same over all owners."""

    pipeline: str
    old: int
    new: int
    totals: dict[str, int]


class DiffReport(DiffTotals):
    """``strandline generations diff``: the totals, and the differences, owner by owner.

    ``recall_old`` and ``recall_new`` are the share of the given questions that find the expected text;
    ``coverage_old`` and ``coverage_new`` the average share of their evidence found.
    """

    owners: list[OwnerDiffReport]
    recall_old: float | None = None
    recall_new: float | None = None
    coverage_old: float | None = None
    coverage_new: float | None = None
    questions: list[QuestionReport] = Field(default_factory=list)


class SwitchReport(Report):
    """``promote``, ``rollback`` and ``prune``: what serves, or is gone, now."""

    pipeline: str
    generation: int
    done: str
