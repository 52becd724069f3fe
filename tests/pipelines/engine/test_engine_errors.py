"""Errors during work: outages that do not count, bad input that fails alone, defects, and resets."""

from __future__ import annotations

import json
import logging
import re
import threading
from contextlib import closing
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import Memory
from strandline.cli.entry import run
from strandline.pipelines.engine.failures import Refusals, RetryPolicy
from strandline.pipelines.engine.stage import Batch
from strandline.pipelines.generations.stages import GenerationStages
from strandline.schemas.errors import (
    DatabaseRightsError,
    PermanentModelError,
    SchemaError,
    TransientModelError,
)
from strandline.schemas.postgres.database import Database, drive
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.work.lanes import ReleaseUndrainedLanes
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, SUMMARY_STAGE, VECTORS_STAGE, Lane
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.stored import dead_letters, kept_answers
from tests.support.workers.draining import due_lanes
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

SECRET = "zyzzyva-4711"
# Only for a model that never answers: one that does may take as long as the machine takes.
HASTY = {"model_timeout_seconds": 0.3}
LONG = RetryPolicy(base_seconds=10.0, max_seconds=600.0, max_failures=3, max_crashes=3)


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    made = make_memory("s", memory_blocks=["summary"])
    say(made, "one", "two", "three")
    return made


def with_model(database: Database, model_settings: Settings, stage: str, **options: Any) -> HandWorker:
    return HandWorker(database, prepare_stages(database, model_settings, [stage]), **options)


def lane_row(url: str) -> dict[str, Any]:
    ((found,),) = rows_of(
        url,
        "SELECT row_to_json(l) FROM (SELECT *, extract(epoch FROM next_attempt_at - clock_timestamp())"
        " AS wait FROM strandline.lane) AS l",
    )
    assert isinstance(found, dict)
    return found


def try_again_now(url: str) -> None:
    rows_of(url, "UPDATE strandline.lane SET next_attempt_at = clock_timestamp() RETURNING 1")


def test_a_denied_right_postpones_until_it_is_granted(
    rig: Rig, memory: Memory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.pipelines.engine.drain.REFUSALS", Refusals())
    lane, role = summary_lane(rig.url, "s"), f"denied_{uuid4().hex}"
    options = ConnectionOptions.from_settings(f"{rig.url}&options=-c%20role%3D{role}", rig.settings)
    with psycopg.connect(rig.url, autocommit=True) as owner, closing(Database.connect(options)) as database:
        owner.execute(f"CREATE ROLE {role}".encode())
        owner.execute(f"GRANT ALL ON SCHEMA strandline TO {role}".encode())
        owner.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA strandline TO {role}".encode())
        owner.execute(f"REVOKE INSERT ON strandline.block_state FROM {role}".encode())
        worker = HandWorker(database, counting(), retry=LONG)
        for _attempt in range(6):  # more often than LONG allows failures
            assert worker.drain(lane) == "postponed"
            row = lane_row(rig.url)
            assert row["failures"] == 0
            assert "(permission denied for table block_state)" in row["last_error"]
            try_again_now(rig.url)
        owner.execute(f"GRANT INSERT ON strandline.block_state TO {role}".encode())
        assert worker.drain(lane) == "drained"
        owner.execute(f"DROP OWNED BY {role}".encode())
        owner.execute(f"DROP ROLE {role}".encode())
    assert dead_letters(rig.url) == 0
    loud = [one.message for one in caplog.records if one.levelno >= logging.WARNING]
    assert loud == ["database refuses", "database refuses no more"]


def test_refusals_are_logged_as_they_begin_and_end(caplog: pytest.LogCaptureFixture) -> None:
    refusals, denied = Refusals(), DatabaseRightsError("denied")
    one, other = object(), object()
    refusals.settle(one, "sweep")
    refusals.note(one, "sweep", TransientModelError("no refusal"))
    for error in (denied, SchemaError("gone")):
        for owner in (one, other, one):
            refusals.note(owner, "sweep", error)
            refusals.note(owner, "upkeep", error)
        for work in ("sweep", "upkeep", "sweep"):
            refusals.settle(one, work)
        refusals.settle(other, "sweep")
        assert [record.message for record in caplog.records] == ["database refuses"]
        refusals.settle(other, "upkeep")
        assert [record.message for record in caplog.records][1:] == ["database refuses no more"]
        caplog.clear()


def test_a_refusal_whose_work_another_worker_does_ends_in_the_log_too(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, now = Refusals(), 1_000.0
    monkeypatch.setattr("strandline.pipelines.engine.failures.time.monotonic", lambda: now)
    refusals.note(object(), "stage", DatabaseRightsError("denied"))
    now += 301
    refusals.settle(object(), "sweep")
    assert [record.message for record in caplog.records] == ["database refuses", "database refuses no more"]


def outage(server: ModelServer, kind: str) -> None:
    if kind == "hang":
        server.behave(hang=True)
    elif kind == "refused connection":
        server.close()
    else:
        server.behave(status=int(kind), message=SECRET, retry_after="0.01" if kind == "429" else None)


@pytest.mark.parametrize("kind", ["500", "429", "401", "hang", "refused connection"])
def test_an_outage_postpones_and_counts_nothing(
    rig: Rig, kind: str, memory: Memory, model_settings: Settings
) -> None:
    with ModelServer() as server:
        update = {"openai_base_url": server.base_url, "provider_probe_seconds": 0.05}
        if kind == "hang":
            update |= HASTY
        worker = with_model(rig.database, model_settings.model_copy(update=update), SUMMARY_STAGE, retry=LONG)
        lane = summary_lane(rig.url, "s")
        outage(server, kind)
        for _attempt in range(6):  # more often than LONG allows failures
            wait_until(partial(may_ask, worker), timeout=5, what="the next probe to be due")
            assert worker.drain(lane) == "postponed"
            row = lane_row(rig.url)
            assert (row["failures"], row["crashes"]) == (0, 0)
            assert row["wait"] > 4
            assert re.match(r"The model server ", row["last_error"])
            assert SECRET not in row["last_error"]
            wait_until(partial(may_ask, worker), timeout=5, what="the next probe to be due")
            assert worker.drain(lane) == "nothing_to_claim", "not before its time"
            try_again_now(rig.url)
        assert dead_letters(rig.url) == 0
    with ModelServer() as back:
        model_settings = model_settings.model_copy(update={"openai_base_url": back.base_url})
        assert with_model(rig.database, model_settings, SUMMARY_STAGE).drain(lane) == "drained"
    row = lane_row(rig.url)
    assert (row["postponements"], row["last_error"]) == (0, None)
    assert nothing_due(rig.url)


def may_ask(worker: HandWorker) -> bool:
    assert isinstance(worker.stages, GenerationStages)
    return worker.stages[SUMMARY_STAGE].wait_seconds() == 0


def test_a_model_that_is_down_is_asked_by_probes_alone(rig: Rig, model_settings: Settings) -> None:
    """However many lanes have work: none of them is touched, and nothing of theirs is sent."""
    for number in range(10):
        say(rig.memory(f"s{number}", memory_blocks=["summary"]), "one")
    worker = with_model(rig.database, model_settings, SUMMARY_STAGE)
    rig.model.behave(status=500)
    lanes = due_lanes(rig.url, [SUMMARY_STAGE])
    assert [worker.drain(lane) for lane in lanes] == ["postponed"] * 10
    sent = [prompt_of(request) for request in rig.model.requests]
    assert len(sent) == 3, "one call, also in the plainest form, and the probe that showed whose fault it was"
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.lane") == [(1,)]
    rig.model.behave()
    wait_until(partial(may_ask, worker), timeout=5, what="the next probe to be due")
    try_again_now(rig.url)
    assert [worker.drain(lane) for lane in lanes] == ["drained"] * 10
    assert dead_letters(rig.url) == 0


def prompt_of(request: RecordedRequest) -> str:
    return str(request.body["messages"][-1]["content"])


@pytest.mark.parametrize("kind", ["500", "hang"])
def test_input_that_fails_alone_becomes_a_dead_letter_alone(
    rig: Rig, kind: str, model_settings: Settings
) -> None:
    """Nothing else is asked meanwhile: that the provider is well is what the probes show."""

    def fail_for_poison(request: RecordedRequest) -> Raw | None:
        if "poison" not in prompt_of(request):
            return None
        if kind == "hang":
            server.closing.wait(60.0)
        return Raw(500, b"{}")

    say(rig.memory("s", memory_blocks=["summary"]), "one", "poison", "three")
    with ModelServer() as server:
        update = {"openai_base_url": server.base_url} | (HASTY if kind == "hang" else {})
        worker = with_model(rig.database, model_settings.model_copy(update=update), SUMMARY_STAGE)
        server.behave(responder=fail_for_poison)
        lane = summary_lane(rig.url, "s")
        outcomes = []
        while not nothing_due(rig.url):
            outcomes.append(worker.drain(lane))
            try_again_now(rig.url)
            assert len(outcomes) < 20, "tried for ever"
        # Three times in company; then split, and the poison three times alone.  Where little time is
        # given for an answer, a slow machine may take it from others as well.
        if kind != "hang":
            assert outcomes == ["postponed"] * 6 + ["drained"]
    ((first, last, reason),) = rows_of(
        rig.url, "SELECT from_seq, through_seq, reason FROM strandline.dead_letter"
    )
    assert (first, last) == (2, 2)
    assert reason.startswith("failed 3 times in a row; the last error: The model server ")


def test_retry_after_is_honoured(rig: Rig, memory: Memory, model_settings: Settings) -> None:
    rig.model.behave(status=429, retry_after="120")
    worker = with_model(rig.database, model_settings, SUMMARY_STAGE, retry=LONG)
    assert worker.drain(summary_lane(rig.url, "s")) == "postponed"
    assert 115 < lane_row(rig.url)["wait"] <= 120


def test_an_unusable_answer_kills_its_event_alone(rig: Rig, memory: Memory, model_settings: Settings) -> None:
    """The batch of three splits; the one in the middle is asked for twice, in vain, and dies."""

    def respond(request: RecordedRequest) -> str | None:
        transcript = request.body["messages"][1]["content"].partition("<transcript>")[2]
        return json.dumps({"wrong": SECRET}) if '"two"' in transcript else None

    rig.model.behave(responder=respond)
    worker = with_model(rig.database, model_settings, SUMMARY_STAGE)
    assert worker.drain(summary_lane(rig.url, "s")) == "drained"
    batches = "SELECT cardinality(event_ids), state FROM strandline.batch ORDER BY created_at"
    assert rows_of(rig.url, batches) == [(3, "split"), (1, "applied"), (1, "dead"), (1, "applied")]
    ((reason, from_seq),) = rows_of(rig.url, "SELECT reason, from_seq FROM strandline.dead_letter")
    assert from_seq == 2
    assert "unusable" in reason
    assert SECRET not in reason
    assert "two" not in reason
    # Two tries for the batch, two for its bad part, one each for the good ones.
    assert len(rig.model.requests) == 6
    assert rows_of(rig.url, "SELECT through_seq FROM strandline.block_state ORDER BY 1") == [(1,), (3,)]
    # The hole stays readable, what is covered does not come back.
    memory.put({"role": "user", "content": "four"})
    assert [message.text for message in memory.get() if message.seq] == ["two", "four"]


def test_an_answer_that_is_repaired_is_used(rig: Rig, memory: Memory, model_settings: Settings) -> None:
    rig.model.behave(wrong_schema=True, times=1)
    worker = with_model(rig.database, model_settings, SUMMARY_STAGE)
    assert worker.drain(summary_lane(rig.url, "s")) == "drained"
    assert len(rig.model.requests) == 2
    assert rows_of(rig.url, "SELECT outcome FROM strandline.receipt") == [("applied",)] * 3
    assert len(rows_of(rig.url, "SELECT 1 FROM strandline.model_call")) == 1


def test_refused_input_is_a_dead_letter_without_content(
    rig: Rig, model_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = Raw(
        400, json.dumps({"error": {"message": f"cannot read {SECRET}", "code": "content_filter"}}).encode()
    )
    rig.model.behave(responder=lambda _request: refusal)
    say(rig.memory("s", memory_blocks=["facts"]), f"my word is {SECRET}")
    with caplog.at_level(logging.DEBUG, logger="strandline"):
        with_model(rig.database, model_settings, EXTRACT_STAGE).drain_all(rig.url)
    ((reason,),) = rows_of(rig.url, "SELECT reason FROM strandline.dead_letter")
    assert "400" in reason
    assert SECRET not in reason
    assert SECRET not in caplog.text
    assert any(record.message == "event is a dead letter" for record in caplog.records)


def test_a_defect_in_a_stage_is_tried_a_few_times_and_ends(
    rig: Rig, memory: Memory, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    def break_down(batch: Batch) -> None:
        if any(event.from_seq == 2 for event in batch.events):
            raise ValueError(f"cannot handle {SECRET}")

    stage = CountingStage(break_down)
    worker = HandWorker(rig.database, counting(stage))
    lane = summary_lane(rig.url, "s")
    outcomes = []
    while not nothing_due(rig.url):
        outcomes.append(worker.drain(lane))
        try_again_now(rig.url)
        assert len(outcomes) < 20, "tried for ever"
    # Three times in company; then split, the first one done, the second tried three times alone.
    assert outcomes == ["postponed"] * 6 + ["drained"]
    assert folded(rig.url) == [1, 3]
    ((reason, from_seq),) = rows_of(rig.url, "SELECT reason, from_seq FROM strandline.dead_letter")
    last_error = "the last error: Unexpected ValueError: the worker's log says where."
    assert (reason, from_seq) == (f"failed 3 times in a row; {last_error}", 2)
    capfd.readouterr()
    assert run(["dead-letters", "list", "--database-url", rig.url]) == 0
    assert last_error in capfd.readouterr().out
    assert run(["explain", str(memory.get_all()[1].id), "--database-url", rig.url]) == 0
    assert last_error in capfd.readouterr().out
    logged = caplog.text + str([vars(record) for record in caplog.records])
    assert SECRET not in logged
    assert "ValueError" in logged
    assert "test_engine_errors.py" in logged, "where it happened is what a developer needs"


def test_what_the_database_refuses_is_logged_without_content(
    rig: Rig, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    class Refused(CountingStage):
        def write(self, fetcher: Any, batch: Batch, work: Any, effect: Any) -> list[Lane]:
            super().write(fetcher, batch, work, effect)
            return super().write(fetcher, batch, work, effect)

    worker = HandWorker(rig.database, counting(Refused()))
    assert worker.drain(summary_lane(rig.url, "s")) == "postponed"
    row = lane_row(rig.url)
    assert (row["failures"], row["last_error"]) == (
        1,
        "Unexpected DatabaseError: the worker's log says where.",
    )
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.block_state") == [(0,)], "rolled back"
    assert "DETAIL" not in caplog.text


def test_a_hint_for_a_model_that_is_away_does_not_lose_what_was_done(rig: Rig, memory: Memory) -> None:
    def fail_late(batch: Batch) -> None:
        if batch.events[0].from_seq == 3:
            raise TransientModelError("away")

    stage = CountingStage(fail_late)
    lane = summary_lane(rig.url, "s")
    assert HandWorker(rig.database, counting(stage), budget=1).drain(lane) == "postponed"
    assert folded(rig.url) == [1, 2]
    assert lane_row(rig.url)["postponements"] == 1


def test_a_lane_goes_on_when_postgres_was_away(memory: Memory, database: Database, database_url: str) -> None:
    def cut(_batch: Batch) -> None:
        rows_of(
            database_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )

    stage = CountingStage(cut)
    worker = HandWorker(database, counting(stage))
    lane = summary_lane(database_url, "s")
    # Its keys are looked for once, by a read that would find the loss first, and be repeated.
    drive(database.content.find_keys(lane.shard_key), database)
    assert worker.drain(lane) == "lost"
    rows_of(
        database_url, "UPDATE strandline.lane SET leased_at = leased_at - interval '2 seconds' RETURNING 1"
    )
    stage.fail = lambda _batch: None
    left_over = ReleaseUndrainedLanes(worker_id=worker.worker_id, **worker.engine.active.params())
    assert database.fetch(left_over) == [("summary",)]
    assert worker.drain(lane) == "drained"
    assert folded(database_url) == [1, 2, 3]
    assert dead_letters(database_url) == 0


def test_what_is_pending_at_a_reset_is_void(memory: Memory, database: Database, database_url: str) -> None:
    memory.reset()
    say(memory, "four")
    stage = CountingStage()
    assert HandWorker(database, counting(stage)).drain(summary_lane(database_url, "s")) == "drained"
    assert folded(database_url) == [4]
    outcomes = rows_of(
        database_url,
        "SELECT e.from_seq, r.outcome FROM strandline.receipt r JOIN strandline.flush_event e"
        " USING (shard_key, event_id) ORDER BY 1",
    )
    assert outcomes == [(1, "void"), (2, "void"), (3, "void"), (4, "applied")]


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize("point", ["loaded", "called", "stored"])
def test_a_reset_during_the_work_voids_it(rig: Rig, derived: bool, point: str, memory: Memory) -> None:
    done: list[bool] = []

    def reset(reached: str) -> None:
        if reached == point and not done:
            done.append(True)
            memory.reset(derived=derived)

    worker = HandWorker(rig.database, counting(), reach=reset)
    assert worker.drain(summary_lane(rig.url, "s")) == ("lost" if derived else "drained")
    assert folded(rig.url) == []
    assert nothing_due(rig.url)
    assert kept_answers(rig.url) == 0
    outcomes = rows_of(rig.url, "SELECT outcome FROM strandline.receipt")
    assert outcomes == ([] if derived else [("void",)] * 3)


def test_a_reset_waits_for_a_writing_worker_and_puts_wait_for_neither(rig: Rig, memory: Memory) -> None:
    lane = summary_lane(rig.url, "s")
    inside, go_on = threading.Event(), threading.Event()

    def stay(reached: str) -> None:
        if reached == "applying" and not inside.is_set():
            inside.set()
            assert go_on.wait(300)

    worker = HandWorker(rig.database, counting(), reach=stay)
    working = threading.Thread(target=worker.drain, args=(lane,))
    resetting = threading.Thread(target=lambda: memory.reset(derived=True))
    other = rig.memory("s", memory_blocks=["summary"])
    working.start()
    assert inside.wait(100)
    resetting.start()
    for number in range(50):
        other.put({"role": "user", "content": f"meanwhile {number}"})
    # The puts are done while the worker's transaction is open, and the reset waits for it.
    assert working.is_alive() and not go_on.is_set()
    assert resetting.is_alive(), "it must wait for the worker's transaction"
    go_on.set()
    working.join(100)
    resetting.join(100)
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.block_state") == [(0,)]
    assert other.get_all() == []
    assert other.put({"role": "user", "content": "after"}) == 54


def test_a_permanent_error_at_vectors_leaves_the_other_pipelines_alone(
    rig: Rig, model_settings: Settings
) -> None:
    class Refusing(CountingStage):
        def __init__(self) -> None:
            super().__init__(self.refuse, name=VECTORS_STAGE)

        def refuse(self, _batch: Batch) -> None:
            raise PermanentModelError("refused")

    memory = rig.memory("s", memory_blocks=["summary", "vectors"])
    say(memory, "one")
    worker = HandWorker(rig.database, FixedStages(counting() | {VECTORS_STAGE: Refusing()}))
    assert worker.drain_all(rig.url) == ["drained", "drained"]
    outcomes = rows_of(rig.url, "SELECT stage, outcome FROM strandline.receipt ORDER BY 1")
    assert outcomes == [("summary", "applied"), ("vectors", "dead")]
    memory.put({"role": "user", "content": "two"})
    assert [message.text for message in memory.get() if message.seq] == ["one", "two"], (
        "a hole stays readable"
    )


def test_draining_what_is_done_changes_nothing(rig: Rig, memory: Memory, model_settings: Settings) -> None:
    worker = with_model(rig.database, model_settings, SUMMARY_STAGE)
    lane = summary_lane(rig.url, "s")
    assert worker.drain(lane) == "drained"
    before, calls = contents(rig.url), len(rig.model.requests)
    for _time in range(3):
        assert worker.drain(lane) == "nothing_to_claim"
        assert HandWorker(rig.database, worker.stages, terms=TERMS).drain(lane) == "nothing_to_claim"
    assert (contents(rig.url), len(rig.model.requests)) == (before, calls)
    assert due_lanes(rig.url) == []


# How long a lane waits: growing, capped, jittered, and never shorter than the provider asked for.
SECONDS = st.floats(0.01, 1e6)
JITTER = st.floats(0, 1, exclude_max=True)
POLICIES = st.builds(RetryPolicy, base_seconds=st.floats(0.01, 10), max_seconds=st.floats(10, 600))


@given(POLICIES, st.integers(1, 100_000), JITTER)
def test_a_wait_is_between_half_and_all_of_what_it_may_be(
    policy: RetryPolicy, failures: int, jitter: float
) -> None:
    wait = policy.wait_seconds(failures, jitter=jitter)
    assert policy.base_seconds / 2 <= wait <= policy.max_seconds
    if failures > 40:
        assert wait >= policy.max_seconds / 2


@given(POLICIES, st.integers(1, 60), JITTER)
def test_the_wait_grows_with_each_failure_and_at_most_doubles(
    policy: RetryPolicy, failures: int, jitter: float
) -> None:
    wait, longer = (policy.wait_seconds(count, jitter=jitter) for count in (failures, failures + 1))
    assert wait <= longer <= 2 * wait * 1.000001


@given(POLICIES, st.integers(1, 60), SECONDS, JITTER)
def test_the_provider_is_heeded_within_bounds(
    policy: RetryPolicy, failures: int, asked: float, jitter: float
) -> None:
    wait = policy.wait_seconds(failures, retry_after_seconds=asked, jitter=jitter)
    assert wait >= min(asked, 10 * policy.max_seconds)
    assert wait <= max(policy.max_seconds, min(asked, 10 * policy.max_seconds))


def test_lanes_that_failed_together_do_not_come_back_together() -> None:
    waits = {RetryPolicy().wait_seconds(5) for _ in range(50)}
    assert len(waits) > 40
    assert max(waits) - min(waits) > 2
