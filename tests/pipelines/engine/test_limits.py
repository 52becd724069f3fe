"""Limits: what a namespace has at work at once, and what it may ask of models per day."""

from __future__ import annotations

import json
import queue
import random
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from strandline.pipelines.engine.batches import claim
from strandline.pipelines.engine.budgets import Budgets
from strandline.pipelines.engine.stage import Batch
from strandline.pipelines.inspect.explain_message import explain
from strandline.schemas.errors import (
    BudgetError,
    ProviderDownError,
    RateLimitError,
    StrandlineError,
    TransientModelError,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.lanes import RingDue
from strandline.schemas.queries.work.limits import SetLimits
from strandline.schemas.values.lanes import SUMMARY_STAGE, Lane
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.workers.sweep import Sweep
from strandline.workers.worker import Worker
from tests.conftest import MakeMemory, Rig, rows_of, wait_until
from tests.pipelines.engine.test_turns import Backlog, serve, stage_of, workers
from tests.support.processes.commands import run_here
from tests.support.stored import dead_letters
from tests.support.workers.hand_worker import TERMS, HandWorker, counting, summary_lane

SET = """
INSERT INTO strandline.namespace_limit (namespace, max_lanes, max_lanes_per_worker, calls_per_day,
    tokens_per_day, usd_per_day)
SELECT x.* FROM json_to_record(%s::json) AS x (namespace text, max_lanes integer,
    max_lanes_per_worker integer, calls_per_day bigint, tokens_per_day bigint, usd_per_day double precision)
RETURNING namespace
"""


@pytest.fixture
def backlog(database_url: str) -> Backlog:
    return Backlog(database_url)


def limit(url: str, namespace: str, **limits: float) -> None:
    rows_of(url, SET, json.dumps({"namespace": namespace} | limits))


def slice_of(budget: int) -> int:
    """The most that one worker takes at a time."""
    return max(1, budget // 50)


def renamed(url: str, table: str, name: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE strandline.{table} RENAME TO {name}".encode())


def is_admitted(worker: Budgets, namespace: str) -> bool:
    try:
        worker.admit(namespace, 10)
    except BudgetError:
        return False
    return True


ITS_SLICE_ENDS = """
UPDATE strandline.budget_slice SET expires_at = clock_timestamp() WHERE namespace = %s AND worker_id = %s
RETURNING 1
"""


IS_LEFT = "SELECT waits_until - clock_timestamp() + interval '1 second' FROM strandline.namespace_limit"

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)

# As if so much time had passed for what waits.
A_DAY_LATER = """
WITH waiting AS (UPDATE strandline.namespace_limit SET waits_until = waits_until - %s RETURNING namespace)
UPDATE strandline.due d SET ring_at = d.ring_at - (
    SELECT waits_until - clock_timestamp() + interval '1 second' FROM strandline.namespace_limit)
FROM waiting w WHERE d.namespace = w.namespace RETURNING 1
"""


def today() -> date:
    """The day of budgets, which may end while a test runs: another day has another budget."""
    return datetime.now(UTC).date()


def calls_used(url: str) -> int:
    rows = rows_of(url, "SELECT coalesce(sum(calls_used), 0)::integer FROM strandline.budget_slice")
    return int(rows[0][0])


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32), budget=st.integers(0, 300), number=st.integers(1, 5))
def test_workers_that_share_a_budget_exceed_it_by_no_more_than_a_slice_of_each_that_is_killed(
    rig: Rig, seed: int, budget: int, number: int
) -> None:
    """Some leave and say what they used, some are killed and never say it, and others come for them."""
    namespace = uuid4().hex
    limit(rig.url, namespace, calls_per_day=budget)
    here = [Budgets(rig.database, uuid4()) for _ in range(number)]
    drawn = random.Random(seed)  # noqa: S311
    made = killed = 0
    first_day = today()
    for _step in range(500):
        place = drawn.randrange(number)
        match drawn.choices(["call", "leave", "kill"], [100, 3, 1])[0]:
            case "leave":
                here[place].return_slices(everything=True)
            case "kill":
                rows_of(rig.url, ITS_SLICE_ENDS, namespace, here[place].worker_id)
                here[place] = Budgets(rig.database, uuid4())
                killed += 1
            case _:
                made += is_admitted(here[place], namespace)
    days = (today() - first_day).days + 1
    assert made <= budget * days + slice_of(budget) * killed
    for worker in here:
        worker.return_slices(everything=True)
    last = Budgets(rig.database, uuid4())
    while is_admitted(last, namespace):
        made += 1
    assert made >= budget, "no part of a budget is lost"


@pytest.mark.parametrize("budget", [0, 7, 100, 1_000])
def test_workers_that_take_slices_at_the_same_moment_exceed_a_budget_by_a_slice_each(
    rig: Rig, budget: int
) -> None:
    first_day = today()
    limit(rig.url, "shared", calls_per_day=budget)
    here = [Budgets(rig.database, uuid4()) for _ in range(6)]

    def spend(worker: Budgets) -> int:
        made = 0
        while is_admitted(worker, "shared"):
            made += 1
        return made

    with ThreadPoolExecutor(len(here)) as pool:
        made = sum(pool.map(spend, here))
    days = (today() - first_day).days + 1
    assert made <= budget * days + slice_of(budget) * (len(here) - 1)
    for worker in here:
        worker.return_slices(everything=True)
    assert calls_used(rig.url) == made


@pytest.mark.parametrize("refused", [False, True])
def test_the_usage_of_a_call_is_written_also_when_no_slice_is_held_any_more(rig: Rig, refused: bool) -> None:
    """Its answer came after the slice was returned, or after another call was refused one."""
    limit(rig.url, "late", calls_per_day=1)
    worker = Budgets(rig.database, uuid4())
    worker.admit("late", 10)
    if refused:
        assert not is_admitted(worker, "late")
    else:
        worker.return_slices(everything=True)
    worker.settle("late", 90, 0.5)
    worker.return_slices()
    used = rows_of(rig.url, "SELECT calls_used, tokens_used, usd_used FROM strandline.budget_slice")
    assert used == [(1, 100, 0.5)]


def test_usage_that_could_not_be_written_is_written_by_the_next_attempt(rig: Rig) -> None:
    limit(rig.url, "late", calls_per_day=100)
    worker = Budgets(rig.database, uuid4())
    worker.admit("late", 10)
    renamed(rig.url, "budget_slice", "not_there")
    with pytest.raises(StrandlineError):
        worker.return_slices(everything=True)
    renamed(rig.url, "not_there", "budget_slice")
    worker.return_slices()
    assert calls_used(rig.url) == 1


@pytest.mark.parametrize(
    "limits",
    [
        {"calls_per_day": 1_000},
        {"tokens_per_day": 10_000},
        {"usd_per_day": 50.0},
        {"calls_per_day": 1_000, "tokens_per_day": 10_000, "usd_per_day": 50.0},
    ],
)
def test_a_slice_is_a_fiftieth_of_whichever_budgets_there_are(rig: Rig, limits: dict[str, float]) -> None:
    """Each is for twenty calls of ten tokens and five cents; what has no budget ends no slice."""
    limit(rig.url, "tenant", **limits)
    worker = Budgets(rig.database, uuid4())
    slices = []
    for _call in range(60):
        worker.admit("tenant", 10)
        worker.settle("tenant", 0, 0.05)
        slices += rows_of(rig.url, "SELECT expires_at FROM strandline.budget_slice")
    assert len(set(slices)) == 3


def test_a_worker_that_finds_a_budget_used_up_does_not_overrule_limits_that_are_being_set(rig: Rig) -> None:
    limit(rig.url, "tenant", calls_per_day=0)
    worker = Budgets(rig.database, uuid4())
    new = SetLimits(
        namespace="tenant",
        max_lanes=None,
        max_lanes_per_worker=None,
        calls_per_day=100,
        tokens_per_day=None,
        usd_per_day=None,
        agents_read_only=None,
        max_sessions=None,
        max_bytes=None,
    )
    with ThreadPoolExecutor() as threads:
        with rig.database.transaction() as tx:
            tx.fetch(new)
            asking = threads.submit(is_admitted, worker, "tenant")
            wait_until(lambda: rows_of(rig.url, WAITING) != [(0,)], timeout=10, what="the worker to ask")
        assert asking.result(300)
    assert rows_of(rig.url, "SELECT waits_until FROM strandline.namespace_limit") == [(None,)]


class AtWork:
    """A stage's work that goes on for a moment, and how much of it each tenant had at once."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._changed = threading.Condition()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    def work(self, batch: Batch) -> None:
        name = self._backlog.names[batch.lane.scope_key]
        with self._changed:
            self.now[name] += 1
            self.most[name] = max(self.most[name], self.now[name])
            self._changed.notify_all()
            # So that others can begin meanwhile, if they may.
            self._changed.wait(0.02)
            self.now[name] -= 1
            self.done[name] += 1


@pytest.mark.parametrize(("limits", "most"), [({"max_lanes": 3}, 3), ({"max_lanes_per_worker": 2}, 4)])
def test_a_namespace_never_has_more_lanes_at_work_than_it_may(
    rig: Rig, limits: dict[str, float], most: int, backlog: Backlog
) -> None:
    """Of two workers with eight threads each; whoever is done makes room for the next."""
    limit(rig.url, "limited", **limits)
    backlog.add("limited", 40)
    backlog.add("free", 40)
    hints: queue.SimpleQueue[Lane | None] = queue.SimpleQueue()
    for hint in backlog.hints:
        hints.put(hint)
    at_work = AtWork(backlog)

    def ring(lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            hints.put(lane)

    both = workers(rig.database, backlog, 2, ring=ring)
    for worker in both:
        stage_of(worker).fail = at_work.work

    def take(worker: Worker) -> None:
        while (hint := hints.get()) is not None:
            worker.take_up(hint)

    with ThreadPoolExecutor(16) as pool:
        for number in range(16):
            pool.submit(take, both[number % 2])
        try:
            wait_until(lambda: at_work.done.total() == 80, timeout=120, what="all to be drained")
        finally:
            for _ in range(16):
                hints.put(None)
    assert at_work.done == {"limited": 40, "free": 40}
    assert at_work.most["limited"] <= most


def test_what_is_over_budget_waits_without_a_failure_while_others_are_served(
    rig: Rig, backlog: Backlog
) -> None:
    limit(rig.url, "poor", calls_per_day=5)
    backlog.add("poor", 20)
    backlog.add("rich", 20)
    assert Counter(serve(workers(rig.database, backlog, 3), backlog)) == {"poor": 5, "rich": 20}
    ((lanes, *counts),) = rows_of(
        rig.url,
        "SELECT count(*), max(l.failures), max(l.postponements), max(l.crashes) FROM strandline.lane l"
        " WHERE l.namespace = 'poor' AND EXISTS (SELECT FROM strandline.due d"
        " WHERE d.shard_key = l.shard_key AND d.scope_key = l.scope_key)",
    )
    assert counts == [0, 0, 0]
    assert lanes <= 3, "a worker finds it out once, and then no lane is taken in vain"
    assert dead_letters(rig.url) == 0


@pytest.mark.parametrize("by_hand", [False, True])
def test_what_waits_for_its_budget_is_not_rung_for_until_its_time_or_new_limits(
    rig: Rig, by_hand: bool, backlog: Backlog
) -> None:
    limit(rig.url, "poor", calls_per_day=0)
    backlog.add("poor", 10)
    (worker,) = workers(rig.database, backlog, 1)
    worker.take_up(backlog.hints[0])
    assert backlog.drained == []
    rung: list[Lane] = []
    sweep = Sweep(
        rig.database,
        ring=rung.extend,
        take_over=rung.extend,
        stages=[SUMMARY_STAGE],
        batch_size=200,
        dead_after_seconds=1_800.0,
    )
    rows_of(rig.url, "UPDATE strandline.due SET ring_at = clock_timestamp() RETURNING 1")
    sweep.tick()
    sweep.tick()
    assert rung == []
    if by_hand:
        assert run_here("limits", "clear", "poor", on=rig.url).code == 0
    else:
        rows_of(rig.url, A_DAY_LATER, rows_of(rig.url, IS_LEFT)[0][0])
    sweep.tick()
    assert set(rung) == set(backlog.hints)
    serve([worker], backlog)
    assert Counter(backlog.drained) == ({"poor": 10} if by_hand else {})


def test_tokens_are_counted_as_the_answers_say(rig: Rig, backlog: Backlog) -> None:
    """Each answer takes a hundred, and each event was thought to take ten."""
    limit(rig.url, "poor", tokens_per_day=1_000)
    backlog.add("poor", 40)
    here = workers(rig.database, backlog, 2)
    for worker in here:
        stage_of(worker).tokens = 100
    serve(here, backlog)
    for worker in here:
        worker.leave()
    ((used,),) = rows_of(rig.url, "SELECT sum(tokens_used)::integer FROM strandline.budget_slice")
    assert used == 100 * len(backlog.drained)
    assert 1_000 <= used <= 1_000 + 100 * len(here)


@pytest.mark.parametrize("limits", [{"max_lanes": 1}, {"max_lanes_per_worker": 1}])
def test_with_a_limit_of_lanes_a_long_lane_gives_way_to_another_user_of_its_tenant(
    rig: Rig, limits: dict[str, float], backlog: Backlog
) -> None:
    """The lane that asks fills the limit itself."""
    limit(rig.url, "tenant", **limits)
    backlog.add("tenant", 1, user="long", events=20)
    (worker,) = workers(rig.database, backlog, 1, budget=1)

    def flush_meanwhile(batch: Batch) -> None:
        backlog.note(batch)
        if len(backlog.drained) == 3:
            backlog.add("tenant", 1, user="other")

    stage_of(worker).fail = flush_meanwhile
    assert serve([worker], backlog) == [*["long"] * 3, "other", *["long"] * 17]


def test_a_long_lane_does_not_give_way_to_a_tenant_that_may_begin_nothing(rig: Rig, backlog: Backlog) -> None:
    limit(rig.url, "full", max_lanes=1)
    backlog.add("full", 2)
    first, second = workers(rig.database, backlog, 2, budget=1)
    wanted = backlog.hints[0]
    assert claim(rig.database, wanted, second.worker_id, TERMS, 8_000) is not None
    backlog.hints.clear()
    backlog.add("long", 1, events=20)
    first.take_up(backlog.hints.pop())
    assert (backlog.drained, backlog.hints) == (["long"] * 20, [])


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (ProviderDownError("The model server is down."), 0),
        (RateLimitError("The model server answered 429."), 0),
        (TransientModelError("The model server did not answer in time."), 1),
    ],
)
def test_a_call_that_no_provider_took_up_is_not_counted(
    rig: Rig, error: TransientModelError, counted: int, backlog: Backlog
) -> None:
    """An outage does not use a day's budget up; what may have been answered is counted."""
    limit(rig.url, "tenant", calls_per_day=100, tokens_per_day=10_000)
    backlog.add("tenant", 1)

    def fail(_batch: Batch) -> None:
        raise error

    (worker,) = workers(rig.database, backlog, 1)
    stage_of(worker).fail = fail
    worker.take_up(backlog.hints[0])
    worker.leave()
    used = rows_of(rig.url, "SELECT calls_used, tokens_used FROM strandline.budget_slice")
    assert used == [(counted, 10 * counted)]


def test_limits_status_and_explain_say_what_waits_and_until_when(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["facts", "summary"])
    memory.put({"role": "user", "content": "the harbour is fine", "id": "m1"})
    memory.flush(all=True)
    done = run_here("limits", "set", "default", "--calls-per-day", "0", "--lanes", "4", on=rig.url)
    assert (done.code, done.err) == (0, "")
    assert done.out == "default: 0 of 4 lanes at work, 0 of 0 model calls today\n"
    worker = HandWorker(rig.database, counting())
    object.__setattr__(worker.engine, "budgets", Budgets(rig.database, worker.worker_id))
    assert worker.drain(summary_lane(rig.url, "s")) == "postponed"
    ((until,),) = rows_of(
        rig.url,
        "SELECT to_char(waits_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')"
        " FROM strandline.namespace_limit",
    )
    waits = (
        "namespace default has used up its budget of calls:"
        f" 2 events, counted in each stage, wait until {until} UTC"
    )
    assert waits in run_here("limits", "list", on=rig.url).out
    assert waits in run_here("status", on=rig.url).out
    (limits,) = json.loads(run_here("status", "--json", on=rig.url).out)["limits"]
    assert (limits["namespace"], limits["waits_for"], limits["due"]) == ("default", "calls", 2)
    explained = explain(rig.database, "m1")
    assert isinstance(explained, MessageExplanation)
    assert f"used up its budget of calls, so it waits until {until} UTC" in " ".join(explained.why)


def test_limits_want_a_namespace_that_has_some_and_a_limit(database_url: str) -> None:
    nothing_given = run_here("limits", "set", "tenant", on=database_url)
    assert nothing_given.code == 2
    assert "No limit is given" in nothing_given.err
    without = run_here("limits", "clear", "tenant", on=database_url)
    assert without.code == 1
    assert without.err.startswith("strandline: No limit is set for namespace 'tenant'")
    assert run_here("limits", "list", on=database_url).out.startswith("no namespace has limits")


LIMITS = "SELECT max_lanes, calls_per_day, tokens_per_day, usd_per_day FROM strandline.namespace_limit"


def test_a_limit_that_is_not_named_stays_and_each_can_be_taken_away(database_url: str) -> None:
    changes: list[tuple[tuple[str, ...], list[tuple[float | None, ...]]]] = [
        (("set", "a", "--lanes", "4", "--calls-per-day", "10"), [(4, 10, None, None)]),
        (("set", "a", "--calls-per-day", "20", "--tokens-per-day", "0"), [(4, 20, 0, None)]),
        (("clear", "a", "--lanes", "--tokens-per-day"), [(None, 20, None, None)]),
        (("set", "a", "--usd-per-day", "2.5"), [(None, 20, None, 2.5)]),
        (("clear", "a", "--usd-per-day", "--calls-per-day"), []),
    ]
    for arguments, left in changes:
        assert run_here("limits", *arguments, on=database_url).code == 0
        assert rows_of(database_url, LIMITS) == left
    run_here("limits", "set", "a", "--lanes", "4", "--calls-per-day", "10", on=database_url)
    not_set = run_here("limits", "clear", "a", "--usd-per-day", on=database_url)
    assert (not_set.code, "'a' has no limit --usd-per-day" in not_set.err) == (1, True)
    assert run_here("limits", "clear", "a", on=database_url).code == 0
    assert rows_of(database_url, LIMITS) == []


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("--usd-per-day", "nan"),
        ("--usd-per-day", "inf"),
        ("--calls-per-day", "1" + "0" * 30),
        ("--lanes", "1" + "0" * 30),
    ],
)
def test_a_limit_that_is_no_amount_is_refused(option: str, number: str, database_url: str) -> None:
    done = run_here("limits", "set", "tenant", option, number, on=database_url)
    assert (done.code, f"Invalid value for '{option}'" in done.err) == (2, True)
    assert rows_of(database_url, LIMITS) == []


def test_limits_of_a_namespace_that_holds_nothing_yet_say_so(rig: Rig) -> None:
    rig.memory("s").put({"role": "user", "content": "hello"})
    assert run_here("limits", "set", "default", "--lanes", "4", on=rig.url).err == ""
    done = run_here("limits", "set", "defualt", "--lanes", "4", on=rig.url)
    assert (done.code, "Namespace 'defualt' is still empty" in done.err) == (0, True)


@pytest.mark.parametrize(
    ("prices", "said"),
    [
        ("{}", "STRANDLINE_MODEL_PRICES is not set here"),
        ('{"m": {"input": 1}}', "has no price of n and e here"),
        ('{"m": {"input": 1}, "n": {"input": 1}, "e": {"input": 1}}', None),
    ],
)
def test_a_budget_of_dollars_without_prices_is_announced(
    rig: Rig, prices: str, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.memory("s").put({"role": "user", "content": "hello"})
    monkeypatch.setenv("STRANDLINE_MODEL_PRICES", prices)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for name, model in (("FACTS", "m"), ("SUMMARY", "n"), ("EMBEDDING", "e")):
        monkeypatch.setenv(f"STRANDLINE_{name}_MODEL", model)
    done = run_here("limits", "set", "default", "--usd-per-day", "5", on=rig.url)
    assert done.code == 0
    assert said in done.err if said is not None else done.err == ""


def test_a_budget_that_is_lowered_is_heeded_although_a_slice_of_the_former_one_is_held(rig: Rig) -> None:
    limit(rig.url, "tenant", calls_per_day=1_000)
    worker, other = Budgets(rig.database, uuid4()), Budgets(rig.database, uuid4())
    assert is_admitted(worker, "tenant")
    assert is_admitted(other, "tenant")
    worker.return_slices()
    assert calls_used(rig.url) == 0, "what was not changed is held on"
    assert run_here("limits", "set", "tenant", "--calls-per-day", "2", on=rig.url).code == 0
    for one in (worker, other):
        one.return_slices()
    assert calls_used(rig.url) == 2
    assert not is_admitted(worker, "tenant")


def test_a_budget_that_is_set_while_a_long_lane_is_drained_holds_from_its_next_batch(
    rig: Rig, backlog: Backlog
) -> None:
    backlog.add("tenant", 1, events=20)
    (worker,) = workers(rig.database, backlog, 1, budget=1)

    def limit_meanwhile(batch: Batch) -> None:
        backlog.note(batch)
        if len(backlog.drained) == 3:
            limit(rig.url, "tenant", calls_per_day=2)

    stage_of(worker).fail = limit_meanwhile
    assert serve([worker], backlog) == ["tenant"] * 5


PUT_OFF = """
UPDATE strandline.due SET ring_at = clock_timestamp() + interval '5001 years'
WHERE namespace = 'poor' RETURNING event_id
"""
STILL_PUT_OFF = (
    "SELECT count(*)::integer FROM strandline.due WHERE ring_at > clock_timestamp() + interval '10 years'"
)


def test_limits_hold_before_what_was_put_off_is_rung_for_and_all_of_it_is(
    database_url: str, backlog: Backlog
) -> None:
    """A worker is at one of the rows, and neither it nor any other waits for the command."""
    backlog.add("poor", 3, user="u", events=500)
    backlog.add("other", 1)
    limit(database_url, "poor", calls_per_day=0)
    assert len(rows_of(database_url, PUT_OFF)) == 1_500
    with ThreadPoolExecutor() as threads:
        with psycopg.connect(database_url) as connection:
            connection.execute("SELECT FROM strandline.due WHERE namespace = 'poor' LIMIT 1 FOR UPDATE")
            clearing = threads.submit(run_here, "limits", "clear", "poor", on=database_url)
            wait_until(lambda: rows_of(database_url, WAITING) == [(1,)], timeout=60, what="it to wait")
            assert rows_of(database_url, LIMITS) == []
            assert rows_of(database_url, STILL_PUT_OFF) == [(1_500,)]
        assert clearing.result(300).code == 0
    assert rows_of(database_url, STILL_PUT_OFF) == [(0,)]


def test_a_sweep_puts_nothing_off_by_limits_that_are_being_changed(rig: Rig, backlog: Backlog) -> None:
    """A change of the limits would miss work that the sweep puts off after it."""
    backlog.add("poor", 3)
    limit(rig.url, "poor", calls_per_day=0)
    rows_of(
        rig.url,
        "UPDATE strandline.namespace_limit SET waits_for = 'calls', waits_until = now() + interval '1 h'"
        " RETURNING 1",
    )
    ((stage,),) = rows_of(
        rig.url, "UPDATE strandline.due SET ring_at = now() - interval '1 s' RETURNING stage"
    )[:1]
    with ThreadPoolExecutor() as threads, psycopg.connect(rig.url) as changing:
        changing.execute("UPDATE strandline.namespace_limit SET waits_until = NULL, waits_for = NULL")
        sweep = threads.submit(rig.database.fetch, RingDue(stage=stage, limit=10))
        wait_until(lambda: rows_of(rig.url, WAITING) == [(1,)], timeout=60, what="it to wait")
        changing.commit()
        assert len(sweep.result(300)) == 3
    assert rows_of(rig.url, STILL_PUT_OFF) == [(0,)]


def test_a_budget_whose_rest_other_workers_hold_is_not_called_used_up(rig: Rig) -> None:
    limit(rig.url, "tenant", calls_per_day=4)
    first, second = Budgets(rig.database, uuid4()), Budgets(rig.database, uuid4())
    assert [is_admitted(first, "tenant") for _call in range(3)] == [True] * 3
    assert is_admitted(second, "tenant")
    assert not is_admitted(first, "tenant")
    said = run_here("limits", "list", on=rig.url).out
    assert "3 of 4 model calls today" in said
    assert "namespace tenant has the rest of its budget of calls in the hands of workers: 0 events" in said
    assert not is_admitted(second, "tenant")
    said = run_here("limits", "list", on=rig.url).out
    assert "4 of 4 model calls today" in said
    assert "namespace tenant has used up its budget of calls: 0 events" in said


def test_nor_does_explain_call_it_so(make_memory: MakeMemory, database: Database, database_url: str) -> None:
    memory = make_memory("s", memory_blocks=["facts"])
    memory.put({"role": "user", "content": "the harbour is fine", "id": "m1"})
    memory.flush(all=True)
    limit(database_url, "default", calls_per_day=4)
    first, second = Budgets(database, uuid4()), Budgets(database, uuid4())
    assert [is_admitted(first, "default") for _call in range(3)] == [True] * 3
    assert is_admitted(second, "default")
    for budgets, why in (
        (first, "workers hold the rest of its namespace's budget of calls, so it waits until"),
        (second, "its namespace has used up its budget of calls, so it waits until"),
    ):
        assert not is_admitted(budgets, "default")
        explained = explain(database, "m1")
        assert isinstance(explained, MessageExplanation)
        assert why in " ".join(explained.why)


def test_events_that_wait_for_a_budget_are_not_counted_as_lag(database_url: str, backlog: Backlog) -> None:
    backlog.add("poor", 3)
    rows_of(database_url, "UPDATE strandline.due SET created_at = now() - interval '1 hour' RETURNING 1")
    assert [lag >= 3_600 for lag in lags(database_url)] == [True]
    rows_of(database_url, PUT_OFF)
    assert lags(database_url) == [0]


def lags(url: str) -> list[float]:
    """Of the stages in which three events are due."""
    pipelines = json.loads(run_here("status", "--json", on=url).out)["pipelines"]
    return [stage["lag_seconds"] for one in pipelines for stage in one["stages"] if stage["due"] == 3]


def test_a_wait_that_is_longer_than_a_day_is_none_wherever_it_is_shown(rig: Rig) -> None:
    """The database's clock has stepped back; workers ignore such a wait too."""
    memory = rig.memory("s", memory_blocks=["facts"])
    memory.put({"role": "user", "content": "the harbour is fine", "id": "m1"})
    memory.flush(all=True)
    limit(rig.url, "default", calls_per_day=1)
    for hours, is_shown in ((23, True), (25, False)):
        rows_of(
            rig.url,
            "UPDATE strandline.namespace_limit SET waits_for = 'calls',"
            " waits_until = clock_timestamp() + make_interval(hours => %s) RETURNING 1",
            hours,
        )
        assert (" until " in run_here("limits", "list", on=rig.url).out) == is_shown
        explained = explain(rig.database, "m1")
        assert isinstance(explained, MessageExplanation)
        assert ("waits until" in " ".join(explained.why)) == is_shown
