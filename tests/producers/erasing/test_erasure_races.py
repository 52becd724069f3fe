"""An erasure against what was begun before it: it waits for writers, and who comes later finds the fence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, get_args

import psycopg
import pytest

from strandline import ErasedError, Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import ErasureReceipt, Erasures
from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.records import Selection
from strandline.schemas.values.identity import identify_session, shared_scope_key
from tests.conftest import MakeMemory, Rig, lock_is_awaited, rows_of, wait_until
from tests.producers.erasing.conftest import LIMITS
from tests.support.servers.databases import temporary_database
from tests.support.stored import flush_events, stored_messages
from tests.support.workers.draining import due_lanes
from tests.support.workers.hand_worker import HandWorker
from tests.support.workers.scripted_stages import ScriptedStages

WORD = "zanzibarq"


@pytest.fixture
def database_url(stack: EmbeddedStack) -> Iterator[str]:
    """Empty: here a user has what the test gives her."""
    with temporary_database(stack.database_url) as url:
        yield url


class Erasing:
    """An erasure in a thread of its own."""

    def __init__(self, erasures: Erasures, user: str = "ann") -> None:
        self.receipt: ErasureReceipt | None = None
        self._erasures = erasures
        self._user = user
        self.thread = threading.Thread(target=self._erase)
        self.thread.start()

    def _erase(self) -> None:
        self.receipt = self._erasures.erase_user(self._user)

    def end(self) -> ErasureReceipt:
        self.thread.join()
        assert self.receipt is not None
        return self.receipt


def put(memory: Memory, connection: Any) -> None:
    memory.put({"role": "user", "content": f"my boat {WORD} is blue"}, connection=connection)


BEGUN: dict[str, Callable[[Memory, Any], Any]] = {
    "a put to a session": put,
    "a new session": lambda memory, connection: put(memory.get_scope("new"), connection),
    "a fork": lambda memory, connection: memory.fork("copied", connection=connection),
    "a reset": lambda memory, connection: memory.reset(derived=True, connection=connection),
    "a correction": lambda memory, connection: memory.rewind(1, connection=connection),
    "a run": lambda memory, connection: memory.add_run(
        "r", [{"role": "user", "content": f"run {WORD}"}], connection=connection
    ),
}


@pytest.mark.parametrize("name", BEGUN)
def test_an_erasure_waits_for_a_transaction_that_writes(rig: Rig, name: str, erasures: Erasures) -> None:
    """And takes with it what that has committed."""
    memory = rig.memory("s1", user_id="ann", **LIMITS)
    for _ in range(3):
        memory.put({"role": "user", "content": f"my boat {WORD} is blue"})
    memory.flush(all=True)
    with psycopg.connect(rig.url) as connection:
        BEGUN[name](memory, connection)
        erasing = Erasing(erasures)
        wait_until(lambda: lock_is_awaited(rig.url), timeout=10, what="the erasure to wait")
        assert erasing.receipt is None
        connection.commit()
    erasing.end()
    assert erasures.plan_user("ann").total == 0
    assert stored_messages(rig.url) == 0
    with pytest.raises(ErasedError):
        memory.put({"role": "user", "content": "back"})


def test_an_erasure_waits_for_copies_to_a_shared_scope(rig: Rig, erasures: Erasures) -> None:
    """A worker has seen that it holds its lease, and is just copying, under another key than the owner's."""
    memory = rig.memory("s1", user_id="ann", **LIMITS)
    memory.put({"role": "user", "content": f"my boat {WORD} is blue"})
    keys, scope = identify_session("default", "s1", "ann"), shared_scope_key("default", "harbour")
    lock = "SELECT strandline.lock_shared_session_v1(%s, %s, gen_random_uuid(), %s, 's1')"
    copy = (
        "INSERT INTO strandline.shared_message"
        " (shard_key, session_key, seq, incarnation, id, role, tokens, envelope, created_at)"
        " VALUES (%s, %s, 1, gen_random_uuid(), 'x', 'user', 1, '{}', now())"
    )
    with psycopg.connect(rig.url) as connection:
        connection.execute(lock, (scope, keys.session_key, keys.shard_key))
        connection.execute(copy, (scope, keys.session_key))
        erasing = Erasing(erasures)
        wait_until(lambda: lock_is_awaited(rig.url), timeout=10, what="the erasure to wait")
        connection.commit()
    assert erasing.end().counts["shared_message"] == 1
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.shared_message") == [(0,)]
    with psycopg.connect(rig.url, autocommit=True) as connection:
        assert connection.execute(lock, (scope, keys.session_key, keys.shard_key)).fetchone() == (True,)
    assert erasures.plan_user("ann").total == 0


@pytest.mark.parametrize("point", get_args(StopPoint))
def test_a_worker_that_wakes_up_after_the_erasure_writes_nothing(
    rig: Rig, point: StopPoint, erasures: Erasures
) -> None:
    """Wherever it was in a batch; in the middle of its transaction it is waited for."""
    memory = rig.memory("s1", user_id="ann", **LIMITS)
    for number in range(4):
        memory.put({"role": "user", "content": f"my boat is blue {WORD}{number}"})
    memory.flush(all=True)
    reached, go_on = threading.Event(), threading.Event()

    def reach(here: StopPoint) -> None:
        if here == point and not reached.is_set():
            reached.set()
            go_on.wait()

    worker = HandWorker(rig.database, ScriptedStages(), reach=reach)
    working = threading.Thread(target=worker.drain_all, args=(rig.url,))
    working.start()
    reached.wait()
    erasing = Erasing(erasures)
    if point == "applying":
        wait_until(lambda: lock_is_awaited(rig.url), timeout=10, what="the erasure to wait")
        go_on.set()
    erasing.end()
    go_on.set()
    working.join()
    HandWorker(rig.database, ScriptedStages()).drain_all(rig.url)
    assert due_lanes(rig.url) == []
    assert erasures.plan_user("ann").total == 0
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.shared_message") == [(0,)]


def test_a_replay_passes_over_who_is_erased_meanwhile(rig: Rig, erasures: Erasures) -> None:
    memory = rig.memory("s1", user_id="ann", **LIMITS)
    memory.put({"role": "user", "content": f"my boat is blue {WORD}"})
    memory.flush(all=True)
    replays = [
        begin_in_place(rig.database, pipeline, Selection("default", user_id="ann"))
        for pipeline in ("facts", "vectors")
    ]
    erasures.erase_user("ann")
    for replay in replays:
        replay_in_place(rig.database, replay, rig.settings)
    assert erasures.plan_user("ann").total == 0
    with pytest.raises(ErasedError):
        begin_in_place(rig.database, "summary", Selection("default", user_id="ann"))


def test_a_claim_and_a_put_apart_do_not_bring_a_user_back(rig: Rig, erasures: Erasures) -> None:
    """A session whose directory entry was claimed before the fence, and which is put to after it."""
    memory = rig.memory("s1", user_id="ann", **LIMITS)
    keys = identify_session("default", "s1", "ann")
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO strandline.session_owner (shard_key, namespace, session_id, user_id, owner_key)"
            " VALUES (%s, 'default', 's1', 'ann', %s)",
            (keys.directory_key, keys.shard_key),
        )
    assert erasures.erase_user("ann").counts == {"audit_subject": 1, "session_owner": 1}
    with psycopg.connect(rig.url, autocommit=True) as connection:
        (status,) = connection.execute(
            "SELECT status FROM strandline.put_v1(%s, %s, true, '{\"pipelines\": []}', '{x}', '{user}',"
            " '{1}', '{1}', '{x}', '{\"{}\"}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', '{NULL}', NULL)",
            (keys.shard_key, keys.session_key),
        ).fetchone() or (None,)
    assert status == "erased"
    with pytest.raises(ErasedError):
        memory.put({"role": "user", "content": "back"})
    assert erasures.plan_user("ann").total == 0


def test_an_ordinary_put_takes_no_lock_of_the_owner(make_memory: MakeMemory, database_url: str) -> None:
    """While whoever sets a fence holds that lock, puts to sessions that exist go on; a new session waits."""
    memory = make_memory("s1", user_id="ann", **LIMITS)
    memory.put({"role": "user", "content": "hello"})
    lock = "SELECT pg_advisory_xact_lock(hashtextextended('erasure ' || %s, 0))"
    with psycopg.connect(database_url) as connection:
        connection.execute(lock, (str(identify_session("default", "s1", "ann").shard_key),))
        memory.put({"role": "user", "content": "hello again"})
        memory.put_messages([{"role": "user", "content": f"and again {n}"} for n in range(3)])
        memory.flush(all=True)
        memory.get()
        new = make_memory("s2", user_id="ann", **LIMITS)
        waiting = threading.Thread(target=new.put, args=({"role": "user", "content": "hello"},))
        waiting.start()
        wait_until(lambda: lock_is_awaited(database_url), timeout=10, what="the new session to wait")
        connection.rollback()
    waiting.join()
    assert len(new.get_all()) == 1


def due_events(url: str) -> list[int]:
    return [row[0] for row in rows_of(url, "SELECT from_seq FROM strandline.due ORDER BY from_seq")]


def flush_each(memory: Memory, times: int) -> None:
    for number in range(times):
        memory.put({"role": "user", "content": f"my boat {WORD}{number} is blue"})
        memory.flush(all=True)


def test_an_erasure_deletes_events_in_the_order_in_which_a_replay_locks_them(rig: Rig) -> None:
    """Both stop between two locks: in another order each would have what the other one waits for."""
    memory = rig.memory("s1", user_id="ann", **LIMITS)
    flush_each(memory, 2)
    owner = identify_session("default", "s1", "ann").shard_key
    lock = "SELECT FROM strandline.flush_event WHERE shard_key = %s AND from_seq = %s FOR KEY SHARE"
    erase = "SELECT strandline.erase_rows_v1(0, 'flush_event', %s, NULL, NULL, 2000)"
    with psycopg.connect(rig.url, autocommit=True) as connection:
        # Where the rows lie: the later event first.
        connection.execute("UPDATE strandline.flush_event SET cause = cause WHERE from_seq = 1")
        connection.execute("VACUUM ANALYZE strandline.flush_event")
    with psycopg.connect(rig.url) as replay, psycopg.connect(rig.url) as erasing:
        erasing.execute("SET enable_indexscan = off")
        erasing.execute("SET enable_bitmapscan = off")
        replay.execute(lock, (owner, 1))
        thread = threading.Thread(target=erasing.execute, args=(erase, (owner,)))
        thread.start()
        wait_until(lambda: lock_is_awaited(rig.url), timeout=10, what="the erasure to wait")
        replay.execute(lock, (owner, 2))
        replay.commit()
        thread.join()
        erasing.commit()
    assert flush_events(rig.url) == 0


def test_a_replay_makes_nothing_due_behind_the_fence(rig: Rig) -> None:
    """It has found the owner, and comes to its events when the fence is just being set: it waits for that."""
    memory = rig.memory("s1", user_id="ann", **LIMITS)
    flush_each(memory, 2)
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("DELETE FROM strandline.due")
    owner = identify_session("default", "s1", "ann").shard_key
    replay = begin_in_place(rig.database, "vectors", Selection())
    with psycopg.connect(rig.url) as connection:
        connection.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('erasure ' || %s::uuid::text, 0))", (owner,)
        )
        replaying = threading.Thread(target=replay_in_place, args=(rig.database, replay, rig.settings))
        replaying.start()
        wait_until(lambda: lock_is_awaited(rig.url), timeout=10, what="the replay to wait")
        connection.execute(
            "INSERT INTO strandline.erasure_fence (shard_key, scope_key, number, fenced_at)"
            " VALUES (%s, %s, 1, now())",
            (owner, owner),
        )
        connection.commit()
    replaying.join()
    assert due_events(rig.url) == []
