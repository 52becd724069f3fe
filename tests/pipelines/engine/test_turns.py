"""Turns: the backlog of a tenant, an owner or an import never delays another's live work.

Fairness is shown by the order in which lanes are drained, whatever the order of the hints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from uuid import UUID, uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from strandline.pipelines.engine.batches import take_turn
from strandline.pipelines.engine.engine import SETTLED_SECONDS, ActiveLanes
from strandline.pipelines.engine.stage import Batch
from strandline.pipelines.engine.turns import TURNS_TO_AN_IMPORT, Turns
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.lanes import TakeTurn
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import SUMMARY_STAGE, Lane, Ring
from strandline.workers.worker import Worker
from tests.conftest import Rig, rows_of
from tests.support.workers.hand_worker import TERMS, CountingStage, counting

# Sessions with events that are due, as a flush leaves them.
FILL = """
WITH given AS (
    SELECT * FROM unnest(%(shard_keys)s::uuid[], %(session_keys)s::uuid[], %(namespaces)s::text[],
        %(session_ids)s::text[]) AS g (shard_key, session_key, namespace, session_id)
), made AS (
    INSERT INTO strandline.session (shard_key, session_key, next_seq, token_limit, flush_at_tokens,
        token_flush_size, max_window_messages, max_window_bytes, namespace, session_id, tokenizer, pipelines,
        window_from, flushed_through)
    SELECT shard_key, session_key, %(events)s + 1, 3000, 2100, 300, 2000, 16000000, namespace, session_id,
        'o200k_base', '{summary}', %(events)s + 1, %(events)s FROM given
    RETURNING shard_key, session_key, incarnation, namespace
), flushed AS (
    INSERT INTO strandline.flush_event (shard_key, session_key, from_seq, through_seq, event_id, incarnation,
        cause, message_count, tokens, version)
    SELECT m.shard_key, m.session_key, n, n, gen_random_uuid(), m.incarnation, %(cause)s, 1, 10, 1
    FROM made m, generate_series(1, %(events)s) AS n
    RETURNING *
)
INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key,
    event_id, incarnation, tokens, namespace, precedence)
SELECT f.shard_key, f.session_key, g.generation_id, g.entry_stage, f.from_seq, f.through_seq, f.session_key,
    f.event_id, f.incarnation, f.tokens, m.namespace, (%(cause)s = 'import')::integer
FROM flushed f JOIN made m USING (session_key)
JOIN strandline.generation g ON g.pipeline = 'summary'
RETURNING generation_id
"""

EMPTY = """
WITH due AS (DELETE FROM strandline.due), session AS (DELETE FROM strandline.session),
    lane AS (DELETE FROM strandline.lane), event AS (DELETE FROM strandline.flush_event)
SELECT 1
"""


@dataclass
class Backlog:
    """The due work, and the order in which it was drained."""

    url: str
    drained: list[str] = field(default_factory=list)
    hints: list[Lane] = field(default_factory=list)
    names: dict[UUID, str] = field(default_factory=dict)

    def add(
        self,
        namespace: str,
        sessions: int,
        *,
        user: str | None = None,
        cause: str = "threshold",
        events: int = 1,
    ) -> None:
        """Sessions with events that are due, each with its hint at the end of the queue."""
        begin = len(self.names)
        keys = [
            identify_session(namespace, f"{user or 'none'} {begin + number}", user)
            for number in range(sessions)
        ]
        ((generation_id,), *_) = rows_of_named(
            self.url,
            FILL,
            {
                "shard_keys": [key.shard_key for key in keys],
                "session_keys": [key.session_key for key in keys],
                "namespaces": [namespace] * sessions,
                "session_ids": [key.session_id for key in keys],
                "events": events,
                "cause": cause,
            },
        )
        for key in keys:
            self.hints.append(Lane(key.shard_key, key.session_key, generation_id, SUMMARY_STAGE))
            self.names[key.session_key] = user or namespace

    def note(self, batch: Batch) -> None:
        self.drained.append(self.names[batch.lane.scope_key])


def rows_of_named(url: str, sql: str, wanted: dict[str, object]) -> list[tuple[int]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(sql.encode(), wanted).fetchall()


@pytest.fixture
def backlog(database_url: str) -> Backlog:
    return Backlog(database_url)


def workers(
    database: Database,
    backlog: Backlog,
    number: int,
    *,
    budget: int = 8_000,
    ring: Ring | None = None,
) -> list[Worker]:
    """Workers that note what they drain, and whose hints for later go to the end of the queue."""
    made = [
        Worker(
            database,
            counting(CountingStage(fail=backlog.note)),
            load_settings().model_copy(update={"batch_token_budget": budget}),
            ring=ring or backlog.hints.extend,
            with_sweep=False,
        )
        for _ in range(number)
    ]
    for worker in made:
        worker._beat()
    return made


def stage_of(worker: Worker) -> CountingStage:
    stage = worker.engine.stages.of(0, SUMMARY_STAGE)
    assert isinstance(stage, CountingStage)
    return stage


def serve(workers: Sequence[Worker], backlog: Backlog, hints: int | None = None) -> list[str]:
    """Give the hints out in their order, to one worker after the other; whose work was done, in order."""
    given_out = 0
    while backlog.hints and (hints is None or given_out < hints):
        workers[given_out % len(workers)].take_up(backlog.hints.pop(0))
        given_out += 1
    return backlog.drained


@pytest.mark.parametrize("number", [1, 3])
def test_a_tenant_with_one_session_is_served_before_the_backlog_of_another(
    number: int, database: Database, backlog: Backlog
) -> None:
    backlog.add("bulk", 300)
    backlog.add("single", 1)
    order = serve(workers(database, backlog, number), backlog)
    assert len(order) == 301
    assert order.index("single") <= number, "each worker gave at most one turn to the other tenant before"


@pytest.mark.parametrize("number", [1, 3])
def test_a_user_with_one_session_is_served_within_a_round_of_the_others(
    number: int, database: Database, backlog: Backlog
) -> None:
    backlog.add("tenant", 300, user="bulk")
    backlog.add("tenant", 1, user="single")
    order = serve(workers(database, backlog, number), backlog)
    assert len(order) == 301
    assert order.index("single") <= number


def test_what_a_tenant_flushes_meanwhile_is_served_in_the_next_round(
    database: Database, backlog: Backlog
) -> None:
    backlog.add("bulk", 100)
    backlog.add("other", 100)
    (worker,) = workers(database, backlog, 1)
    before = len(serve([worker], backlog, hints=10))
    backlog.add("single", 1)
    assert "single" in serve([worker], backlog, hints=3)[before:]


def test_imports_come_after_live_work_and_get_on_beside_it(database: Database, backlog: Backlog) -> None:
    backlog.add("bulk", 64, cause="import", user="imported")
    backlog.add("bulk", 32, user="live")
    order = serve(workers(database, backlog, 1), backlog)
    live_turns = order[: len(order) - order[::-1].index("live")]
    assert len(order) == 96
    assert 1 <= live_turns.count("imported") <= len(live_turns) / TURNS_TO_AN_IMPORT + 1


def test_a_long_lane_gives_way_after_a_batch_and_is_rung_for_again(
    database: Database, backlog: Backlog
) -> None:
    backlog.add("long", 1, events=20)
    backlog.add("single", 1)
    order = serve(workers(database, backlog, 1, budget=1), backlog)
    assert order == ["long", "single", *["long"] * 19]


def test_a_long_import_gives_way_to_live_work_of_the_same_owner(database: Database, backlog: Backlog) -> None:
    backlog.add("tenant", 1, user="u", cause="import", events=10)
    (worker,) = workers(database, backlog, 1, budget=1)

    def flush_meanwhile(batch: Batch) -> None:
        backlog.drained.append("live" if batch.lane != long else "imported")
        if len(backlog.drained) == 3:
            backlog.add("tenant", 1, user="u")

    long = backlog.hints[0]
    stage_of(worker).fail = flush_meanwhile
    assert serve([worker], backlog)[:5] == ["imported"] * 3 + ["live", "imported"]


def test_a_lane_that_nobody_waits_for_keeps_its_thread(database: Database, backlog: Backlog) -> None:
    backlog.add("tenant", 1, events=20)
    (worker,) = workers(database, backlog, 1, budget=1)
    worker.take_up(backlog.hints.pop())
    assert (len(backlog.drained), backlog.hints) == (20, [])


@pytest.mark.parametrize("is_ours", [True, False])
def test_only_a_hint_without_lane_and_work_is_another_installations(
    is_ours: bool, database: Database, backlog: Backlog, caplog: pytest.LogCaptureFixture
) -> None:
    """A lane is opened by its first turn, which may come later than its hint."""
    backlog.add("first", 1)
    backlog.add("second", 1)
    (worker,) = workers(database, backlog, 1)
    hint = backlog.hints.pop()
    worker.take_up(hint if is_ours else replace(hint, scope_key=uuid4()))
    assert backlog.drained == ["first", "second"], "the first turn was not the hint's"
    dropped = [record for record in caplog.records if vars(record).get("action") == "hint_dropped"]
    assert len(dropped) == (not is_ours)


def test_lanes_that_wait_for_their_next_attempt_delay_nobody(rig: Rig, backlog: Backlog) -> None:
    """Nor does a worker look at all of them each time: the round goes on where it stopped."""
    backlog.add("failing", 3_000)
    rows_of(
        rig.url,
        "INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage, next_attempt_at)"
        " SELECT shard_key, scope_key, generation_id, stage, clock_timestamp() + interval '1 hour'"
        " FROM strandline.due RETURNING 1",
    )
    failing = list(backlog.hints)
    backlog.hints.clear()
    backlog.add("failing", 1, user="well")
    backlog.hints = failing[:4]
    assert serve(workers(rig.database, backlog, 1), backlog) == ["well"]


def test_a_lane_that_waits_hides_no_other_of_its_owner_however_much_is_due_in_it(
    rig: Rig, backlog: Backlog
) -> None:
    backlog.add("tenant", 1, user="u", events=600)
    rows_of(
        rig.url,
        "INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage, next_attempt_at)"
        " SELECT DISTINCT shard_key, scope_key, generation_id, stage, now() + interval '1 hour'"
        " FROM strandline.due RETURNING 1",
    )
    waiting = backlog.hints.pop()
    backlog.add("tenant", 1, user="u")
    backlog.names[waiting.scope_key] = "waiting"
    (worker,) = workers(rig.database, backlog, 1)
    worker.take_up(waiting)
    assert backlog.drained == ["u"]


RETIRED = """
WITH old AS (
    INSERT INTO strandline.generation (pipeline, version, entry_stage, state)
    SELECT pipeline, version, entry_stage, 'retired' FROM strandline.generation WHERE pipeline = 'summary'
    RETURNING generation_id
)
UPDATE strandline.due SET generation_id = old.generation_id FROM old RETURNING 1
"""
SWITCHING = """
INSERT INTO strandline.scope_generation (shard_key, pipeline, generation_id, paused_until)
SELECT DISTINCT d.shard_key, g.pipeline, g.generation_id, clock_timestamp() + interval '50 seconds'
FROM strandline.due d JOIN strandline.generation g USING (generation_id) RETURNING 1
"""


@pytest.mark.parametrize("unclaimable", [RETIRED, SWITCHING])
def test_lanes_that_may_not_be_claimed_because_of_their_derivation_delay_nobody(
    rig: Rig, unclaimable: str, backlog: Backlog
) -> None:
    """Each belongs to a different tenant, and they come first in the round."""
    for number in range(40):
        backlog.add(f"tenant {number:02}", 1)
    rows_of(rig.url, unclaimable)
    ((old,), *_) = rows_of(rig.url, "SELECT generation_id FROM strandline.due")
    hint = backlog.hints[0]
    backlog.add("well", 1)
    (worker,) = workers(rig.database, backlog, 1)
    worker.take_up(Lane(hint.shard_key, hint.scope_key, old, hint.stage))
    assert backlog.drained == ["well"]


def test_a_round_goes_on_behind_lanes_that_could_not_be_taken(rig: Rig, backlog: Backlog) -> None:
    """A transaction locks their rows for a while, as a reset does; each belongs to a different tenant."""
    for number in range(40):
        backlog.add(f"tenant {number:02}", 1)
    rows_of(
        rig.url,
        "INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage)"
        " SELECT shard_key, scope_key, generation_id, stage FROM strandline.due RETURNING 1",
    )
    hints = backlog.hints[:4]
    backlog.add("well", 1)
    (worker,) = workers(rig.database, backlog, 1)
    with psycopg.connect(rig.url) as connection:
        connection.execute("SELECT FROM strandline.lane FOR UPDATE")
        for hint in hints:
            worker.take_up(hint)
    assert backlog.drained == ["well"]


def test_two_workers_that_look_at_the_same_moment_wait_for_nobody_and_take_two_lanes(
    database: Database, backlog: Backlog
) -> None:
    backlog.add("tenant", 2)
    first, second = workers(database, backlog, 2)
    at = Turns()
    turn = TakeTurn(
        **at.params(SUMMARY_STAGE),
        **backlog.hints[0].keys,
        skipped_generations=[],
        worker_id=first.worker_id,
        dead_after_seconds=1_800.0,
        deadline_seconds=600.0,
        batch_id=uuid4(),
        token_budget=8_000,
        max_events=64,
    )
    with database.transaction() as tx:
        (taken,) = tx.fetch(turn)
        # Not committed: whoever waited for it would wait until this test ends.
        other = take_turn(database, backlog.hints[0], at, (), second.worker_id, TERMS, 8_000)
    assert other is not None
    assert other.lease.lane.scope_key != taken.scope_key


@hypothesis_settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shares=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=12
    ),
    number=st.integers(1, 3),
)
def test_everything_is_drained_once_and_nobody_is_passed_over_for_longer_than_a_round(
    rig: Rig, shares: list[tuple[int, int, int]], number: int
) -> None:
    rows_of(rig.url, EMPTY)
    backlog = Backlog(rig.url)
    for place, (tenant, user, sessions) in enumerate(shares):
        backlog.add(f"t{tenant}", sessions, user=f"t{tenant} u{user} at {place}")
    order = serve(workers(rig.database, backlog, number), backlog)
    assert len(order) == sum(sessions for *_, sessions in shares)
    tenants = [name.split()[0] for name in order]
    for name in set(tenants):
        turns = [turn for turn, served in enumerate(tenants) if served == name]
        waits = [later - earlier - 1 for earlier, later in pairwise([-1, *turns])]
        assert max(waits) <= len(set(tenants)) * number


def test_what_was_claimed_while_a_turn_is_being_taken_is_not_handed_back() -> None:
    """A turn names its lane only when it was claimed, which a slow server may say late."""
    active = ActiveLanes()
    assert active.params()["older_than_seconds"] == SETTLED_SECONDS
    with active.permit_claim():
        assert active.params()["older_than_seconds"] > SETTLED_SECONDS
    assert active.params()["older_than_seconds"] == SETTLED_SECONDS
