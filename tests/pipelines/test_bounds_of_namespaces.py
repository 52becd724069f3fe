"""Bounds on what a namespace has stored: every way to store more is refused at them, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from strandline import Memory, NamespaceFullError
from strandline.administration.limits import read_limits, write_limits
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.schemas.wire.operations import LimitsIn
from tests.conftest import Rig, rows_of

MAX_BYTES = 10_000
COUNT_NOW = "UPDATE strandline.namespace_rule SET count_at = '-infinity' RETURNING namespace"


def text(size: int = 2_000) -> dict[str, Any]:
    return {"role": "user", "content": "a" * size}


def open_memory(database_url: str, session_id: str = "s", namespace: str = "acme") -> Memory:
    return Memory.from_defaults(session_id, user_id="ana", namespace=namespace, database_url=database_url)


def bound(database: Database, **limits: Any) -> None:
    write_limits(database, "acme", LimitsIn(**limits))


GROWTH: dict[str, Callable[[Memory], object]] = {
    "put": lambda memory: memory.put(text()),
    "put_messages": lambda memory: memory.put_messages([text(), text()]),
    "import": lambda memory: memory.import_messages([text() | {"id": "old"}]),
    "run": lambda memory: memory.add_run("r", [text()]),
    "fork": lambda memory: memory.fork(),
    "replace": lambda memory: memory.replace(2, "b" * 3_000),
}


@pytest.mark.parametrize("way", GROWTH)
def test_nothing_is_stored_above_the_bound_of_bytes(database: Database, database_url: str, way: str) -> None:
    memory = open_memory(database_url)
    seqs = [memory.put(text() | {"id": f"m{number}"}) for number in range(6)]
    bound(database, max_bytes=MAX_BYTES)
    with pytest.raises(NamespaceFullError) as refusal:
        GROWTH[way](memory)
    assert refusal.value.bound == "bytes"
    assert [message.seq for message in memory.get_all()] == seqs
    assert memory.put(text() | {"id": "m3"}) == seqs[3]  # it is there already
    open_memory(database_url, namespace="bolt").put(text())
    memory.reset(derived=True)
    rows_of(database_url, COUNT_NOW)
    memory.put(text())


@pytest.mark.parametrize("way", ["put", "fork"])
def test_no_session_begins_above_the_bound_of_sessions(rig: Rig, way: str) -> None:
    memory = open_memory(rig.url)
    memory.put(text())
    bound(rig.database, max_sessions=1)
    with pytest.raises(NamespaceFullError) as refusal:
        open_memory(rig.url, "other").put(text()) if way == "put" else memory.fork()
    assert refusal.value.bound == "sessions"
    memory.put_messages([text(), text()])
    memory.put(text())
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.session_owner") == [(1,)]


def test_a_bound_is_met_without_a_worker_and_without_a_change_of_limits(rig: Rig) -> None:
    bound(rig.database, max_bytes=MAX_BYTES)
    memory = open_memory(rig.url)
    for _ in range(5):
        memory.put(text())
        rows_of(rig.url, COUNT_NOW)
    with pytest.raises(NamespaceFullError):
        memory.put(text())
    assert len(memory.get_all()) == 5


def test_what_is_counted_is_told_and_a_namespace_without_bounds_is_not_counted(rig: Rig) -> None:
    memory = open_memory(rig.url)
    bound(rig.database, max_bytes=MAX_BYTES, max_sessions=7)
    memory.put(text())
    rows_of(rig.url, COUNT_NOW)
    memory.put(text())
    (limits,) = read_limits(rig.database, load_settings(database_url=rig.url), "acme")
    assert (limits.sessions_stored, limits.max_sessions, limits.max_bytes) == (1, 7, MAX_BYTES)
    assert limits.bytes_stored is not None and 2_000 < limits.bytes_stored < 2_100
    write_limits(rig.database, "acme", LimitsIn(calls_per_day=5), whole=True)
    assert rows_of(rig.url, "SELECT FROM strandline.namespace_rule WHERE count_at IS NOT NULL") == []


def test_who_counts_is_not_waited_for(database: Database, database_url: str) -> None:
    memory = open_memory(database_url)
    memory.put(text())
    bound(database, max_bytes=MAX_BYTES)
    with psycopg.connect(database_url) as connection:
        memory.put(text(), connection=connection)  # it has counted, and its transaction is open
        open_memory(database_url, "other").put(text())
