"""The database's clock steps back by an hour: nothing that was written before it stalls the work after it.

No clock is turned: what such a step leaves is rows whose times lie an hour ahead.
"""

from __future__ import annotations

import psycopg

from strandline.administration.status import read_status
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.replay import TakeReplayCall
from strandline.schemas.queries.work.lanes import BringRingsForward, OrphanedLanes
from strandline.schemas.values.lanes import STAGES, SUMMARY_STAGE, Lane
from strandline.workers.sweep import Sweep
from strandline.workers.worker import Worker
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.workers.busy_workers import QUICK_TAKE_OVER, check_done_once, converse, environment
from tests.support.workers.draining import due_lanes
from tests.support.workers.hand_worker import TERMS, CountingStage, FixedStages, HandWorker

STEP = "interval '1 hour'"
AHEAD = (
    f"UPDATE strandline.worker SET heartbeat_at = heartbeat_at + {STEP}, started_at = started_at + {STEP}",
    f"UPDATE strandline.lane SET next_attempt_at = next_attempt_at + {STEP}, leased_at = leased_at + {STEP},"
    f" postponed_at = postponed_at + {STEP}, deadline_at = deadline_at + {STEP}",
    f"UPDATE strandline.due SET ring_at = ring_at + {STEP}, created_at = created_at + {STEP}",
    f"UPDATE strandline.replay_budget SET filled_at = filled_at + {STEP}",
    f"UPDATE strandline.scope_generation SET paused_until = paused_until + {STEP}",
)
HOLD = (
    "INSERT INTO strandline.scope_generation (shard_key, pipeline, generation_id, paused_until)"
    " SELECT DISTINCT d.shard_key, g.pipeline, g.generation_id, clock_timestamp() + interval '50 seconds'"
    " FROM strandline.due d JOIN strandline.generation g USING (generation_id)"
)


def step_back(url: str) -> None:
    """Leave the rows as a step of the clock by an hour does."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in AHEAD:
            connection.execute(statement.encode())


def one_lane(make_memory: MakeMemory, url: str) -> Lane:
    memory = make_memory("s", memory_blocks=None)
    memory.put({"role": "user", "content": "the harbour is open"})
    memory.flush(all=True)
    (lane,) = due_lanes(url, [SUMMARY_STAGE])
    return lane


def hand_worker(database: Database) -> HandWorker:
    return HandWorker(database, FixedStages({SUMMARY_STAGE: CountingStage()}))


def test_work_of_before_the_step_is_done_after_it(rig: Rig) -> None:
    """A worker dies with lanes in hand, others wait after an error, hints are lost: then comes the step."""
    rig.model.behave(status=503)
    doomed = rig.start_worker(**environment(rig.model))
    converse(rig.memory, 4, 1, broker_url=rig.broker_url)
    postponed = "SELECT count(*) FROM strandline.lane WHERE postponements > 0"
    wait_until(lambda: rows_of(rig.url, postponed) != [(0,)], timeout=60, what="lanes that wait")
    rig.model.behave(hang=True)
    held = "SELECT count(*) FROM strandline.lane WHERE holder IS NOT NULL"
    wait_until(lambda: rows_of(rig.url, held) != [(0,)], timeout=60, what="a lane in the worker's hand")
    doomed.kill()
    rig.model.behave()
    step_back(rig.url)
    rig.start_worker(**environment(rig.model, **QUICK_TAKE_OVER))
    wait_until(lambda: nothing_due(rig.url), timeout=90, what="all of it to be done")
    check_done_once(rig.database, rig.url, 4)


def test_a_heartbeat_that_lies_ahead_is_none(rig: Rig) -> None:
    lane = one_lane(rig.memory, rig.url)
    gone, heir = hand_worker(rig.database), hand_worker(rig.database)
    rows_of(
        rig.url,
        "SELECT * FROM strandline.claim_lane_v1(%s, %s, %s, %s, %s, 5, 600)",
        *lane.to_args(),
        gone.worker_id,
    )
    assert heir.drain(lane) == "nothing_to_claim"
    step_back(rig.url)
    heir.beat()
    orphaned = OrphanedLanes(stages=list(STAGES), dead_after_seconds=TERMS.dead_after_seconds, limit=10)
    assert [Lane(*row) for row in rig.database.fetch(orphaned)] == [lane]
    assert [worker.worker_id for worker in read_status(rig.database, rig.settings).workers] == [
        str(heir.worker_id)
    ]
    assert heir.drain(lane) == "drained"


def test_a_wait_that_begins_in_the_future_is_over(rig: Rig) -> None:
    lane = one_lane(rig.memory, rig.url)
    worker = hand_worker(rig.database)
    opened = "INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage, next_attempt_at)"
    later = f"clock_timestamp() + {STEP}"
    rows_of(rig.url, f"{opened} VALUES (%s, %s, %s, %s, {later}) RETURNING 1", *lane.to_args())
    assert worker.drain(lane) == "nothing_to_claim", "an hour is a wait like any other"
    rows_of(rig.url, f"UPDATE strandline.lane SET postponed_at = {later} RETURNING 1")
    assert worker.drain(lane) == "drained"


def test_work_is_rung_for_though_its_time_lies_ahead(rig: Rig) -> None:
    lane = one_lane(rig.memory, rig.url)
    rung: list[Lane] = []
    sweep = Sweep(
        rig.database,
        ring=rung.extend,
        take_over=lambda _lanes: None,
        stages=[SUMMARY_STAGE],
        batch_size=10,
        dead_after_seconds=1_800.0,
    )
    step_back(rig.url)
    sweep.tick()
    assert rung == [lane]
    waits = "SELECT ring_at < clock_timestamp() + interval '11 seconds'"
    assert rows_of(rig.url, f"{waits} FROM strandline.due WHERE stage = 'summary'") == [(True,)]


def test_what_a_replay_has_not_been_begun_for_is_not_rung_for(rig: Rig) -> None:
    one_lane(rig.memory, rig.url)
    rows_of(rig.url, "UPDATE strandline.due SET ring_at = 'infinity' RETURNING 1")
    rig.database.fetch(BringRingsForward(stages=list(STAGES), limit=10))
    assert set(rows_of(rig.url, "SELECT ring_at = 'infinity' FROM strandline.due")) == {(True,)}


def test_a_worker_s_leases_end_no_later_than_one_that_begins_now(rig: Rig) -> None:
    lane = one_lane(rig.memory, rig.url)
    worker = Worker(
        rig.database,
        FixedStages({SUMMARY_STAGE: CountingStage()}),
        rig.settings,
        ring=lambda _lanes: None,
        with_sweep=False,
    )
    claim = "SELECT * FROM strandline.claim_lane_v1(%s, %s, %s, %s, %s, 5, 600)"
    with worker.engine.active.enter(lane):
        rows_of(rig.url, claim, *lane.to_args(), worker.worker_id)
        step_back(rig.url)
        worker._keep_up()
        ends = "SELECT holder, deadline_at <= clock_timestamp() + interval '600 seconds' FROM strandline.lane"
        assert rows_of(rig.url, ends) == [(worker.worker_id, True)]


def test_an_owner_is_held_for_a_switch_no_longer_than_a_minute(rig: Rig) -> None:
    lane = one_lane(rig.memory, rig.url)
    worker = hand_worker(rig.database)
    rows_of(rig.url, f"{HOLD} RETURNING 1")
    assert worker.drain(lane) == "nothing_to_claim"
    step_back(rig.url)
    worker.beat()
    assert worker.drain(lane) == "drained"


def test_the_budget_of_replays_fills_up_though_it_was_filled_in_the_future(rig: Rig) -> None:
    lane = one_lane(rig.memory, rig.url)
    call = TakeReplayCall(shard_key=lane.shard_key, calls_per_second=0.01)
    waits = [rig.database.fetch(call)[0].wait_seconds for _call in range(3)]
    assert waits[0] == 0 < waits[-1]
    step_back(rig.url)
    assert rig.database.fetch(call)[0].wait_seconds == 0
