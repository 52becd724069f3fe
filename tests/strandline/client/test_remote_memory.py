"""The client's memory against a running service: what ``Memory`` gives in this process, it gives as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import unwrap
from uuid import uuid4

import pytest

from strandline import ConfigurationError, Memory, NotFoundError
from strandline.client import AsyncRemoteMemory, RemoteAdmin, RemoteMemory, RemoteService
from strandline.schemas.wire.explanations import FactExplanation, RemovedFactExplanation
from tests.support.servers.service_server import RunningService

Both = tuple[Memory, RemoteMemory]
MakeBoth = Callable[..., Both]

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
EVERY_FIELD = [
    {"role": "system", "content": "Be brief.", "cache": True},
    {"role": "user", "content": [{"type": "text", "text": "Look: ünï/code."}], "name": "ana", "id": "m1"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "refusal": "no", "id": "m2"},
    {"role": "tool", "content": "done", "tool_call_id": "c1", "metadata": {"a": [1, {"b": None}]}},
    {"role": "user", "content": "Thanks.", "created_at": datetime(2026, 1, 31, 12, tzinfo=UTC)},
]


PARTS = (
    "facts hits summary tokens token_limit omitted over_budget caught_up covered_through window_from"
    " pinned_through session_id head tail window"
).split()


def texts(memory: RemoteMemory | Memory) -> list[str]:
    return [message.text for message in memory.get_all()]


def test_a_history_behind_a_message_begins_there_at_the_service(
    make_both: MakeBoth, remote: RemoteService
) -> None:
    near, far = make_both()
    far.put_messages(EVERY_FIELD)
    first = remote.run(unwrap(RemoteMemory.iterate)(far, None, after_seq=2, page_size=1))
    assert [message.seq for message in first.items] == [3]
    assert list(far.iterate(after_seq=2, page_size=1)) == list(near.iterate(after_seq=2, page_size=1))
    assert list(far.iterate(after_seq=5)) == []
    with pytest.raises(ConfigurationError, match="after_seq"):
        next(far.iterate(after_seq=-1))


def test_what_became_of_a_message_and_where_a_fact_comes_from(
    make_both: MakeBoth, remote: RemoteService, user: str
) -> None:
    _, far = make_both()
    far.put_messages(EVERY_FIELD)
    found = far.explain("m1")
    assert (found.session_id, found.user_id, found.place) == (far.session_id, user, "window")
    admin = RemoteAdmin(remote)
    assert admin.explain_message("m1", session_id=far.session_id, user_id=user) == found
    with pytest.raises(NotFoundError):
        far.explain("unknown")
    fact = far.facts.add("Lives in Lisbon.")
    explained = far.facts.explain(fact.fact_id)
    assert isinstance(explained, FactExplanation)
    assert [revision.operation for revision in explained.revisions] == ["add"]
    assert admin.explain_fact(fact.fact_id, user_id=user) == explained
    far.facts.delete(fact.fact_id)

    async def aexplain() -> object:
        try:
            return await far.facts.aexplain(fact.fact_id)
        finally:
            await remote.aclose()

    removed = asyncio.run(aexplain())
    assert isinstance(removed, RemovedFactExplanation)
    assert [event.kind for event in removed.events] == ["add", "delete"]


def test_a_read_is_that_of_this_process(make_both: MakeBoth) -> None:
    near, far = make_both()
    near.facts.add("Lives in Lisbon.", topics=["home"])
    far.put_messages([{"role": "user", "content": "I moved."}, {"role": "assistant", "content": "Oh!"}])
    ours, theirs = near.get("Where do I live?"), far.get("Where do I live?")
    assert "Lives in Lisbon." in str(theirs)
    assert list(theirs) == list(ours)
    for name in PARTS:
        assert getattr(theirs, name) == getattr(ours, name), name
    assert theirs.citations() == ours.citations()
    assert theirs.to_openai() == ours.to_openai()
    room = far.get(initial_token_count=29_990)
    assert room.token_limit == near.get(initial_token_count=29_990).token_limit == 10
    assert far.get(wait_for=2, timeout=0.2).caught_up
    by_message = far.get({"role": "user", "content": "Lisbon"}, messages=[{"role": "user", "content": "x"}])
    assert by_message.facts == ours.facts


def test_scopes_are_the_same_sessions(make_both: MakeBoth) -> None:
    near, far = make_both("with/slash")
    far.get_scope("drafts/1").put({"role": "user", "content": "A draft."})
    assert texts(near.get_scope("drafts/1")) == ["A draft."]
    assert texts(far) == []


def test_every_method_does_the_same_for_asyncio(remote: RemoteService, user: str) -> None:
    async def whole() -> list[str]:
        memory = AsyncRemoteMemory.from_defaults(uuid4().hex, user_id=user, service=remote)
        assert await memory.put({"role": "user", "content": "one"}) == 1
        assert await memory.aput_messages([{"role": "user", "content": "two"}]) == [2]
        await memory.facts.add("Likes tea.")
        context = await memory.get("tea")
        assert [fact.text for fact in context.facts] == ["Likes tea."]
        seen = [message.text async for message in memory.iterate(page_size=1)]
        await memory.close()
        return seen

    # Two loops, one after the other: connections of the first are not those of the second.
    assert asyncio.run(whole()) == asyncio.run(whole()) == ["one", "two"]


def test_a_session_that_has_not_begun_reads_as_here(make_both: MakeBoth) -> None:
    near, far = make_both(token_limit=5_000)
    near.facts.add("Lives in Lisbon.")
    make_both()[1].put({"role": "user", "content": "I keep bees in Lisbon."})
    ours, theirs = near.get("Where do I live?"), far.get("Where do I live?")
    assert "Lives in Lisbon." in str(theirs)
    assert list(theirs) == list(ours)
    assert (theirs.session_id, theirs.facts, theirs.token_limit) == (ours.session_id, ours.facts, 5_000)
    (hit,) = far.search("bees", scope="owner")
    assert hit.text == near.search("bees", scope="owner")[0].text
    assert far.history() == far.run_history() == far.context_window() == list(far.iterate()) == []
    with pytest.raises(NotFoundError, match="Not found"):
        far.flush()


def test_arguments_are_refused_with_what_to_do(remote: RemoteService) -> None:
    make: Callable[..., RemoteMemory] = RemoteMemory.from_defaults
    with pytest.raises(ConfigurationError, match="database_url': the service has its own servers"):
        make("a", service=remote, database_url="postgresql://x")
    with pytest.raises(ConfigurationError, match="did you mean 'token_limit'"):
        make("a", service=remote, token_limits=5)
    with pytest.raises(ConfigurationError, match="token_limit"):
        make("a", service=remote, token_limit=0)
    with pytest.raises(ConfigurationError, match="insert_method is 'x'"):
        make("a", service=remote, insert_method="x", token_limit=0, memory_blocks=[""])
    with pytest.raises(ConfigurationError, match="give user_id="):
        _ = make("a", service=remote).facts
    with pytest.raises(TypeError, match="RemoteService"):
        make("a", service="http://x")


def test_another_user_is_not_found(running: RunningService, make_both: MakeBoth) -> None:
    near, far = make_both()
    far.put({"role": "user", "content": "mine"})
    bound = running.make_key(user_id="someone")
    with RemoteService(running.url, bound.key) as service:
        stranger = RemoteMemory.from_defaults(near.session_id, service=service)
        # As if there were no such session: nothing tells the two apart.
        assert len(stranger.get("mine")) == len(stranger.get_all()) == 0
        assert stranger.search("mine", kinds=["message", "fact"], scope="owner") == []
        changes: list[Callable[[], object]] = [stranger.pop, stranger.flush, stranger.reset, stranger.fork]
        for change in changes:
            with pytest.raises(NotFoundError):
                change()
        with pytest.raises(NotFoundError):
            stranger.put({"role": "user", "content": "not mine"})
    assert texts(far) == ["mine"]
