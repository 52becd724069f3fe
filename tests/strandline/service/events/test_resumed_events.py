"""Streams of events that are cut, late or in trouble: whoever comes back misses nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from strandline.client import RemoteAdmin, RemoteService, Retries
from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.queries.application.service import Happenings
from strandline.schemas.queries.derived.generations import BeginGeneration, RetireGeneration
from strandline.schemas.wire.keys import NewKey
from strandline.service import events
from strandline.service.events import Listener, Told
from tests.conftest import wait_until
from tests.strandline.service.events.test_service_events import (
    Stream,
    listening,
    namespace,
    polled,
    say,
    tenant,
)
from tests.strandline.service.test_operators import bury
from tests.support.servers.service_server import RunningService

__all__ = ["namespace", "tenant"]

# What commits while a flush is told, and bears an earlier time.
LATE = """
INSERT INTO strandline.flush_event (shard_key, session_key, from_seq, through_seq, event_id, incarnation,
        cause, message_count, tokens, version)
    SELECT e.shard_key, e.session_key, 101, 101, gen_random_uuid(), e.incarnation, e.cause, 1, 1, e.version
    FROM strandline.flush_event e JOIN strandline.session s USING (shard_key, session_key)
    WHERE s.namespace = %s
"""


# What a lane writes that passes a flush on to its next stage, and what it writes at the end.
PASSED_ON = """
INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)
    SELECT d.shard_key, d.event_id, d.generation_id, 'earlier', 'applied'
    FROM strandline.due d JOIN strandline.session s USING (shard_key, session_key)
    WHERE s.namespace = %s AND d.stage = 'vectors'
"""
APPLIED = """
WITH gone AS (
    DELETE FROM strandline.due d USING strandline.session s
    WHERE s.shard_key = d.shard_key AND s.session_key = d.session_key AND s.namespace = %s
        AND d.stage = 'vectors'
    RETURNING d.*
)
INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)
    SELECT shard_key, event_id, generation_id, stage, 'applied' FROM gone
"""
# A dead letter is derived after all.
REVIVED = """
WITH gone AS (
    DELETE FROM strandline.dead_letter l USING strandline.session s
    WHERE s.shard_key = l.shard_key AND s.session_key = l.session_key AND s.namespace = %s RETURNING l.*
)
UPDATE strandline.receipt r SET outcome = 'applied', applied_at = clock_timestamp() FROM gone g
    WHERE r.shard_key = g.shard_key AND r.event_id = g.event_id
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happened is settled at once, so that only an id brings back what was told before."""
    monkeypatch.setattr(events, "LATE_SECONDS", 0.0)
    monkeypatch.setattr(events, "DEEP_SECONDS", 0.0)


def kinds(stream: Stream) -> set[tuple[str, str | None, str | None]]:
    return {(one["kind"], one.get("pipeline"), one.get("state")) for _, one in stream.events}


def test_a_quiet_stream_goes_on_over_a_restart_of_the_service(
    running: RunningService, tenant: NewKey, namespace: str
) -> None:
    heard: list[str | None] = []
    with RunningService(running.database_url) as first:
        quick = Retries(base_seconds=0.02, longest_seconds=0.1)
        service = RemoteService(first.url, tenant.key, retries=quick)

        def read() -> None:
            for event in RemoteAdmin(service).events():
                heard.append(event.session_id)
                if event.session_id == "back":
                    return

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_until(lambda: first.service.events.looks > 1, timeout=20, what="a stream")
        assert heard == []
        first.service.is_stopping = True  # as a signal does
        wait_until(lambda: first.service.events.listeners == 0, timeout=20, what="the end of its stream")
    with running.client(tenant, user="ana") as client:
        say(client, "meanwhile")
        with RunningService(running.database_url, port=first.port) as second:
            wait_until(lambda: second.service.events.looks > 0, timeout=20, what="the stream again")
            say(client, "back")
            reader.join(20)
    service.close()
    assert set(heard) == {"meanwhile", "back"}


def test_deaths_and_changes_of_derivations_are_told_and_told_to_who_resumes(
    running: RunningService, tenant: NewKey, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "DEEP_SECONDS", 1e6)  # so that the poller still knows what it told
    recipe: dict[str, Any] = {"version": "2", "entry_stage": "s", "entry_scope": "session"}
    recipe |= {"pipeline": "p", "config": Jsonb({}), "prompts": Jsonb({})}
    with running.client(tenant, user="ana") as client:
        with listening(client, "/v1/events") as stream:
            polled(running)
            before = stream.last_id()
            dead = ("dead", "vectors", None)
            event = bury(running, namespace)
            wait_until(lambda: dead in kinds(stream), timeout=20, what="the death")
            execute(running, REVIVED, namespace)
            covered = ("covered", "vectors", None)
            wait_until(lambda: covered in kinds(stream), timeout=20, what="what a retry came to")
            event = bury(running, namespace, "again")
            with running.database.transaction() as tx:
                (begun,) = tx.fetch(BeginGeneration(**recipe))
            wait_until(lambda: ("generation", "p", "preparing") in kinds(stream), timeout=20, what="it")
        with running.database.transaction() as tx:
            assert tx.fetch(RetireGeneration(generation_id=begun.generation_id))
        retired = ("generation", "p", "retired")
        with listening(client, "/v1/events", before) as again:
            wait_until(lambda: {dead, retired} <= kinds(again), timeout=20, what="both again")
    assert {one["event_id"] for _, one in again.events if one["kind"] == "dead"} == {event}
    assert {one["generation"] for _, one in again.events if one.get("pipeline") == "p"} == {
        begun.generation_id
    }


def test_a_stage_that_passes_its_work_on_is_no_end(
    running: RunningService, tenant: NewKey, namespace: str
) -> None:
    with running.client(tenant, user="ana") as client, listening(client, "/v1/events") as stream:
        say(client, "s")
        execute(running, PASSED_ON, namespace)
        polled(running)
        polled(running)
        assert stream.of("s") == [("flushed", None)]
        execute(running, APPLIED, namespace)
        wait_until(lambda: ("covered", "vectors") in stream.of("s"), timeout=20, what="the end")
        polled(running)
    assert stream.of("s") == [("flushed", None), ("covered", "vectors")]


def execute(running: RunningService, sql: str, namespace: str) -> None:
    with psycopg.connect(running.database_url) as connection:
        assert connection.execute(sql.encode(), [namespace]).rowcount == 1


def test_a_listener_that_is_behind_loses_its_stream_and_nothing_else(
    running: RunningService, tenant: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running.client(tenant, user="ana") as client:
        with listening(client, "/v1/events") as stream:
            polled(running)
            with monkeypatch.context() as narrow:
                narrow.setattr(events, "MAX_WAITING", 0)
                say(client, "too much")
                assert stream.has_ended.wait(20)
            assert stream.of("too much") == []
        with listening(client, "/v1/events", stream.last_id()) as again:
            wait_until(lambda: again.of("too much"), timeout=20, what="what was not told")


def test_what_commits_long_after_its_time_is_told_and_resumed(
    running: RunningService, tenant: NewKey, namespace: str
) -> None:
    hub = running.service.events
    with running.client(tenant, user="ana") as client, psycopg.connect(running.database_url) as late:
        say(client, "s")
        with listening(client, "/v1/events") as stream:
            late.execute(LATE, [namespace])
            looks = hub.looks
            wait_until(lambda: hub.looks > looks + 2, timeout=20, what="some looks")
            say(client, "other")
            wait_until(lambda: stream.of("other"), timeout=20, what="what came after it")
            last = stream.last_id()
            late.commit()
            wait_until(lambda: stream.of("s"), timeout=20, what="what was late")
        with listening(client, "/v1/events", last) as again:
            wait_until(lambda: again.of("s"), timeout=20, what="what was late, once more")


def test_a_quiet_stream_says_how_far_it_is(
    running: RunningService, tenant: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PING_SECONDS", 0.0)
    with running.client(tenant) as client, listening(client, "/v1/events") as stream:
        wait_until(lambda: len({one for one, _ in stream.events if one}) > 1, timeout=20, what="two places")
    ids = [int(one) for one, _ in stream.events if one]
    assert {one["kind"] for _, one in stream.events} == {"position"}
    assert ids == sorted(ids)


def test_a_stream_whose_past_cannot_be_read_ends_and_can_be_resumed(
    running: RunningService,
    tenant: NewKey,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_listener: Listener) -> AsyncIterator[Told]:
        raise DatabaseUnavailableError("away")
        yield

    monkeypatch.setattr(running.service.events, "_catch_up", fail)
    with (
        caplog.at_level(logging.WARNING, "strandline.service"),
        running.client(tenant) as client,
        listening(client, "/v1/events", "1") as stream,
    ):
        assert stream.has_ended.wait(20)
    assert stream.last_id()
    assert [one.__dict__["reason"] for one in caplog.records] == ["DatabaseUnavailableError"]


def test_many_streams_of_one_tenant_delay_anothers_past_by_their_turns(
    running: RunningService, tenant: NewKey, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = running.make_key()
    asked: list[str] = []

    def ask(**page: Any) -> Happenings:
        if page["until"] - page["since"] == events.SPAN:  # not the poller
            asked.append(page["namespaces"][0])
        return Happenings(**page)

    monkeypatch.setattr(events, "Happenings", ask)
    with ExitStack() as opened:
        client = opened.enter_context(running.client(tenant))
        for _ in range(20):
            opened.enter_context(listening(client, "/v1/events", "1"))
        with running.client(other) as others, listening(others, "/v1/events", "1"):
            pages = events.MAX_RESUMED_SECONDS / events.SPAN.total_seconds() - 1
            wait_until(lambda: asked.count("default") >= pages, timeout=60, what="the other's past")
    first, last = asked.index("default"), len(asked) - asked[::-1].index("default")
    crowd = asked[first:last].count(namespace)
    assert crowd <= 3 * pages, "a page waits for a few of the crowd, not for each stream"


def test_an_error_of_a_look_is_logged_and_the_next_one_goes_on(
    running: RunningService,
    tenant: NewKey,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hub = running.service.events
    failed = threading.Event()

    async def fail() -> None:
        monkeypatch.undo()
        failed.set()
        raise ValueError("I live in Lisbon.")

    with (
        caplog.at_level(logging.WARNING, "strandline.service"),
        running.client(tenant, user="ana") as client,
        listening(client, "/v1/events") as stream,
    ):
        monkeypatch.setattr(hub, "_look", fail)
        assert failed.wait(20)
        say(client, "after")
        wait_until(lambda: stream.of("after"), timeout=20, what="what came after the error")
    (record,) = [one for one in caplog.records if one.getMessage() == "events could not be read"]
    assert record.__dict__["reason"] == "ValueError"
    assert "Lisbon" not in caplog.text
