"""The client's memory against a running service: what ``Memory`` gives in this process, it gives as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from inspect import unwrap
from typing import Any
from uuid import uuid4

import pytest

from strandline import (
    ConfigurationError,
    ConflictError,
    InvalidMessageError,
    Memory,
    NotFoundError,
    Retention,
)
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


def test_what_is_put_here_is_read_there_and_the_other_way_round(make_both: MakeBoth) -> None:
    near, far = make_both("a/session with ünï")
    assert far.put_messages(EVERY_FIELD) == [1, 2, 3, 4, 5]
    assert near.put({"role": "assistant", "content": "Welcome."}) == 6
    assert far.get_all() == near.get_all()
    assert [message.extra for message in far.get_all()[:1]] == [{"cache": True}]
    assert list(far.iterate(page_size=2)) == list(near.iterate(page_size=2))
    assert list(far.iterate(after_seq=4)) == list(near.iterate(after_seq=4))
    assert far.context_window(50) == near.context_window(50)


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


def test_a_session_that_has_not_begun_is_laid_out_as_in_this_process(make_both: MakeBoth) -> None:
    """It has no message of a user's yet that memory could go into."""
    near, far = make_both(insert_method="user", token_limit=40_000)
    near.facts.add("Lives in Lisbon.")
    ours, theirs = near.get("Where do I live?"), far.get("Where do I live?")
    assert [(message.role, message.content) for message in theirs] == [
        (message.role, message.content) for message in ours
    ]
    assert [message.role for message in theirs] == ["system"]
    assert theirs.token_limit == ours.token_limit == 40_000


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


def test_a_message_that_was_read_can_be_put_again(make_both: MakeBoth) -> None:
    _, far = make_both()
    far.put_messages(EVERY_FIELD)
    assert far.put_messages(far.get_all()) == [1, 2, 3, 4, 5]
    with pytest.raises(ConflictError):
        far.put({"role": "user", "content": "other", "id": "m1"})


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


def test_the_limits_of_the_first_put_are_stored(make_both: MakeBoth) -> None:
    near, far = make_both(token_limit=5_000, memory_blocks=["summary"], idle_seconds=None)
    far.put({"role": "user", "content": "Hello."})
    assert far.get().token_limit == near.get().token_limit == 5_000
    policy = far.set_policy(token_limit=6_000, actor="ana")
    assert (policy.token_limit, policy.pipelines, policy.idle_seconds) == (6_000, ("summary",), None)
    assert near.set_policy() == policy == far.set_policy()
    assert far.get().token_limit == far.token_limit == 6_000
    assert far.set_policy(idle_seconds=60, memory_blocks=["facts"]) == near.set_policy()


def test_histories_pass_the_same_filters(make_both: MakeBoth) -> None:
    near, far = make_both()
    far.put_messages(EVERY_FIELD)
    filters: list[dict[str, Any]] = [
        {},
        {"limit": 2},
        {"limit": 0},
        {"limit": 2, "offset": 1},
        {"roles": ["user"]},
        {"roles": []},
        {"since": datetime(2026, 2, 1, tzinfo=UTC)},
        {"until": datetime(2026, 2, 1, tzinfo=UTC)},
    ]
    for given in filters:
        assert far.history(**given) == near.history(**given), given


def test_a_search_finds_messages_and_facts(make_both: MakeBoth) -> None:
    near, far = make_both()
    near.facts.add("Keeps bees in Lisbon.")
    far.put({"role": "user", "content": "The bees are well."})
    (message,) = far.search("bees")
    assert message == near.search("bees")[0]
    both = far.search("bees", kinds=["message", "fact"], scope="owner")
    assert [(one.kind, one.text, one.score) for one in both] == [
        (one.kind, one.text, one.score)
        for one in near.search("bees", kinds=["message", "fact"], scope="owner")
    ]


def test_the_log_is_corrected_from_afar(make_both: MakeBoth) -> None:
    near, far = make_both()
    far.put_messages([{"role": "user", "content": text} for text in ("one", "two", "three", "four")])
    popped = far.pop()
    assert popped is not None
    assert popped.text == "four"
    correction = far.replace(2, "TWO", actor="ana", idempotency_key="schlüssel")
    assert far.replace(2, "TWO", actor="ana", idempotency_key="schlüssel") == correction
    assert (correction.kind, correction.seqs) == ("replace", (2,))
    assert far.rewind(3).seqs == (3,)
    assert texts(near) == texts(far) == ["one", "TWO"]
    fork = far.fork(through_seq=1)
    assert texts(make_both(fork.session_id)[1]) == ["one"]
    far.reset()
    assert near.get_all() == []
    assert far.pop() is None


def test_flushes_runs_and_imports_work_from_afar(make_both: MakeBoth) -> None:
    near, far = make_both()
    run = far.add_run("r1", [{"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}])
    assert run == near.add_run(
        "r1", [{"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}]
    )
    assert far.run_history() == near.run_history()
    assert len(far.deliver()) == 1
    assert far.flush(all=True) == []
    assert far.summarize() is None
    old = [{"role": "user", "content": f"old {number}", "id": f"o{number}"} for number in range(3)]
    assert (far.import_messages(old).added, far.import_messages(old).known) == (3, 3)


def test_retention_is_set_from_afar(make_both: MakeBoth) -> None:
    near, far = make_both()
    far.put({"role": "user", "content": "Hello."})
    assert far.set_retention(Retention(max_messages=10), actor="ana") == 1
    assert far.get_retention() == near.get_retention() == Retention(max_messages=10)


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


def test_what_cannot_be_stored_is_refused_as_by_memory(make_both: MakeBoth) -> None:
    near, far = make_both()
    for message in ({"role": "robot", "content": "x"}, {"content": "x"}, {"role": "user", "content": 5}, 7):
        for memory in (near, far):
            with pytest.raises(InvalidMessageError):
                memory.put(message)
    with pytest.raises(InvalidMessageError) as raised:
        far.put_messages([{"role": "user", "content": "fine"}, {"role": "robot", "content": "x"}])
    assert raised.value.field == "messages[1].role"
    with pytest.raises(InvalidMessageError, match="JSON"):
        far.put({"role": "user", "content": "x", "metadata": {"n": float("nan")}})
    with pytest.raises(InvalidMessageError):
        far.put({"role": "user", "content": "x" * 2_000_000})
    assert far.get_all() == near.get_all() == []


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


def test_arguments_are_refused_as_by_memory(make_both: MakeBoth) -> None:
    near, far = make_both()
    far.put({"role": "user", "content": "Hello."})
    calls: list[Callable[[Any], object]] = [
        lambda memory: memory.search("x", limit=5_000),
        lambda memory: memory.search("x", kinds=[]),
        lambda memory: memory.search("x", scope="everything"),
        lambda memory: memory.history(limit=-1),
        lambda memory: memory.history(since="yesterday"),
        lambda memory: memory.context_window(-1),
        lambda memory: memory.get(initial_token_count=-1),
        lambda memory: memory.get(block_arguments={"a": 1}),
        lambda memory: memory.set_policy(token_limit=-5),
        lambda memory: memory.run_history(-1),
        lambda memory: memory.rewind(99),
        lambda memory: memory.add_run("r", [{"role": "user", "content": "x"}], status="odd"),
        lambda memory: memory.put_messages("abc"),
        lambda memory: memory.facts.add(""),
        lambda memory: memory.facts.add("x", about_date="yesterday"),
        lambda memory: memory.facts.search("x", limit=-1),
        lambda memory: memory.facts.feedback(uuid4(), 5),
    ]
    for number, call in enumerate(calls):
        raised: list[type[BaseException]] = []
        for memory in (near, far):
            with pytest.raises(ValueError) as error:  # noqa: PT011  # which kinds is compared below
                call(memory)
            raised.append(type(error.value))
        assert raised[0] is raised[1], (number, raised, str(error.value))


def test_arguments_are_refused_with_what_to_do(remote: RemoteService) -> None:
    make: Callable[..., RemoteMemory] = RemoteMemory.from_defaults
    with pytest.raises(ConfigurationError, match="database_url': the service has its own servers"):
        make("a", service=remote, database_url="postgresql://x")
    with pytest.raises(ConfigurationError, match="did you mean 'token_limit'"):
        make("a", service=remote, token_limits=5)
    with pytest.raises(ConfigurationError, match="token_limit"):
        make("a", service=remote, token_limit=0)
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
