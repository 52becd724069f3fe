"""Lanes and leases: one holder at a time, taken over from the dead, and no write by who lost it."""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, get_args

import psycopg
import pytest

from strandline import Memory
from strandline.pipelines.engine.batches import claim, renew
from strandline.pipelines.engine.drain import drain_next
from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.engine.leases import LeaseTerms, lock_lease, release
from strandline.pipelines.engine.stage import Batch, Stage
from strandline.pipelines.flush.flush import flush_by_hand
from strandline.schemas.errors import BudgetError, LeaseLostError, ReplayBudgetError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.rows import StageRow
from strandline.schemas.queries.work.lanes import ReleaseUndrainedLanes
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import SUMMARY_STAGE, Lane
from strandline.workers.in_process import BackgroundRunner
from strandline.workers.worker import Worker
from tests.conftest import MakeMemory, Rig, lock_is_awaited, nothing_due, rows_of, wait_until
from tests.support.opened_rows import clear_only
from tests.support.workers.hand_worker import (
    TERMS,
    CountingStage,
    FixedStages,
    HandWorker,
    contents,
    counting,
    folded,
    say,
    summary_lane,
)

R = TypeVar("R")


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    """A session with three events due in its summary lane."""
    made = make_memory("s", memory_blocks=["summary"])
    say(made, "one", "two", "three")
    return made


@pytest.fixture
def lane(memory: Memory, database_url: str) -> Lane:
    return summary_lane(database_url, "s")


def lane_row(url: str) -> dict[str, Any]:
    ((found,),) = rows_of(url, "SELECT row_to_json(l) FROM strandline.lane l")
    assert isinstance(found, dict)
    return found


def test_a_lane_has_one_holder(database: Database, lane: Lane) -> None:
    first, second = HandWorker(database, counting()), HandWorker(database, counting())
    held = claim(database, lane, first.worker_id, TERMS, 8_000)
    assert held is not None
    assert held.lease.epoch == 1
    assert claim(database, lane, second.worker_id, TERMS, 8_000) is None
    assert second.drain(lane) == "nothing_to_claim"
    release(database, held.lease)
    assert second.drain(lane) == "drained"


def test_no_lane_is_opened_while_its_session_is_forgotten(rig: Rig, lane: Lane) -> None:
    """The batch would be of events that are gone, and nobody would come to close it."""
    worker = HandWorker(rig.database, counting())
    with psycopg.connect(rig.url) as forgetting, ThreadPoolExecutor(1) as threads:
        forgetting.execute(
            "SELECT * FROM strandline.reset_v1(%s, %s, true)", [lane.shard_key, lane.scope_key]
        )
        draining = threads.submit(worker.drain, lane)
        wait_until(lambda: draining.done() or lock_is_awaited(rig.url), timeout=10, what="the worker")
        forgetting.commit()
        assert draining.result(100) == "nothing_to_claim"
    for table in ("batch", "block_state", "answer", "receipt", "due", "flush_event", "message"):
        assert rows_of(rig.url, f"SELECT count(*) FROM strandline.{table}") == [(0,)], table


@clear_only("counts statements; one more asks for keys")
def test_a_batch_runs_three_statements_beside_those_of_its_stage(rig: Rig, lane: Lane) -> None:
    """Each is a round trip, beside those of the stage, of BEGIN and of COMMIT."""
    run: list[str] = []

    class Watched(Database):
        def fetch(self, query: Query[R]) -> list[R]:
            run.append(query.name)
            return super().fetch(query)

    watched = Watched.connect(ConnectionOptions.from_settings(rig.url, rig.settings))
    worker = HandWorker(watched, counting())
    run.clear()
    assert worker.drain(lane) == "drained"
    # (What is held, written, finished and given back is one transaction.)
    assert run == ["claim_lane", "store_answer", "lane_has_work"]
    watched.close()


def test_of_many_that_claim_at_once_one_gets_it(database: Database, lane: Lane) -> None:
    workers = [HandWorker(database, counting()) for _ in range(8)]
    barrier = threading.Barrier(len(workers))

    def race(worker: HandWorker) -> bool:
        barrier.wait()
        return claim(database, lane, worker.worker_id, TERMS, 8_000) is not None

    with ThreadPoolExecutor(len(workers)) as pool:
        assert sum(pool.map(race, workers)) == 1


def test_a_lane_in_an_open_transaction_is_passed_over(rig: Rig, lane: Lane) -> None:
    holder, other = HandWorker(rig.database, counting()), HandWorker(rig.database, counting())
    held = claim(rig.database, lane, holder.worker_id, TERMS, 8_000)
    assert held is not None
    holder.die(rig.url)
    with rig.database.transaction() as tx:
        lock_lease(tx, held.lease)
        # Had it waited, the server would have ended the holder's transaction for its idleness.
        assert other.drain(lane) == "nothing_to_claim"
        lock_lease(tx, held.lease)
    assert other.drain(lane) == "drained"


HOUR, DAY = 3_600.0, 86_400.0
HEARTBEAT = "UPDATE strandline.worker SET heartbeat_at = heartbeat_at - make_interval(secs => %s) RETURNING 1"
DEADLINE = "UPDATE strandline.lane SET deadline_at = deadline_at - make_interval(secs => %s) RETURNING 1"


@pytest.mark.parametrize(("passed", "taken"), [(3_000, False), (3_700, True)])
@pytest.mark.parametrize(
    ("terms", "age"),
    [(LeaseTerms(HOUR, DAY), HEARTBEAT), (LeaseTerms(DAY, HOUR), DEADLINE)],
    ids=["its holder is silent", "its deadline has passed"],
)
def test_a_lane_is_free_once_its_holder_is_silent_or_its_deadline_has_passed(
    rig: Rig, lane: Lane, terms: LeaseTerms, age: str, passed: int, taken: bool
) -> None:
    """An hour here, and by the rows: so nothing depends on how long this test takes."""
    holder, heir = (HandWorker(rig.database, counting(), terms=terms) for _ in range(2))
    assert claim(rig.database, lane, holder.worker_id, terms, 8_000) is not None
    rows_of(rig.url, age, passed)
    assert (claim(rig.database, lane, heir.worker_id, terms, 8_000) is not None) == taken


def test_a_dead_holders_lane_is_taken_over(database: Database, database_url: str, lane: Lane) -> None:
    dead, heir = HandWorker(database, counting()), HandWorker(database, counting())
    held = claim(database, lane, dead.worker_id, TERMS, 8_000)
    assert held is not None
    assert heir.drain(lane) == "nothing_to_claim"
    dead.die(database_url)
    taken = claim(database, lane, heir.worker_id, TERMS, 8_000)
    assert taken is not None
    assert (taken.lease.epoch, taken.lease.crashes) == (2, 1)
    made, found = held.batch(), taken.batch()
    assert made is not None and found is not None
    assert found.batch_id == made.batch_id
    assert found.made_at < made.made_at, "it was found, not made"
    with pytest.raises(LeaseLostError):
        renew(database, held.lease, TERMS, 8_000)
    release(database, held.lease)
    assert lane_row(database_url)["holder"] == str(heir.worker_id), "the old holder cannot give it back"


def test_a_lease_ends_at_its_deadline(database: Database, database_url: str, lane: Lane) -> None:
    slow, other = HandWorker(database, counting()), HandWorker(database, counting())
    assert claim(database, lane, slow.worker_id, LeaseTerms(5.0, 0.05), 8_000) is not None
    wait_until(
        lambda: rows_of(database_url, "SELECT deadline_at < clock_timestamp() FROM strandline.lane")[0][0],
        timeout=5,
        what="the deadline",
    )
    assert other.drain(lane) == "drained"


@pytest.mark.parametrize("point", get_args(StopPoint))
def test_a_holder_that_was_paused_writes_nothing_more(rig: Rig, point: StopPoint, lane: Lane) -> None:
    """At each point the holder sleeps so long that another takes over and finishes; then it wakes up."""
    stage = CountingStage()
    terms = LeaseTerms(dead_after_seconds=0.4, deadline_seconds=600.0)
    heir = HandWorker(rig.database, counting(stage))
    seen: list[Any] = []

    def sleep(reached: StopPoint) -> None:
        if reached == point and not seen:
            paused.die(rig.url)
            seen.append(heir.drain(lane))
            seen.append(contents(rig.url))
            time.sleep(terms.dead_after_seconds)  # no less than what makes it count as dead

    paused = HandWorker(rig.database, counting(stage), terms=terms, reach=sleep, budget=1)
    outcome = paused.drain(lane)
    heir_did, before = seen
    if point == "applying":
        # Inside its transaction it cannot be overtaken, only passed over; after it, it has the lane still.
        assert (heir_did, outcome) == ("nothing_to_claim", "drained")
    else:
        assert (heir_did, outcome) == ("drained", "lost")
        assert contents(rig.url) == before
    assert folded(rig.url) == [1, 2, 3]
    # A call is made twice only if it was made, and its answer not stored, when the holder fell asleep.
    assert stage.calls_made == {"loaded": 2, "called": 3, "stored": 2, "applying": 3, "applied": 2}[point]
    assert rows_of(rig.url, "SELECT outcome, count(*) FROM strandline.receipt GROUP BY 1") == [("applied", 3)]


def test_an_open_batch_is_finished_by_the_next_taker(rig: Rig, lane: Lane, memory: Memory) -> None:
    stage = CountingStage()
    first = HandWorker(rig.database, counting(stage))
    held = claim(rig.database, lane, first.worker_id, TERMS, 8_000)
    assert held is not None
    begun = held.batch()
    assert begun is not None
    assert [event.from_seq for event in begun.events] == [1, 2, 3]
    say(memory, "four")
    first.die(rig.url)
    assert HandWorker(rig.database, counting(stage)).drain(lane) == "drained"
    batches = rows_of(rig.url, "SELECT batch_id, state FROM strandline.batch ORDER BY created_at")
    assert batches[0] == (begun.batch_id, "applied")
    assert len(batches) == 2, "the boundary from before stays; what came later is a batch of its own"
    assert folded(rig.url) == [1, 2, 3, 4]


def test_a_batch_covers_what_fits_into_the_budget(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["summary"], tokenizer_fn=lambda text: int(text.split()[0]))
    say(memory, "8 a", "6 b", "6 c", "100 d", "4 e", "16 f")
    worker = HandWorker(rig.database, counting(), budget=20)
    assert worker.drain(summary_lane(rig.url, "s")) == "drained"
    sizes = rows_of(rig.url, "SELECT cardinality(event_ids) FROM strandline.batch ORDER BY created_at")
    assert [size for (size,) in sizes] == [3, 1, 2], "at least one event, however large"
    assert folded(rig.url) == [1, 2, 3, 4, 5, 6]


def test_an_event_of_a_newer_release_is_left_due_and_a_batch_before_it_clears_the_lane(
    rig: Rig, lane: Lane
) -> None:
    def fail(_batch: Batch) -> None:
        raise ValueError

    doubtful = HandWorker(rig.database, counting(CountingStage(fail=fail)), budget=1)
    for failures in (1, 2):
        wait_until(lambda: doubtful.drain(lane) == "postponed", timeout=5, what="another try")
        assert lane_row(rig.url)["failures"] == failures
    rows_of(rig.url, "UPDATE strandline.flush_event SET version = 99 WHERE from_seq = 2 RETURNING 1")
    worker = HandWorker(rig.database, counting(), budget=1)
    wait_until(lambda: worker.drain(lane) == "postponed", timeout=5, what="the last try")
    row = lane_row(rig.url)
    assert folded(rig.url) == [1]
    assert (row["holder"], row["failures"]) == (None, 0)
    assert re.fullmatch(r"Event \S+ has version 99; .+ Upgrade this process; .+", row["last_error"])


def test_crashes_are_counted_and_have_an_end(database: Database, database_url: str, lane: Lane) -> None:
    for crash in range(3):
        doomed = HandWorker(database, counting(), budget=1)
        held = claim(database, lane, doomed.worker_id, TERMS, 1)
        assert held is not None
        assert (held.lease.crashes, held.lease.failures) == (crash, 0)
        doomed.die(database_url)
    # The third crash is the last: what is first in the lane goes, and the rest is tried as ever.
    assert HandWorker(database, counting(), budget=1).drain(lane) == "drained"
    assert folded(database_url) == [2, 3]
    ((reason, from_seq),) = rows_of(database_url, "SELECT reason, from_seq FROM strandline.dead_letter")
    assert (reason, from_seq) == ("its worker died 3 times in a row", 1)


def test_a_crash_is_forgotten_once_the_lane_gets_on(rig: Rig, lane: Lane) -> None:
    doomed = HandWorker(rig.database, counting())
    assert claim(rig.database, lane, doomed.worker_id, TERMS, 8_000) is not None
    doomed.die(rig.url)
    assert HandWorker(rig.database, counting()).drain(lane) == "drained"
    assert lane_row(rig.url)["crashes"] == 0


def test_a_lane_whose_release_got_lost_is_handed_back(rig: Rig, lane: Lane) -> None:
    worker = HandWorker(rig.database, counting())
    assert claim(rig.database, lane, worker.worker_id, TERMS, 8_000) is not None
    aged = "UPDATE strandline.lane SET leased_at = leased_at - interval '1 minute' RETURNING 1"
    rows_of(rig.url, aged)
    with worker.engine.active.enter(lane):
        assert release_undrained(rig.database, worker) == [], "it is being drained"
        assert worker.drain(lane) == "in_hand"
    assert release_undrained(rig.database, HandWorker(rig.database, counting())) == [], "not another worker's"
    with psycopg.connect(rig.url) as writer:
        writer.execute("SELECT 1 FROM strandline.lane FOR UPDATE")
        # It waits for no lock: this one is held until it has returned.
        assert release_undrained(rig.database, worker) == []
    assert release_undrained(rig.database, worker) == [("summary",)]
    row = lane_row(rig.url)
    assert (row["holder"], row["crashes"]) == (None, 0)
    assert HandWorker(rig.database, counting()).drain(lane) == "drained"


def release_undrained(database: Database, worker: HandWorker) -> list[StageRow]:
    return database.fetch(ReleaseUndrainedLanes(worker_id=worker.worker_id, **worker.engine.active.params()))


def test_what_arrives_while_a_lane_is_released_is_rung_for(rig: Rig, lane: Lane, memory: Memory) -> None:
    """The narrowest gap: nothing is due any more, the release is not committed yet, and a hint is refused."""
    refused: list[Any] = []
    other = HandWorker(rig.database, counting())

    def in_the_gap(point: StopPoint) -> None:
        if point == "applying" and not refused:
            say(memory, "four")
            refused.append(other.drain(lane))

    worker = HandWorker(rig.database, counting(), reach=in_the_gap)
    assert worker.drain(lane) == "drained"
    assert (refused, worker.rung) == (["nothing_to_claim"], [lane])
    assert folded(rig.url) == [1, 2, 3]
    assert other.drain(worker.rung[0]) == "drained"
    assert folded(rig.url) == [1, 2, 3, 4]


def test_a_stopping_worker_leaves_the_rest_to_others_at_once(rig: Rig, lane: Lane) -> None:
    worker = HandWorker(rig.database, counting(), budget=1)
    worker.stopping = True
    assert worker.drain(lane) == "stopped"
    assert folded(rig.url) == [1], "the batch in hand is finished"
    assert worker.rung == [lane]
    assert lane_row(rig.url)["holder"] is None


def no_more_claims(worker: Worker) -> bool:
    with worker.engine.active.permit_claim() as admitted:
        return not admitted


def test_a_worker_that_leaves_takes_no_lane_behind_its_own_back(rig: Rig, lane: Lane) -> None:
    """It waits for a claim under way, since one that came after giving all back would outlive the worker."""
    asked, go_on, leaving, left = (threading.Event() for _ in range(4))

    class Slow(Database):
        def fetch(self, query: Query[R]) -> list[R]:
            if query.name == "claim_lane":
                asked.set()
                assert go_on.wait(100)
            elif query.name == "leave":
                leaving.set()
            return super().fetch(query)

    def until_it_left(_batch: Batch) -> None:
        assert left.wait(100)

    slow = Slow.connect(ConnectionOptions.from_settings(rig.url, rig.settings))
    stages = counting(CountingStage(fail=until_it_left))
    worker = Worker(slow, stages, rig.settings, ring=lambda _lanes: None, with_sweep=False)
    with ThreadPoolExecutor() as threads:
        draining = threads.submit(worker.drain, lane)
        assert asked.wait(100)
        given_back = threads.submit(worker.leave)
        # Its doors are shut, so it waits for the claim, and for nothing else.
        wait_until(lambda: no_more_claims(worker), timeout=10, what="the worker to take nothing more")
        assert not leaving.is_set(), "a claim is under way"
        go_on.set()
        assert given_back.result(100) == [lane]
        left.set()
        assert draining.result(100) == "lost"
    row = lane_row(rig.url)
    assert (row["holder"], row["crashes"]) == (None, 0)
    assert worker.drain(lane) == "stopped"
    assert lane_row(rig.url)["lease_epoch"] == row["lease_epoch"]
    slow.close()


NOT_TRIED = pytest.mark.parametrize("error", [BudgetError("calls", 60.0), ReplayBudgetError(0.0)])


@NOT_TRIED
def test_a_lane_given_back_for_a_budget_keeps_what_befell_it(rig: Rig, error: Exception) -> None:
    """Otherwise each wait would restart the count of a batch that kills workers."""
    say(rig.memory("s"), "one")
    befell = {"crashes": 2, "failures": 1, "postponements": 3, "last_error": "why"}
    lane = summary_lane(rig.url, "s")

    def refuse(_batch: object) -> None:
        raise error

    worker = HandWorker(rig.database, counting(CountingStage(fail=refuse)))
    assert worker.drain(lane) == "postponed"
    changes = ", ".join(f"{name} = %s" for name in befell)
    rows_of(rig.url, f"UPDATE strandline.lane SET {changes} RETURNING 1", *befell.values())
    assert worker.drain(lane) == "postponed"
    row = lane_row(rig.url)
    assert {name: row[name] for name in befell} == befell
    assert (row["holder"], row["deadline_at"]) == (None, None)


@pytest.mark.parametrize("served", [True, False])
def test_a_lane_given_back_by_a_worker_that_cannot_serve_it_keeps_what_befell_it(
    rig: Rig, served: bool
) -> None:
    """It learns that only when the lane is its own."""
    say(rig.memory("s"), "one")
    lane = summary_lane(rig.url, "s")
    other = Lane(lane.shard_key, lane.scope_key, 0, lane.stage)

    class Some(FixedStages):
        def of(self, generation_id: int, stage: str) -> Stage[Any, Any] | None:
            return self[stage] if served or not generation_id else None

    worker = HandWorker(rig.database, Some({SUMMARY_STAGE: CountingStage()}))
    rows_of(
        rig.url,
        "INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage, crashes, last_error)"
        " VALUES (%s, %s, %s, %s, 2, 'why') RETURNING 1",
        *lane.to_args(),
    )
    turn = drain_next(worker.engine, other)
    assert (turn.lane, turn.outcome) == (lane, "drained" if served else "unserved")
    row = lane_row(rig.url)
    assert (row["crashes"], row["last_error"]) == ((0, None) if served else (2, "why"))
    assert row["holder"] is None


@NOT_TRIED
def test_a_lane_that_cannot_be_given_back_for_a_budget_is_lost_and_nothing_is_raised(
    rig: Rig, error: Exception
) -> None:
    say(rig.memory("s"), "one")
    here = Database.connect(ConnectionOptions.from_settings(rig.url, rig.settings))

    def refuse_while_away(_batch: object) -> None:
        here.close()
        raise error

    worker = HandWorker(here, counting(CountingStage(fail=refuse_while_away)))
    assert worker.drain(summary_lane(rig.url, "s")) == "lost"


def test_no_wake_up_is_lost(make_memory: MakeMemory, database: Database, database_url: str) -> None:
    """Threads flush while two workers drain; no sweep makes up for a hint that no worker followed."""
    settings = load_settings(database_url=database_url, sweep_interval_seconds=3600.0)
    runners = [BackgroundRunner(database, counting(), settings) for _ in range(2)]
    for runner in runners:
        runner.start()
    sessions = ["a", "b"]
    memories = [make_memory(name, memory_blocks=["summary"]) for name in sessions]

    def flush(thread: int) -> None:
        keys = identify_session("default", sessions[thread % 2], None)
        for number in range(40):
            memories[thread % 2].put({"role": "user", "content": f"{thread} {number}"})
            flushed = database.run(flush_by_hand(keys.keys, everything=True))
            if flushed is not None:
                runners[(thread + number) % 2].ring(flushed.lanes)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(flush, range(4)))
    try:
        wait_until(lambda: nothing_due(database_url), timeout=15, what="every wake-up to be heeded")
    finally:
        for runner in runners:
            runner.stop()
    assert rows_of(database_url, "SELECT sum(message_count) FROM strandline.flush_event") == [(160,)]
    events = rows_of(
        database_url, "SELECT from_seq FROM strandline.flush_event ORDER BY session_key, from_seq"
    )
    states = "SELECT state->'folded' FROM strandline.block_state ORDER BY scope_key, through_seq"
    assert [seq for (seqs,) in rows_of(database_url, states) for seq in seqs] == [seq for (seq,) in events]
