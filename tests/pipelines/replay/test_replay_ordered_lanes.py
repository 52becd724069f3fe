"""Replays in place of what folds: whatever happens meanwhile, a lane is folded in the order of the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from strandline import Memory
from strandline.pipelines.engine.dead_letters import list_dead_letters, retry_dead_letter
from strandline.pipelines.generations.registry import find, recipe_params, serving_generations
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay import filling
from strandline.pipelines.replay.filling import make_due
from strandline.pipelines.replay.in_place import InPlace, begin_in_place, replay_in_place
from strandline.pipelines.replay.records import Selection, claim_replay
from strandline.schemas.postgres.database import Database, Transaction
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.derived.generations import BeginGeneration, EndBackfill, FeedGeneration
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_user
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support import sample_blocks
from tests.support.sample_blocks import POISON
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

R = TypeVar("R")

LISTED = "tests.support.sample_blocks:Log,tests.support.sample_blocks:Diary"
OWNER = identify_user("default", "maren").shard_key
STAGES = ("log", "diary", "summary", "extract", "merge", "vectors")

Drain = Callable[[], None]


@pytest.fixture(autouse=True)
def _listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STRANDLINE_BLOCKS", LISTED)
    sample_blocks.forgiving.clear()
    yield
    sample_blocks.forgiving.clear()


@pytest.fixture
def settings(database: Database, database_url: str) -> Settings:
    """Settings under which each event is a separate batch; a worker with them has started once."""
    local = {"text_backend": "local", "embedding_backend": "local", "batch_token_budget": 1}
    made = load_settings(database_url=database_url, blocks=LISTED, **local)
    prepare_stages(database, made, STAGES)
    return made


@pytest.fixture
def drain(database: Database, database_url: str, settings: Settings) -> Drain:
    return lambda: drain_everything(database, database_url, settings, STAGES)


@pytest.fixture
def make_owned(make_memory: MakeMemory, settings: Settings) -> Callable[..., Memory]:
    return lambda session_id, *blocks: make_memory(session_id, user_id="maren", memory_blocks=list(blocks))


def in_place(database: Database, settings: Settings, pipeline: str, **chosen: Any) -> InPlace:
    replay = begin_in_place(database, pipeline, Selection(**chosen))
    return replay_in_place(database, replay, settings)


def states(database_url: str, scope_key: object) -> list[Any]:
    """The states of a scope, oldest first."""
    sql = "SELECT state FROM strandline.block_state WHERE scope_key = %s ORDER BY ordinal"
    return [state for (state,) in rows_of(database_url, sql, scope_key)]


def session_key(database_url: str, session_id: str) -> Any:
    found = "SELECT session_key FROM strandline.session WHERE session_id = %s"
    return rows_of(database_url, found, session_id)[0][0]


def spoil(database_url: str, ordinal: int, state: Any) -> None:
    spoilt = "UPDATE strandline.block_state SET state = %s::jsonb WHERE ordinal = %s RETURNING 1"
    assert rows_of(database_url, spoilt, json.dumps(state), ordinal)


def due(database_url: str) -> dict[str, set[tuple[bool, int]]]:
    """Of each pipeline's due work: whether it is rung for, and which precedence it has."""
    sql = (
        "SELECT g.pipeline || ' ' || g.state, d.ring_at < 'infinity', d.precedence FROM strandline.due d"
        " JOIN strandline.generation g USING (generation_id)"
    )
    found: dict[str, set[tuple[bool, int]]] = {}
    for whose, is_rung, precedence in rows_of(database_url, sql):
        found.setdefault(whose, set()).add((is_rung, precedence))
    return found


LIVE, IMPORTED, LEFT_TO_REPLAYS = {(True, 0)}, {(True, 1)}, {(False, 1)}


@contextmanager
def before_each_statement(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], None]) -> Iterator[None]:
    """``act`` is told the name of each statement that is about to run."""
    with monkeypatch.context() as patched:
        for kind in (Database, Transaction):

            def told(self: Any, query: Query[R], fetch: Callable[..., list[R]] = kind.fetch) -> list[R]:
                act(query.name)
                return fetch(self, query)

            patched.setattr(kind, "fetch", told)
        yield


@pytest.mark.parametrize("spoilt", [1, 2], ids=["a state before", "the newest state"])
def test_what_a_worker_folds_onto_a_state_that_is_rewritten_is_folded_again(
    rig: Rig, spoilt: int, make_owned: Callable[..., Memory], drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_owned("s", "log")
    say(memory, "one", "two")
    drain()
    spoil(rig.url, spoilt, ["nonsense"])
    acted: list[str] = []

    def work_before_the_lock(name: str) -> None:
        if name == "reopen_lane" and not acted:
            acted.append(name)
            say(memory, "three")
            drain()

    with before_each_statement(monkeypatch, work_before_the_lock):
        found = in_place(rig.database, rig.settings, "log")
    assert acted and (found.rewritten, found.asked_again) == (1, spoilt - 1)
    drain()
    assert states(rig.url, session_key(rig.url, "s")) == [[[1]], [[1], [2]], [[1], [2], [3]]]
    assert in_place(rig.database, rig.settings, "log").rewritten == 0
    assert verify(rig.database, deep=True).violations == ()


def test_a_replay_that_is_killed_between_any_two_statements_folds_in_order_when_it_goes_on(
    rig: Rig, make_owned: Callable[..., Memory], drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(Exception):
        pass

    def replay_killed_before(statement: int) -> bool:
        """Whether it came so far: to the replay of a session that fed the block from its third event on."""
        name = f"s{statement}"
        memory = make_owned(name)
        say(memory, "one", "two")
        memory.set_policy(memory_blocks=["log"])
        say(memory, "three", "four")
        drain()
        replay = begin_in_place(rig.database, "log", Selection(namespace="default", session_id=name))
        ran: list[str] = []

        def kill(statement_name: str) -> None:
            ran.append(statement_name)
            if len(ran) == statement:
                raise KilledError

        try:
            with before_each_statement(monkeypatch, kill):
                replay_in_place(rig.database, replay, rig.settings)
        except KilledError:
            rows_of(
                rig.url,
                "UPDATE strandline.replay SET updated_at = updated_at - interval '1 hour' RETURNING 1",
            )
            drain()
            replay_in_place(rig.database, claim_replay(rig.database, replay.replay_id), rig.settings)
        drain()
        assert states(rig.url, session_key(rig.url, name))[-1] == [[1], [2], [3], [4]], ran
        return len(ran) >= statement

    statement = 1
    while replay_killed_before(statement):
        statement += 1
    assert statement > 8
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("pipeline", ["log", "facts", "vectors"])
def test_a_selection_narrows_what_is_made_due(
    rig: Rig, pipeline: str, make_owned: Callable[..., Memory], drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fits, also more of it than a page; and of another session nothing."""
    monkeypatch.setattr(filling, "EVENTS_PER_PAGE", 2)
    for name in ("chat-1", "chat-2"):
        memory = make_owned(name)
        say(memory, *(f"I live at number {number} in Bergen." for number in range(1, 6)))
        memory.set_policy(memory_blocks=[pipeline])
        say(memory, "I live at number 6 in Bergen.")
    drain()
    found = in_place(rig.database, rig.settings, pipeline, namespace="default", session_id="chat-1")
    assert found.made_due == 5
    whose = "SELECT DISTINCT session_id FROM strandline.due JOIN strandline.session USING (session_key)"
    assert rows_of(rig.url, whose) == [("chat-1",)]
    assert due(rig.url) == {f"{pipeline} serving": LEFT_TO_REPLAYS}
    if pipeline == "facts":
        drain_everything(rig.database, rig.url, rig.settings, ["extract"])
        assert due(rig.url) == {"facts serving": LEFT_TO_REPLAYS}, "so are their merges"
    drain()
    found = in_place(rig.database, rig.settings, pipeline, namespace="default", session_id="chat-2")
    assert found.made_due == 5
    drain()
    if pipeline == "log":
        whole = [[number] for number in range(1, 7)]
        assert states(rig.url, session_key(rig.url, "chat-1"))[-1] == whole
        assert states(rig.url, session_key(rig.url, "chat-2"))[-1] == whole
    assert in_place(rig.database, rig.settings, pipeline).made_due == 0
    assert verify(rig.database, deep=True).violations == ()


def test_only_lanes_that_were_filled_are_folded_anew(
    rig: Rig, make_owned: Callable[..., Memory], drain: Drain
) -> None:
    late, whole = make_owned("late"), make_owned("whole", "log")
    say(late, "one")
    late.set_policy(memory_blocks=["log"])
    say(late, "two")
    say(whole, "one", "two")
    drain()
    found = in_place(rig.database, rig.settings, "log")
    assert (found.made_due, found.asked_again, found.same) == (1, 1, 2)
    drain()
    for name in ("late", "whole"):
        assert states(rig.url, session_key(rig.url, name))[-1] == [[1], [2]]


def test_what_a_lane_has_in_hand_is_not_folded_before_earlier_events(
    rig: Rig, make_owned: Callable[..., Memory], drain: Drain
) -> None:
    """Its worker has died: the batch that it left open is of later events."""
    memory = make_owned("s")
    say(memory, "one")
    memory.set_policy(memory_blocks=["log"])
    say(memory, "two")
    ((generation_id, scope_key, event_id),) = rows_of(
        rig.url, "SELECT generation_id, scope_key, event_id FROM strandline.due"
    )
    rows_of(
        rig.url,
        "INSERT INTO strandline.batch (shard_key, batch_id, scope_key, generation_id, stage, lease_epoch,"
        " event_ids) VALUES (%s, gen_random_uuid(), %s, %s, 'log', 1, ARRAY[%s]) RETURNING 1",
        OWNER,
        scope_key,
        generation_id,
        event_id,
    )
    assert in_place(rig.database, rig.settings, "log").made_due == 1
    drain()
    assert states(rig.url, scope_key)[-1] == [[1], [2]]
    assert verify(rig.database, deep=True).violations == ()


def begin_another(database: Database, pipeline: str, drain: Drain) -> int:
    """A generation as the one that serves, filled and derived, which does not serve."""
    recipe = serving_generations(database)[pipeline].recipe
    (begun,) = database.fetch(BeginGeneration(**recipe_params(pipeline, recipe)))
    database.fetch(FeedGeneration(generation_id=begun.generation_id))
    generation = find(database, begun.generation_id)
    assert generation is not None
    make_due(database, generation, OWNER, Selection())
    database.fetch(EndBackfill(generation_id=begun.generation_id))
    drain()
    return begun.generation_id


def test_what_a_reset_folds_again_is_live_work_only_where_it_serves(
    rig: Rig, make_owned: Callable[..., Memory], drain: Drain
) -> None:
    kept, gone = make_owned("kept", "diary"), make_owned("gone", "diary")
    say(gone, "forgotten")
    say(kept, "one", "two")
    drain()
    begin_another(rig.database, "diary", drain)
    gone.reset(derived=True)
    assert due(rig.url) == {"diary serving": LIVE, "diary feeding": LEFT_TO_REPLAYS}
    drain()
    assert sorted(states(rig.url, OWNER)) == [["one"], ["one"], ["one", "two"], ["one", "two"]]
    assert verify(rig.database, deep=True).violations == ()


def test_what_was_imported_is_folded_again_as_imported_work(
    rig: Rig, make_owned: Callable[..., Memory], drain: Drain
) -> None:
    kept, gone = make_owned("kept", "diary"), make_owned("gone", "diary")
    say(gone, "forgotten")
    say(kept, "one")
    drain()
    rows_of(
        rig.url,
        "UPDATE strandline.flush_event SET cause = 'import' WHERE session_key = %s RETURNING 1",
        session_key(rig.url, "kept"),
    )
    gone.reset(derived=True)
    assert due(rig.url) == {"diary serving": IMPORTED}


def test_a_summary_whose_answer_is_gone_is_left_to_the_threads_for_replays(
    rig: Rig, make_owned: Callable[..., Memory], drain: Drain
) -> None:
    say(make_owned("s", "summary"), "my boat is blue", "my cat is old")
    drain()
    rows_of(rig.url, "DELETE FROM strandline.answer RETURNING 1")
    assert in_place(rig.database, rig.settings, "summary").asked_again == 1
    assert due(rig.url) == {"summary serving": LEFT_TO_REPLAYS}


def test_a_dead_letter_that_is_tried_again_is_live_work_only_where_it_serves(
    rig: Rig, make_owned: Callable[..., Memory], drain: Drain
) -> None:
    say(make_owned("s", "diary"), "one", f"the {POISON}", "three")
    drain()
    begin_another(rig.database, "diary", drain)
    letters = list_dead_letters(rig.database)
    assert len(letters) == 2
    sample_blocks.forgiving.set()
    for letter in letters:
        retry_dead_letter(rig.database, letter)
    assert due(rig.url) == {"diary serving": LIVE, "diary feeding": LEFT_TO_REPLAYS}
