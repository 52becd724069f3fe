"""A session's policy changes by a recorded act, valid from then on; what was before stays as it was."""

from __future__ import annotations

import asyncio
import getpass
import inspect
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import ConfigurationError, Memory, NotFoundError, OwnerError, UnknownPipelineError
from strandline.client import RemoteMemory, RemoteService
from strandline.pipelines.generations.registry import find
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.sessions import show_session
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.filling import make_due
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.records import Selection
from strandline.schemas.errors import DatabaseError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.policy import (
    MIN_MESSAGE_TOKENS,
    OF_BLOCKS,
    Policy,
    PolicyChange,
    PolicyChanges,
    PolicyOptions,
    changed_policy,
    make_policy,
)
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.workers.sweep import Sweep
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.processes.commands import run_here
from tests.support.workers.draining import drain_everything


@pytest.mark.parametrize(
    ("options", "source", "others"),
    [(PolicyOptions, make_policy, ()), (PolicyChanges, PolicyChange, ("on_overflow",))],
)
def test_options_that_are_handed_on_have_the_names_and_types_of_their_source(
    options: type, source: Callable[..., Policy], others: tuple[str, ...]
) -> None:
    parameters = inspect.signature(source).parameters.values()
    taken = {one.name: one.annotation for one in parameters if one.name not in (*OF_BLOCKS, *others)}
    declared = {name: kind.__forward_arg__ for name, kind in options.__annotations__.items()}
    assert declared == taken


def test_a_memory_behind_the_service_refuses_an_argument_that_set_policy_has_not() -> None:
    memory = RemoteMemory.from_defaults("s", service=RemoteService("http://localhost", "sl_a_b"))
    other: dict[str, Any] = {"on_overflow": True}
    with pytest.raises(TypeError, match="unexpected keyword argument 'on_overflow'"):
        memory.set_policy(**other)


LIMITS = st.integers(MIN_MESSAGE_TOKENS, 10**6)
SIZES = st.integers(1, 10**6)


Drain = Callable[[], None]


@pytest.fixture
def drain(database: Database, database_url: str, local_settings: Settings) -> Drain:
    return lambda: drain_everything(database, database_url, local_settings)


def say(memory: Memory, id: str, text: str) -> None:
    memory.put({"role": "user", "content": text, "id": id})
    memory.flush(all=True)


def kinds(database: Database) -> list[str]:
    return [violation.kind for violation in verify(database).violations]


def replayed(database: Database, local_settings: Settings, *pipelines: str) -> dict[str, int]:
    made_due = {}
    for pipeline in pipelines:
        replay = begin_in_place(database, pipeline, Selection())
        made_due[pipeline] = replay_in_place(database, replay, local_settings).made_due
    return made_due


def test_a_plain_buffer_is_given_memory_from_then_on(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s", user_id="anna", memory_blocks=[])
    say(memory, "m1", "My name is Anna.")
    policy = memory.set_policy(memory_blocks=["facts", "summary", "vectors"], actor="support")
    assert policy.pipelines == ("facts", "summary", "vectors")
    drain()
    assert list(memory.facts.list()) == [], "what was flushed before is not derived by itself"
    say(memory, "m2", "I live in Bergen.")
    drain()
    assert [fact.message_ids for fact in memory.facts.list()] == [("m2",)]
    assert "Bergen" in str(memory.get("Bergen").messages[0]), "this memory reads with the blocks at once"
    assert kinds(rig.database) == []


def test_a_replay_derives_what_was_flushed_before(rig: Rig, local_settings: Settings, drain: Drain) -> None:
    memory = rig.memory("s", user_id="anna", memory_blocks=[])
    say(memory, "m1", "My name is Anna.")
    say(memory, "m2", "My cat is called Mio.")
    memory.set_policy(memory_blocks=["facts", "summary", "vectors"])
    say(memory, "m3", "I live in Bergen.")
    drain()
    found = replayed(rig.database, local_settings, "facts", "summary", "vectors")
    assert found == {"facts": 2, "summary": 2, "vectors": 2}
    drain()
    cited = {i for fact in memory.facts.list() for i in fact.message_ids}
    assert "m3" in cited and cited & {"m1", "m2"}
    applied = "SELECT stage, count(*) FROM strandline.receipt WHERE outcome = 'applied' GROUP BY 1"
    assert set(rows_of(rig.url, applied)) == {
        (stage, 3) for stage in ("extract", "merge", "summary", "vectors")
    }
    throughs = rows_of(rig.url, "SELECT through_seq FROM strandline.block_state ORDER BY ordinal")
    assert throughs == sorted(throughs) and throughs[-1] == (3,), (
        "a summary is folded in the order of the log"
    )
    assert kinds(rig.database) == []
    assert replayed(rig.database, local_settings, "facts", "summary", "vectors") == dict.fromkeys(found, 0)


def test_a_pipeline_that_is_taken_away_keeps_what_it_derived(
    rig: Rig, local_settings: Settings, drain: Drain
) -> None:
    memory = rig.memory("s", user_id="anna", memory_blocks=["facts"])
    say(memory, "m1", "My name is Anna.")
    memory.set_policy(memory_blocks=[])
    say(memory, "m2", "I live in Bergen.")
    drain()
    assert [fact.message_ids for fact in memory.facts.list()] == [("m1",)]
    assert kinds(rig.database) == []
    memory.set_policy(memory_blocks=["facts"])
    say(memory, "m3", "My cat is called Mio.")
    drain()
    assert {fact.message_ids for fact in memory.facts.list()} == {("m1",), ("m3",)}
    assert kinds(rig.database) == []
    assert memory.get().covered_through == {"facts": 3}


def test_verify_still_misses_work_that_the_policy_of_its_time_asked_for(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["facts"])
    say(memory, "m1", "My name is Anna.")
    memory.set_policy(memory_blocks=["summary"])
    say(memory, "m2", "I live in Bergen.")
    assert kinds(rig.database) == []
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("DELETE FROM strandline.due")
    assert kinds(rig.database) == ["work_missing", "work_missing"]


def test_explain_and_show_tell_of_the_change(rig: Rig, local_settings: Settings, drain: Drain) -> None:
    memory = rig.memory("s", memory_blocks=[], token_limit=1_000)
    say(memory, "m1", "My name is Anna.")
    memory.set_policy(memory_blocks=["facts"], token_limit=2_000, actor="support")
    say(memory, "m2", "I live in Bergen.")
    drain()

    def why(id: str) -> str:
        found = explain(rig.database, id)
        assert isinstance(found, MessageExplanation)
        (change,) = found.policy_changes
        assert (change.actor, change.flushed_through) == ("support", 1)
        assert (change.before["pipelines"], change.after["pipelines"]) == ([], ["facts"])
        return " ".join(found.why)

    first = explain(rig.database, "m1")
    assert isinstance(first, MessageExplanation) and first.place == "covered"
    assert "fed no facts when it was flushed" in why("m1") and "strandline replay" in why("m1")
    assert "It was remembered" in why("m2")
    (change,) = show_session(rig.database, "s").policy_changes
    assert (change.before["token_limit"], change.after["token_limit"]) == (1_000, 2_000)
    shown = command(rig.url, "explain", "m1")
    assert "by support, after message 1" in shown and "pipelines none -> facts" in shown
    replayed(rig.database, local_settings, "facts")
    drain()
    assert "It was remembered" in why("m1")


def command(database_url: str, *arguments: str, code: int = 0) -> str:
    ended = run_here(*arguments, on=database_url)
    assert ended.code == code, ended.err
    return ended.out + ended.err


def test_the_command_changes_what_is_named_and_nothing_else(rig: Rig) -> None:
    memory = rig.memory("s", user_id="anna", memory_blocks=[], token_limit=1_000, token_flush_size=100)
    memory.put({"role": "user", "content": "hello"})
    change = ("sessions", "set-policy", "s")
    report = json.loads(
        command(rig.url, *change, "--pipelines", "facts, vectors", "--idle-seconds", "60", "--json")
    )
    assert report["pipelines"] == ["facts", "vectors"] and report["idle_seconds"] == 60
    assert (report["token_limit"], report["flush_at_tokens"], report["token_flush_size"]) == (1_000, 700, 100)
    assert report == json.loads(show_session(rig.database, "s").session.policy.model_dump_json())
    text = command(rig.url, *change, "--never-idle", "--token-limit", "2000", "--actor", "ops")
    assert "changed the policy of session s" in text and "token limit 2,000, mark 1,400" in text
    assert "nothing changed" in command(rig.url, *change, "--never-idle")
    assert [c.actor for c in show_session(rig.database, "s").policy_changes] == [
        f"cli:{getpass.getuser()}",
        "ops",
    ]
    assert "policy change 2" in command(rig.url, "sessions", "show", "s")
    assert json.loads(command(rig.url, *change, "--no-pipelines", "--json"))["pipelines"] == []
    command(rig.url, *change, "--pipelines", "nothing", code=1)
    command(rig.url, *change, "--token-limit", "0", code=1)
    command(rig.url, "sessions", "set-policy", "typo", "--token-limit", "10", code=1)
    command(rig.url, *change, "--never-idle", "--idle-seconds", "1", code=2)
    command(rig.url, *change, "--pipelines", " , ", code=2)


def test_the_command_changes_all_sessions_of_a_namespace_or_of_a_user(rig: Rig) -> None:
    owners = {"a": "anna", "b": "anna", "c": None, "d": "ole"}
    for name, owner in owners.items():
        memory = rig.memory(
            name, user_id=owner, token_limit=1_000, deliver="turn" if name == "b" else "window"
        )
        memory.put({"role": "user", "content": "hello"})
    other = rig.memory("a", namespace="other", user_id="anna", token_limit=1_000)
    other.put({"role": "user", "content": "hello"})
    change = ("sessions", "set-policy", "--all", "--deliver", "turn")

    def turns() -> set[str]:
        states = {name: show_session(rig.database, name).session.policy.deliver for name in owners}
        return {name for name, deliver in states.items() if deliver == "turn"}

    planned = json.loads(command(rig.url, *change, "--dry-run", "--json"))
    assert planned == {"sessions": 4, "changed": ["a", "c", "d"], "refused": {}, "dry_run": True}
    assert turns() == {"b"}
    said = command(rig.url, *change, "--user", "anna", "--actor", "ops")
    assert "changed 1 of 2 sessions of namespace default" in said and turns() == {"a", "b"}
    assert [one.actor for one in show_session(rig.database, "a").policy_changes] == ["ops"]
    assert "changed 2 of 4 sessions" in command(rig.url, *change) and turns() == set(owners)
    assert "changed 0 of 4 sessions" in command(rig.url, *change)
    assert other.set_policy().deliver == "window"
    one = ("sessions", "set-policy", "a", "--time-zone", "Asia/Tokyo")
    assert "would change the policy of session a" in command(rig.url, *one, "--dry-run")
    assert "time zone Asia/Tokyo" in command(rig.url, *one)
    assert json.loads(command(rig.url, *one, "--dry-run", "--json"))["time_zone"] == "Asia/Tokyo"
    command(rig.url, "sessions", "set-policy", "--deliver", "turn", code=2)
    command(rig.url, *change, "a", code=2)
    command(rig.url, *change, "--namespace", "none", code=1)
    command(rig.url, "sessions", "set-policy", "--all", "--time-zone", "Mars", code=1)


def test_a_session_that_refuses_a_change_does_not_stop_that_of_all(rig: Rig) -> None:
    for name, least in (("a", None), ("b", 40), ("c", None)):
        memory = rig.memory(name, max_window_messages=100, message_flush_size=least)
        memory.put({"role": "user", "content": "hello"})
    change = ("sessions", "set-policy", "--all", "--max-window-messages", "50", "--message-flush-size", "60")
    for dry in (("--dry-run",), ()):
        reply = json.loads(command(rig.url, *change, "--json", *dry, code=1))
        assert reply["changed"] == [] and set(reply["refused"]) == {"a", "b", "c"}
    change = ("sessions", "set-policy", "--all", "--token-flush-size", "9", "--message-flush-size", "60")
    rig.memory("b").set_policy(max_window_messages=50, message_flush_size=40)
    for dry in (("--dry-run",), ()):
        said = command(rig.url, *change, *dry, code=1)
        assert "2 of 3 sessions" in said and "not b: message_flush_size is 60" in said
    sizes = [show_session(rig.database, name).session.policy.message_flush_size for name in "abc"]
    assert sizes == [60, 40, 60]
    assert "changed 0 of 3 sessions" in command(rig.url, *change, code=1)


def test_a_change_of_a_fixed_or_wrong_setting_is_refused(make_memory: MakeMemory) -> None:
    memory = make_memory("s", user_id="anna")
    with pytest.raises(NotFoundError, match="Nothing has been put yet"):
        memory.set_policy(token_limit=10)
    memory.put({"role": "user", "content": "hello"})
    for fixed in ("tokenizer_fn", "user_id", "shared_scope", "namespace", "part_tokens", "anything"):
        given: dict[str, Any] = {fixed: "x"}
        with pytest.raises(ConfigurationError, match=f"cannot change {fixed}"):
            memory.set_policy(**given)
    wrongs: list[dict[str, Any]] = [
        {"token_limit": 0},
        {"token_limit": 1.5},
        {"token_flush_size": -1},
        {"idle_seconds": 0},
        {"chat_history_token_ratio": 2},
        {"chat_history_token_ratio": "half"},
        {"memory_blocks": "facts"},
    ]
    for wrong in wrongs:
        with pytest.raises(ConfigurationError):
            memory.set_policy(**wrong)
    with pytest.raises(UnknownPipelineError, match="Nothing was changed"):
        memory.set_policy(memory_blocks=["nobody_registered_this"])
    with pytest.raises(OwnerError):
        make_memory("s", user_id="bo").set_policy(token_limit=10)


def test_a_memory_with_limits_of_its_own_reads_within_them_and_flushes_by_the_stored_ones(rig: Rig) -> None:
    first = rig.memory("s", token_limit=1_000, token_flush_size=10)
    first.put({"role": "user", "content": "hello"})
    first.set_policy(token_limit=40)
    assert first.token_limit == 40
    other = rig.memory("s", token_limit=5_000)
    for number in range(12):
        other.put({"role": "user", "content": f"one two three four five {number}"})
    picture = show_session(rig.database, "s")
    assert picture.flushes > 0 and picture.session.policy.token_limit == 40
    assert other.token_limit == 5_000


def test_a_window_above_the_new_mark_is_flushed(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory("s", token_flush_size=5)
    for number in range(10):
        memory.put({"role": "user", "content": f"one two three four five {number}"})
    assert show_session(database, "s").flushes == 0
    memory.set_policy(token_limit=30)
    picture = show_session(database, "s")
    assert picture.flushes > 0
    assert picture.session.window_tokens <= picture.session.policy.flush_at_tokens


def test_a_window_of_more_messages_than_the_new_bound_is_flushed(rig: Rig) -> None:
    memory = rig.memory("s", token_flush_size=5)
    for number in range(10):
        memory.put({"role": "user", "content": f"one two three {number}"})
    assert memory.set_policy(max_window_messages=4).max_window_messages == 4
    assert len(memory.get_all()) == 10 and show_session(rig.database, "s").flushes > 0
    with pytest.raises(ConfigurationError, match="max_window_bytes"):
        memory.set_policy(max_window_bytes=0)


def test_a_session_that_is_idle_already_is_delivered_after_the_change(rig: Rig) -> None:
    memory = rig.memory("s", idle_seconds=None)
    memory.put({"role": "user", "content": "hello"})
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute("UPDATE strandline.session SET last_put_at = last_put_at - interval '1 hour'")
    memory.set_policy(idle_seconds=600)
    sweep_of(rig.database).tick()
    (flush,) = show_session(rig.database, "s").latest_flushes
    assert flush.cause == "idle"


def test_a_change_joins_the_callers_transaction(rig: Rig) -> None:
    memory = rig.memory("s")
    memory.put({"role": "user", "content": "hello"})
    with psycopg.connect(rig.url) as connection:
        memory.set_policy(token_limit=77, connection=connection)
        connection.rollback()
    assert show_session(rig.database, "s").policy_changes == ()


@pytest.fixture
def no_flush_succeeds(database_url: str) -> Iterator[Callable[[], None]]:
    """Postgres refuses each flush, until told to stop."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        table = "ALTER TABLE strandline.flush_event"
        connection.execute(f"{table} ADD CONSTRAINT refused CHECK (tokens < 0) NOT VALID")

        def stop() -> None:
            connection.execute(f"{table} DROP CONSTRAINT refused")

        yield stop


def long_talk(memory: Memory) -> None:
    for number in range(10):
        memory.put({"role": "user", "content": f"one two three four five {number}"})


def sweep_of(database: Database) -> Sweep:
    return Sweep(
        database, ring=lambda _lanes: None, take_over=lambda _lanes: None, stages=(), batch_size=10,
        dead_after_seconds=1_800.0, is_busy=lambda: False,
    )  # fmt: skip


@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_change_that_is_committed_stands_though_its_flush_fails(
    rig: Rig, form: str, no_flush_succeeds: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The caller is given the policy; the sweep flushes."""
    memory = rig.memory("s", token_flush_size=5)
    long_talk(memory)
    if form == "sync":
        changed = memory.set_policy(token_limit=30)
    else:

        async def change() -> Policy:
            try:
                return await memory.aset_policy(token_limit=30)
            finally:
                await memory.aclose()

        changed = asyncio.run(change())
    assert changed.token_limit == 30 == show_session(rig.database, "s").policy_changes[0].after["token_limit"]
    assert [getattr(record, "action", "") for record in caplog.records] == ["flush_failed"]
    assert show_session(rig.database, "s").flushes == 0
    no_flush_succeeds()
    rows_of(rig.url, "UPDATE strandline.watch SET check_at = clock_timestamp() RETURNING 1")
    sweep_of(rig.database).tick()
    assert show_session(rig.database, "s").flushes > 0


@pytest.mark.usefixtures("no_flush_succeeds")
def test_a_flush_that_fails_in_the_callers_transaction_fails_the_change(rig: Rig) -> None:
    memory = rig.memory("s", token_flush_size=5)
    long_talk(memory)
    with psycopg.connect(rig.url) as connection:
        with pytest.raises(DatabaseError):
            memory.set_policy(token_limit=30, connection=connection)
        connection.rollback()
    assert show_session(rig.database, "s").policy_changes == ()


def test_puts_under_way_and_changes_do_not_disturb_each_other(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s", token_limit=200, token_flush_size=20)
    memory.put({"role": "user", "content": "hello"})
    failed: list[BaseException] = []

    def guarded(work: Callable[[int], Any]) -> threading.Thread:
        def turn() -> None:
            try:
                for number in range(25):
                    work(number)
            except BaseException as error:
                failed.append(error)
                raise

        return threading.Thread(target=turn)

    def put(number: int) -> None:
        memory.put({"role": "user", "content": f"one two three four five six seven {number}"})

    def change(number: int) -> None:
        memory.set_policy(
            token_limit=100 + number * 7 % 100, memory_blocks=["facts"] if number % 2 else ["summary"]
        )

    threads = [guarded(put), guarded(put), guarded(change), guarded(change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    drain()
    assert kinds(rig.database) == []
    picture = show_session(rig.database, "s")
    assert picture.session.messages == 51
    assert [c.number for c in picture.policy_changes] == list(range(1, len(picture.policy_changes) + 1))


@given(
    LIMITS, st.floats(0.01, 1), SIZES, st.none() | LIMITS, st.none() | SIZES, st.none() | st.floats(0.01, 1)
)
def test_a_changed_policy_keeps_what_is_not_named(
    limit: int, ratio: float, size: int, new_limit: int | None, new_size: int | None, new_ratio: float | None
) -> None:
    present = make_policy(
        token_limit=limit,
        chat_history_token_ratio=ratio,
        token_flush_size=size,
        tokenizer="t",
        pipelines=("facts",),
    )
    assert changed_policy(present, PolicyChange()) == present
    change = PolicyChange(
        token_limit=new_limit, token_flush_size=new_size, chat_history_token_ratio=new_ratio
    )
    changed = changed_policy(present, change)
    assert changed.token_limit == (limit if new_limit is None else new_limit)
    assert 1 <= changed.flush_at_tokens <= changed.token_limit
    assert 1 <= changed.token_flush_size <= max(changed.token_limit, 1)
    if new_limit is None and new_ratio is None:
        assert changed.flush_at_tokens == present.flush_at_tokens
    unnamed = ("idle_seconds", "tokenizer", "pipelines", "max_facts", "shared_scope")
    assert all(getattr(changed, name) == getattr(present, name) for name in unnamed)
    assert changed_policy(changed, change) == changed or new_ratio is None


def test_a_new_derivation_covers_what_was_fed_under_an_earlier_policy(
    rig: Rig, local_settings: Settings, drain: Drain
) -> None:
    memory = rig.memory("s", user_id="anna", memory_blocks=["facts"])
    say(memory, "m1", "My name is Anna.")
    drain()
    memory.set_policy(memory_blocks=["summary"])
    say(memory, "m2", "I live in Bergen.")
    drain()
    (shard_key,) = rows_of(rig.url, "SELECT shard_key FROM strandline.session")[0]
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO strandline.generation (pipeline, version, state, entry_stage, entry_scope, config)"
            " SELECT pipeline, version, 'feeding', entry_stage, entry_scope, config"
            " FROM strandline.generation WHERE pipeline = 'facts'"
        )
    ((generation_id,),) = rows_of(
        rig.url, "SELECT generation_id FROM strandline.generation WHERE state = 'feeding'"
    )
    generation = find(rig.database, generation_id)
    assert generation is not None
    events, _tokens = make_due(rig.database, generation, shard_key, Selection())
    assert events == 1, "what the one that serves has derived, and nothing that was never fed"


def test_facts_of_a_session_that_feeds_them_no_more_are_cleared_with_the_namespace(
    rig: Rig, drain: Drain
) -> None:
    memory = rig.memory("s", memory_blocks=["facts"])
    say(memory, "m1", "My name is Anna.")
    drain()
    memory.set_policy(memory_blocks=[])
    assert "cleared 1 live fact of 1 owner" in command(
        rig.url, "facts", "clear", "--namespace", "default", "--yes"
    )
    assert list(memory.facts.list()) == []
