"""A user's facts and the operators' routes through the client, against a running service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest

from strandline import ConfigurationError, Facts, InvalidMessageError, Memory, NotFoundError
from strandline.client import (
    WITHOUT_USER,
    AsyncRemoteAdmin,
    RemoteAdmin,
    RemoteFacts,
    RemoteMemory,
    RemoteService,
    ServiceKeyError,
)
from strandline.schemas.values.acts.capture import Capture
from strandline.schemas.wire.keys import KeyRequest
from strandline.schemas.wire.operations import ImportedFactIn, LimitsIn, ReplayIn
from tests.conftest import wait_until
from tests.support.servers.service_server import RunningService

MakeBoth = Callable[..., tuple[Memory, RemoteMemory]]


@pytest.fixture
def both(running: RunningService, remote: RemoteService, user: str) -> Iterator[tuple[Facts, RemoteFacts]]:
    near = Facts.for_owner(user_id=user, database_url=running.database_url)
    yield near, RemoteFacts.for_owner(user_id=user, service=remote)
    near.close()


@pytest.fixture(scope="module")
def operator(running: RunningService) -> Iterator[RemoteAdmin]:
    """With a key of all namespaces."""
    key = running.make_key(None, scopes=("operate",)).key
    with RemoteService(running.url, key) as service:
        yield RemoteAdmin(service)


def test_sources_and_imports_come_from_afar(both: tuple[Facts, RemoteFacts]) -> None:
    near, far = both
    changes = far.create_from([{"role": "user", "content": "I keep bees."}], key="once")
    assert far.create_from([{"role": "user", "content": "I keep bees."}], key="once") == changes
    assert changes == near.create_from([{"role": "user", "content": "I keep bees."}], key="once")
    far.forget_source(changes.source_id)
    far.forget_source(changes.source_id)
    with pytest.raises(InvalidMessageError):
        far.forget_source("no source")
    imported = [ImportedFactIn(id="1", text="Likes tea.", created_at=datetime(2020, 1, 1, tzinfo=UTC))]
    assert far.import_facts(imported).added == 1
    assert far.import_facts(imported).known == 1


def test_what_is_captured_is_an_operators_choice(
    running: RunningService, both: tuple[Facts, RemoteFacts]
) -> None:
    near, far = both
    with pytest.raises(ServiceKeyError, match="scope"):
        far.set_capture(Capture(may_delete=False))
    with RemoteService(running.url, running.make_key(scopes=("operate",)).key) as service:
        RemoteFacts.for_owner(user_id=far.user_id, service=service).set_capture(Capture(may_delete=False))
    assert far.get_capture() == near.get_capture() == Capture(may_delete=False)


def test_keys_are_made_listed_rotated_and_revoked(running: RunningService, operator: RemoteAdmin) -> None:
    made = operator.create_key(KeyRequest(scopes=["read"], namespace="acme", label="for a test"))
    listed = list(operator.keys())
    assert made.key_id in {key.key_id for key in listed}
    rotated = operator.rotate_key(made.key_id, overlap_seconds=0)
    assert rotated.rotated_from == made.key_id
    with RemoteService(running.url, rotated.key) as service:
        identity = RemoteAdmin(service).whoami()
    assert (identity.namespace, identity.scopes) == ("acme", ["read"])
    assert operator.revoke_key(rotated.key_id).is_over
    with pytest.raises(NotFoundError):
        operator.revoke_key("unknown")


def test_operators_see_and_set_what_commands_do(
    operator: RemoteAdmin, remote: RemoteService, make_both: MakeBoth
) -> None:
    _, far = make_both()
    far.put({"role": "user", "content": "Hello."})
    assert operator.status().messages >= 1
    assert operator.workers() == []
    assert operator.set_limits("acme", LimitsIn(calls_per_day=5)).calls_per_day == 5
    assert operator.limits("acme").calls_per_day == 5
    assert [one.namespace for one in operator.namespaces()] == ["acme"]
    assert list(operator.dead_letters()) == []
    assert list(operator.operations()) == []
    assert {one.pipeline for one in operator.generations().generations} >= {"facts", "summary"}
    assert operator.estimate_replay(ReplayIn(pipeline="facts")).pipelines[0].pipeline == "facts"
    with pytest.raises(NotFoundError):
        operator.retry_dead_letter(uuid4())
    admin = RemoteAdmin(remote)
    assert [one.session_id for one in admin.sessions(user_id=far.user_id)] == [far.session_id]
    assert admin.session(far.session_id, user_id=far.user_id).session.messages == 1
    assert far.user_id in {one.user_id for one in admin.users()}


def test_the_audit_trail_is_read_from_afar(running: RunningService) -> None:
    key = running.make_key("audited", scopes=("operate", "facts"))
    with RemoteService(running.url, key.key) as service:
        admin = RemoteAdmin(service)
        assert admin.set_audit_level("all") == admin.audit_level() == "all"
        RemoteFacts.for_owner(user_id="ana", service=service).add("Likes tea.")
        kinds = [act.kind for act in admin.acts()]
        assert "facts.add" in kinds
        (act,) = admin.acts(kind="facts.add", user_id="ana")
        assert admin.act(act.entry_id).actor == f"key:{key.key_id}"
        assert admin.verify_audit().findings == []


def test_nobody_has_facts(running: RunningService) -> None:
    """A user called `-` would be one for all sessions that have none."""
    with RemoteService(running.url, running.make_key().key) as service:
        with pytest.raises(ConfigurationError, match="those of a user"):
            RemoteFacts.for_owner(user_id="-", service=service)
        with pytest.raises(ConfigurationError, match="those of a user"):
            RemoteMemory.from_defaults("chat", user_id=WITHOUT_USER, service=service).facts  # noqa: B018


def test_lists_are_followed_over_pages_for_asyncio_too(running: RunningService) -> None:
    made = [running.make_key("many", scopes=("read",)).key_id for _ in range(105)]
    key = running.make_key("many", scopes=("operate",))

    async def whole() -> list[str]:
        async with RemoteService(running.url, key.key) as service:
            listed = AsyncRemoteAdmin(service).keys()
            return [one.key_id async for one in listed]

    assert sorted(asyncio.run(whole())) == sorted([*made, key.key_id])


def test_events_resume_where_a_stream_was_cut(running: RunningService, make_both: MakeBoth) -> None:
    _, far = make_both()
    far.put({"role": "user", "content": "one"})
    listeners = running.service.events.listeners

    def flush() -> list[UUID]:
        wait_until(lambda: running.service.events.listeners > listeners, timeout=10, what="a listener")
        return far.flush(all=True)

    async def first() -> str:
        flushing = asyncio.get_running_loop().run_in_executor(None, flush)
        stream = far.aevents()
        async for event in stream:
            if event.kind == "generation":
                continue
            assert event.kind == "flushed"
            assert event.event_id in await flushing
            await stream.aclose()
            await far.aclose()
            return event.id
        raise AssertionError("the stream ended")

    last = asyncio.run(first())
    far.put({"role": "user", "content": "two"})
    (second,) = far.flush(all=True)
    seen = []
    for event in far.events(last_event_id=last):
        seen.append(event.event_id)
        if event.event_id == second:
            break
    assert second in seen
    with pytest.raises(NotFoundError):
        next(make_both()[1].events())
