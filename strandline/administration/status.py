"""Due, held, dead and done work, and the workers there."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from strandline.administration.limits import read_limits
from strandline.administration.replays import report_of
from strandline.pipelines.generations.registry import serving_generations, settings_differing
from strandline.pipelines.replay.records import replays
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.inspection.status import (
    FailingStages,
    LedgerTotals,
    LedgerTotalsRow,
    OldestUnchained,
    StageRates,
    StatusKeys,
    StatusPipelines,
    StatusPipelinesRow,
    StatusTotals,
    StatusTotalsRow,
    StatusWorkers,
    StatusWorkersRow,
    UsedPipelines,
    WaitingMessages,
)
from strandline.schemas.sealed.content import names_encrypted
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import pipeline_named
from strandline.schemas.values.undelivered import Undelivered
from strandline.schemas.wire.work import (
    CallsReport,
    KeyWaitReport,
    ModelCallsReport,
    PipelineReport,
    StageReport,
    Standing,
    StatusReport,
    WorkerReport,
)

RATE_MINUTES = 60
# Of the time of a watch.
MAX_SHARE_OF_TOTALS = 0.05


def read_standing(database: Database, settings: Settings) -> Standing:
    """Waiting work and workers of this database, from a few statements."""
    dead_after = settings.worker_dead_after_seconds
    live = database.fetch(StatusWorkers(dead_after_seconds=dead_after))
    used = {row.pipeline for row in database.fetch(UsedPipelines())}
    differing = settings_differing(serving_generations(database), settings)
    reasons = _reasons(database, live)
    pipelines = [
        _pipeline(row, used, _served_stages(row.generation_id, live), differing, reasons)
        for row in database.fetch(StatusPipelines(dead_after_seconds=dead_after))
    ]
    registered = {pipeline.name for pipeline in pipelines}
    unserved = {pipeline.name for pipeline in pipelines if pipeline.used and not pipeline.served}
    return Standing(
        pipelines=pipelines,
        workers=[_worker(row) for row in live],
        unserved=sorted(unserved | (used - registered)),
        replays=[report_of(replay) for replay in replays(database, unfinished=True)],
        limits=read_limits(database, settings),
        waiting_for_keys=_waiting_for_keys(database),
        unchained_seconds=_find_unchained(database),
    )


def read_rates(database: Database) -> dict[str, list[int]]:
    """Events done in each minute of the last hour, oldest first, by generation and stage (``1/extract``)."""
    rates: dict[str, list[int]] = {}
    for row in database.fetch(StageRates()):
        of_stage = rates.setdefault(f"{row.generation_id}/{row.stage}", [0] * RATE_MINUTES)
        of_stage[RATE_MINUTES - 1 - row.minutes_ago] = row.events
    return rates


def read_status(database: Database, settings: Settings) -> StatusReport:
    """The state of the pipeline in this database."""
    return StatusReader(database, settings).read()


class StatusReader:
    """Reads the status repeatedly; totals, which count whole tables, at most a twentieth of the time."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._totals: tuple[StatusTotalsRow, CallsReport] | None = None
        self._totals_due = 0.0

    def read(self) -> StatusReport:
        """The state now, with the latest totals."""
        standing = read_standing(self._database, self._settings)
        totals, calls = self._latest_totals()
        return StatusReport.of(
            totals,
            model_calls=calls,
            waiting=_find_waiting(self._database),
            **dict(standing),
        )

    def _latest_totals(self) -> tuple[StatusTotalsRow, CallsReport]:
        begun = time.monotonic()
        if self._totals is None or begun >= self._totals_due:
            (totals,) = self._database.fetch(StatusTotals())
            self._totals = totals, _calls(self._database.fetch(LedgerTotals()))
            ended = time.monotonic()
            self._totals_due = ended + (ended - begun) / MAX_SHARE_OF_TOTALS
        return self._totals


def _find_unchained(database: Database) -> float:
    (row,) = database.fetch(OldestUnchained())
    return round(max(0.0, row.seconds or 0.0), 3)


def _find_waiting(database: Database) -> Undelivered | None:
    (row,) = database.fetch(WaitingMessages(shard_key=None))
    return Undelivered(*row) if row.messages else None


def _waiting_for_keys(database: Database) -> list[KeyWaitReport]:
    return [
        KeyWaitReport.of(row, key_ids=row.kek_ids)
        for row in database.fetch(StatusKeys())
        if row.reason.startswith(names_encrypted(row.namespace))
    ]


def _served_stages(generation: int, live: list[StatusWorkersRow]) -> set[str]:
    return {stage for worker in live if generation not in worker.unbuildable for stage in worker.stages}


def _reasons(database: Database, live: list[StatusWorkersRow]) -> dict[str, str]:
    """Workers' reasons for waiting work, by ``generation/stage``; some may be out of date."""
    reasons: dict[str, str] = {}
    for worker in live:
        reasons |= json.loads(worker.condition).get("reasons", {})
    rows = database.fetch(FailingStages()) if reasons else []
    failing = {f"{row.generation_id}/{row.stage}": row.next_attempt_at for row in rows}
    now = datetime.now(UTC)
    return {
        key: f"{reason} The next attempt is at {at:%H:%M:%S %Z}." if at > now else reason
        for key, reason in reasons.items()
        if (at := failing.get(key)) is not None
    }


def _calls(ledger: Sequence[LedgerTotalsRow]) -> CallsReport:
    by_model = [
        ModelCallsReport(model=model, **_sums(list(rows)))
        for model, rows in groupby(ledger, key=attrgetter("model"))
    ]
    return CallsReport(by_model=by_model, **_sums(ledger))


def _sums(ledger: Sequence[LedgerTotalsRow]) -> dict[str, Any]:
    costs = [row.cost_usd for row in ledger if row.cost_usd is not None]
    return {
        "calls": sum(row.calls for row in ledger),
        "input_tokens": sum(row.input_tokens for row in ledger),
        "output_tokens": sum(row.output_tokens for row in ledger),
        "cost_usd": sum(costs) if costs else None,
    }


def _pipeline(
    row: StatusPipelinesRow,
    used: set[str],
    served: set[str],
    differing: Mapping[str, list[str]],
    reasons: Mapping[str, str],
) -> PipelineReport:
    counts = (row.due, row.leased, row.dead)
    due, leased, dead = ({item["stage"]: item for item in json.loads(text)} for text in counts)
    own = pipeline_named(row.pipeline).stages
    names = list(dict.fromkeys([*own, *due, *leased, *dead]))
    stages = [
        _stage(stage, due, leased, dead, reasons.get(f"{row.generation_id}/{stage}")) for stage in names
    ]
    return PipelineReport(
        name=row.pipeline,
        generation=row.generation_id,
        state=row.state,
        due=sum(stage.due for stage in stages),
        leased=sum(stage.leased for stage in stages),
        dead=sum(stage.dead for stage in stages),
        lag_seconds=max((stage.lag_seconds for stage in stages), default=0.0),
        used=row.pipeline in used,
        served=set(names) <= served,
        differences=differing.get(row.pipeline, []) if row.state == "serving" else [],
        stages=stages,
    )


def _stage(
    name: str,
    due: Mapping[str, Mapping[str, Any]],
    leased: Mapping[str, Mapping[str, Any]],
    dead: Mapping[str, Mapping[str, Any]],
    reason: str | None,
) -> StageReport:
    return StageReport(
        name=name,
        due=due.get(name, {}).get("due", 0),
        leased=leased.get(name, {}).get("leased", 0),
        dead=dead.get(name, {}).get("dead", 0),
        lag_seconds=round(max(0.0, float(due.get(name, {}).get("lag_seconds", 0.0))), 3),
        reason=reason if name in due else None,
        retry_at=dead.get(name, {}).get("retry_at"),
        dead_reason=dead.get(name, {}).get("reason"),
    )


def _worker(row: StatusWorkersRow) -> WorkerReport:
    condition = json.loads(row.condition)
    return WorkerReport.of(
        row,
        worker_id=str(row.worker_id),
        started_at=row.started_at.isoformat(),
        beat_seconds_ago=round(max(0.0, float(row.beat_seconds_ago)), 3),
        dropped_hints=condition.get("dropped_hints", 0),
        lost_threads=condition.get("lost_threads", 0),
        no_broker=condition.get("no_broker"),
    )
