"""Replays beside resets: whoever comes first, nothing is left that speaks of an event that is gone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, TypeVar

import psycopg
import pytest

from strandline import Memory
from strandline.erasure import Erasures
from strandline.pipelines.generations.registry import find, recipe_params, serving_generations
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.filling import make_due
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Selection, claim_replay
from strandline.pipelines.replay.switching import pause_owner, prune, prune_owner, switch_owner
from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.query import Query
from strandline.schemas.postgres.statements import with_fragments
from strandline.schemas.queries.derived.generations import (
    BeginGeneration,
    BeginServing,
    EndBackfill,
    EndServing,
    FeedGeneration,
    ForgetOwnersGenerations,
    LockPipeline,
    RetireGeneration,
    SwitchOwner,
    TransactionsBegun,
    TransactionsUnderWay,
)
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from tests.conftest import MakeMemory, Rig, lock_is_awaited, nothing_due, rows_of, wait_until
from tests.support.stored import stored_chunks
from tests.support.workers.draining import drain_everything, due_lanes
from tests.support.workers.hand_worker import HandWorker, say
from tests.support.workers.scripted_stages import ScriptedStages

R = TypeVar("R")
OWNER = identify_user("default", "maren").shard_key
# As a worker does that finds the work of a session's former life.
MADE_VOID = """
WITH gone AS (DELETE FROM strandline.due WHERE generation_id = %s RETURNING *)
INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)
SELECT shard_key, event_id, generation_id, stage, 'void' FROM gone RETURNING 1
"""


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    return make_memory("s", user_id="maren")


@pytest.fixture
def worker(database: Database) -> HandWorker:
    return HandWorker(database, ScriptedStages())


def drain(worker: HandWorker, database_url: str) -> None:
    while not nothing_due(database_url):
        assert "drained" in worker.drain_all(database_url)


def begin_another(database: Database, pipeline: str) -> int:
    """A generation as the one that serves, which flushes feed, not filled yet."""
    (begun,) = database.fetch(
        BeginGeneration(**recipe_params(pipeline, serving_generations(database)[pipeline].recipe))
    )
    database.fetch(FeedGeneration(generation_id=begun.generation_id))
    return begun.generation_id


def fill(fetcher: Any, generation_id: int) -> int:
    generation = find(fetcher, generation_id)
    assert generation is not None
    return make_due(fetcher, generation, OWNER, Selection())[0]


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
@pytest.mark.parametrize("known", [True, False], ids=["of this life", "of a former life"])
def test_a_reset_that_forgets_takes_along_what_a_replay_is_just_making_due(
    rig: Rig, memory: Memory, worker: HandWorker, pipeline: str, known: bool
) -> None:
    say(memory, "my boat is blue", "my cat is old")
    if not known:
        memory.reset()
    else:
        drain(worker, rig.url)
    generation_id = begin_another(rig.database, pipeline)
    with ThreadPoolExecutor(1) as pool:
        with rig.database.transaction() as tx:
            assert fill(tx, generation_id) == 2
            forgetting = pool.submit(memory.reset, derived=True)
            wait_until(lambda: forgetting.done() or lock_is_awaited(rig.url), timeout=60, what="the reset")
        forgetting.result(300)
    rig.database.fetch(EndBackfill(generation_id=generation_id))
    drain(worker, rig.url)
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("pipeline", [FACTS, VECTORS])
def test_a_replay_makes_nothing_due_of_what_a_reset_is_just_forgetting(
    rig: Rig, memory: Memory, worker: HandWorker, pipeline: str
) -> None:
    say(memory, "my boat is blue", "my cat is old")
    drain(worker, rig.url)
    generation_id = begin_another(rig.database, pipeline)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(rig.url) as connection:
        memory.reset(derived=True, connection=connection)
        filling = pool.submit(fill, rig.database, generation_id)
        wait_until(lambda: filling.done() or lock_is_awaited(rig.url), timeout=60, what="the replay")
        connection.commit()
        assert filling.result(300) == 0
    rig.database.fetch(EndBackfill(generation_id=generation_id))
    drain(worker, rig.url)
    assert verify(rig.database, deep=True).violations == ()


def test_a_reset_that_forgets_takes_along_what_a_lane_opened_meanwhile_passes_on(
    rig: Rig, memory: Memory, worker: HandWorker
) -> None:
    """No worker has been at the session before, so the reset finds no lane of it to hold."""
    say(memory, "my boat is blue")
    (extracting,) = (lane for lane in due_lanes(rig.url) if lane.stage == "extract")
    with ThreadPoolExecutor(1) as pool:
        forgotten: list[Any] = []

        def forget_meanwhile(point: str) -> None:
            if point == "applying" and not forgotten:
                forgotten.append(pool.submit(memory.reset, derived=True))
                wait_until(
                    lambda: forgotten[0].done() or lock_is_awaited(rig.url),
                    timeout=60,
                    what="the reset",
                )

        HandWorker(rig.database, ScriptedStages(), reach=forget_meanwhile).drain(extracting)
        forgotten[0].result(300)
    drain(worker, rig.url)
    assert verify(rig.database, deep=True).violations == ()


def test_a_generation_waits_for_every_transaction_that_has_written(rig: Rig) -> None:
    """Also for one whose number is higher than those of all that have ended."""
    with psycopg.connect(rig.url) as connection:
        connection.execute("SELECT pg_current_xact_id()")
        (target,) = rig.database.fetch(TransactionsBegun())
        assert rig.database.fetch(TransactionsUnderWay())[0].number < target.number
        connection.commit()
    wait_until(
        lambda: rig.database.fetch(TransactionsUnderWay())[0].number >= target.number,
        timeout=60,
        what="all that began before to end",
    )


@pytest.mark.parametrize("switched_first", [True, False])
def test_a_generation_that_an_owner_is_just_switched_to_is_not_pruned(
    rig: Rig, memory: Memory, worker: HandWorker, switched_first: bool
) -> None:
    """Who comes second waits, and sees the other; else a generation without rows would serve the owner."""
    number = begin_another(rig.database, VECTORS)
    rig.database.fetch(EndBackfill(generation_id=number))
    generation = find(rig.database, number)
    assert generation is not None
    switch = SwitchOwner(shard_key=OWNER, generation_id=number, last_stage=VECTORS)
    with ThreadPoolExecutor(1) as pool:
        with rig.database.transaction() as tx:
            if switched_first:
                assert tx.fetch(switch)
                second: Future[Any] = pool.submit(prune, rig.database, number)
            else:
                tx.fetch(LockPipeline(pipeline=VECTORS))
                assert tx.fetch(RetireGeneration(generation_id=number))
                second = pool.submit(switch_owner, rig.database, generation, OWNER)
            wait_until(lambda: second.done() or lock_is_awaited(rig.url), timeout=60, what="the second one")
        if switched_first:
            with pytest.raises(ReplayError, match="serves; promote another one first"):
                second.result(300)
        else:
            assert not second.result(300)


def test_an_owner_that_is_just_paused_is_not_kept_in_a_generation_that_stops_serving(
    rig: Rig, memory: Memory, worker: HandWorker
) -> None:
    number = begin_another(rig.database, VECTORS)
    rig.database.fetch(EndBackfill(generation_id=number))
    with ThreadPoolExecutor(1) as pool:
        with rig.database.transaction() as tx:
            tx.fetch(LockPipeline(pipeline=VECTORS))
            tx.fetch(EndServing(pipeline=VECTORS, generation_id=number))
            assert tx.fetch(BeginServing(generation_id=number))
            tx.fetch(ForgetOwnersGenerations(pipeline=VECTORS))
            pausing = pool.submit(pause_owner, rig.database, VECTORS, OWNER)
            wait_until(lambda: pausing.done() or lock_is_awaited(rig.url), timeout=60, what="the pause")
        pausing.result(300)
    row = with_fragments("SELECT generation_id FROM @serving(%s, '{vectors}') AS serving")
    assert rows_of(rig.url, row, OWNER) == [(number,)]


def test_pruning_takes_along_what_a_worker_is_just_writing(
    rig: Rig, memory: Memory, worker: HandWorker
) -> None:
    say(memory, "my boat is blue")
    (lane,) = (lane for lane in due_lanes(rig.url) if lane.stage == "vectors")
    with ThreadPoolExecutor(1) as pool:
        pruning: list[Any] = []

        def prune_meanwhile(point: str) -> None:
            if point == "applying":
                pruning.append(pool.submit(prune_owner, rig.database, OWNER, lane.generation_id))
                wait_until(lambda: lock_is_awaited(rig.url), timeout=60, what="the pruning to wait")

        HandWorker(rig.database, ScriptedStages(), reach=prune_meanwhile).drain(lane)
        assert pruning[0].result(300) == 1, "it has seen the receipt"
    for table in ("chunk", "receipt", "batch", "lane", "due"):
        counted = f"SELECT count(*) FROM strandline.{table} WHERE generation_id = %s"
        assert rows_of(rig.url, counted, lane.generation_id) == [(0,)], table


def test_a_replay_in_place_writes_nothing_of_what_was_forgotten_since_it_was_read(
    rig: Rig, memory: Memory, worker: HandWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(memory, "my boat is blue")
    drain(worker, rig.url)
    fetch = Database.fetch
    forgotten: list[Any] = []

    def forget_after_reading(self: Database, query: Query[R]) -> list[R]:
        rows = fetch(self, query)
        if query.name == "stored_answers" and not forgotten:
            forgotten.append(rows)
            memory.reset(derived=True)
        return rows

    monkeypatch.setattr(Database, "fetch", forget_after_reading)
    local = rig.settings.model_copy(update={"embedding_backend": "local"})
    found = replay_in_place(rig.database, begin_in_place(rig.database, VECTORS, Selection()), local)
    assert forgotten and found.rewritten == 0
    assert stored_chunks(rig.url) == 0
    assert verify(rig.database, deep=True).violations == ()


def test_a_replay_ends_though_others_say_something_all_the_time(rig: Rig, memory: Memory) -> None:
    """Work that a reset voided meanwhile is derived again, whatever is due for owners who are switched."""
    worker = HandWorker(rig.database, ScriptedStages())
    busy = rig.memory("busy", user_id="nils")
    say(memory, "my boat is blue")
    drain(worker, rig.url)
    local = rig.settings.model_copy(update={"text_backend": "local", "embedding_backend": "local"})
    replay = begin_generation(rig.database, SUMMARY, local, force=True)
    say(busy, "my cat is old")
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool, ExitStack() as ending:
        ending.callback(stop.set)
        deriving = pool.submit(derive_generation, rig.database, replay, stop=stop)
        filled = "SELECT 1 FROM strandline.generation WHERE generation_id = %s AND fed_since = '-infinity'"
        wait_until(lambda: rows_of(rig.url, filled, replay.generation_id), timeout=60, what="the log")
        memory.reset()

        def derive_and_look() -> bool:
            for lane in due_lanes(rig.url):
                if lane.shard_key == OWNER:
                    worker.drain(lane)
            return deriving.done()

        wait_until(derive_and_look, timeout=120, what="the replay to end")
        assert deriving.result().phase == "done"
    assert not nothing_due(rig.url), "nobody has worked for the other one"
    assert verify(rig.database, deep=True).violations == ()


# A replay passes over an owner while their erasure is unfinished.


class Died(Exception):
    pass


def die_behind_the_fence(step: str, _table: str, _rows: int) -> None:
    if step != "fence":
        raise Died


@pytest.fixture
def derive(database: Database, database_url: str, settings: Settings) -> Callable[[], None]:
    return lambda: drain_everything(database, database_url, settings)


@pytest.fixture
def memories(make_memory: MakeMemory, derive: Callable[[], None]) -> list[Memory]:
    made = [make_memory(f"s-{user}", user_id=user) for user in ("ana", "ben")]
    for memory in made:
        say(memory, "my boat is blue")
    derive()
    return made


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
@pytest.mark.parametrize("is_filled_first", [True, False])
@pytest.mark.parametrize("hold", [True, False])
def test_a_replay_ends_beside_an_erasure_whose_process_ended(
    rig: Rig,
    memories: list[Memory],
    derive: Callable[[], None],
    pipeline: str,
    *,
    is_filled_first: bool,
    hold: bool,
) -> None:
    """No worker takes the work that is due for such an owner."""
    replay = begin_generation(rig.database, pipeline, rig.settings, force=True, hold=hold)
    if is_filled_first:
        stop = threading.Event()

        def stop_when_filled(progress: Progress) -> None:
            if progress.phase in ("switching", "deriving"):
                stop.set()

        derive_generation(rig.database, replay, on_progress=stop_when_filled, stop=stop)
        replay = claim_replay(rig.database, replay.replay_id)
    erasures = Erasures.of_namespace(database_url=rig.url)
    with pytest.raises(Died):
        erasures.erase_user("ana", on_progress=die_behind_the_fence)
    passes = 0

    def derive_on_look(progress: Progress) -> None:
        nonlocal passes
        derive()
        passes += 1
        assert passes < 50, progress

    progress = derive_generation(rig.database, replay, on_progress=derive_on_look)
    assert progress.phase == ("held" if hold else "done")
    erasures.erase_user("ana")
    derive()
    assert not verify(rig.database).violations
    assert not rows_of(rig.url, "SELECT FROM strandline.due")


@pytest.mark.parametrize("stages", [(), ("extract",)], ids=["nothing", "extracted"])
@pytest.mark.parametrize("is_void", [False, True], ids=["pending", "void already"])
def test_a_reset_keeps_no_generation_from_what_the_one_before_knows(
    database: Database,
    database_url: str,
    memory: Memory,
    worker: HandWorker,
    stages: tuple[str, ...],
    *,
    is_void: bool,
) -> None:
    """Of an event that the one before has applied, and the new one has not, when its session is reset."""
    say(memory, "my boat is blue")
    drain(worker, database_url)
    serving = serving_generations(database)[FACTS].generation_id
    generation = find(database, begin_another(database, FACTS))
    assert generation is not None
    fill(database, generation.generation_id)
    database.fetch(EndBackfill(generation_id=generation.generation_id))
    drain(worker, database_url)
    say(memory, "my tender is called Pip")
    for stage in ("extract", "merge"):
        for lane in due_lanes(database_url, [stage]):
            if lane.generation_id == serving or stage in stages:
                worker.drain(lane)
    memory.reset()
    if is_void:
        rows_of(database_url, MADE_VOID, generation.generation_id)
    drain(worker, database_url)
    fill(database, generation.generation_id)
    drain(worker, database_url)
    assert switch_owner(database, generation, OWNER)
    assert [fact.text for fact in memory.facts.list() if "Pip" in fact.text] != []
    assert verify(database, deep=True).violations == ()
