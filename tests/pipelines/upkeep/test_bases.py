"""The base: what was derived of messages that are gone, and what goes on from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from strandline import Memory, Message, Retention, retention
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.inspect.explain_message import explain_fact_alone
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay import new_generation
from strandline.pipelines.replay.filling import make_due
from strandline.pipelines.replay.in_place import InPlace, begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Selection
from strandline.pipelines.replay.switching import prune, roll_back
from strandline.schemas.errors import ArchiveError, ConflictError, ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from strandline.service.carried_work import CarriedReplays
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, Rig, lock_is_awaited, rows_of, wait_until
from tests.support.aging import DAY, age_messages, age_session
from tests.support.servers.databases import temporary_database
from tests.support.stored import due_work
from tests.support.workers.draining import drain_everything

LIMITS: dict[str, Any] = {"token_limit": 400, "token_flush_size": 60, "chat_history_token_ratio": 0.5}
OLD = 30
TABLES = {
    "fact": "fact_id, text, live, fingerprint",
    "fact_revision": "fact_id, revision, operation, text, seqs",
    "block_state": "scope_key, ordinal, through_seq, state::text",
    "chunk": "session_key, from_seq, piece, lexemes::text, code::text",
    "receipt": "event_id, generation_id, stage, outcome, batch_id",
}


@pytest.fixture(scope="module")
def filled(stack: EmbeddedStack) -> Iterator[str]:
    """The name of a database with a session whose first thirty messages are old, and another of the user."""
    with temporary_database(stack.database_url) as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("STRANDLINE_EMBEDDED", "never")
        settings = load_settings(database_url=url)
        database = Database.connect(ConnectionOptions.from_settings(url, settings))
        for session in ("s", "t"):
            memory = Memory.from_defaults(session, user_id="ana", database_url=url, **LIMITS)
            for number in range(1, 61):
                text = f"My {session} boat number {number} is called A{number}."
                memory.put(Message(role="user" if number % 2 else "assistant", content=text))
                # Of the one session the batches are small, of the other as large as can be.
                if session == "s" and number % 8 == 0:
                    drain_everything(database, url, settings)
            memory.close()
        drain_everything(database, url, settings)
        database.close()
        age_messages(url, "s", 40 * DAY, OLD)
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_url(stack: EmbeddedStack, filled: str) -> Iterator[str]:
    with temporary_database(stack.database_url, filled) as url:
        yield url


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    return make_memory("s", user_id="ana", **LIMITS)


@pytest.fixture
def truncated(memory: Memory, database: Database, tmp_path: Any) -> int:
    """The session has lost its old messages; the last of them."""
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=f"file://{tmp_path}/archive"))
    assert retention.run(database, at_once=True).removed
    return max(one.through_seq for one in retention.archived_ranges(database, "s"))


def rows(url: str, table: str, generation: int | None = None) -> list[tuple[Any, ...]]:
    where = "" if generation is None else f" WHERE generation_id = {generation}"
    return rows_of(url, f"SELECT {TABLES[table]} FROM strandline.{table}{where} ORDER BY {TABLES[table]}")


def everything(url: str) -> dict[str, list[tuple[Any, ...]]]:
    return {table: rows(url, table) for table in TABLES}


def facts_of_removed(url: str) -> list[tuple[Any, ...]]:
    """The live facts that come from messages that retention has removed, in what serves."""
    return rows_of(
        url,
        "SELECT DISTINCT f.fact_id, f.text FROM strandline.fact f"
        " JOIN strandline.generation g ON g.generation_id = f.generation_id AND g.state = 'serving'"
        " JOIN strandline.fact_revision r ON r.generation_id = f.generation_id AND r.fact_id = f.fact_id"
        " JOIN strandline.retention_step s ON s.session_key = r.session_key"
        " AND r.seqs[1] BETWEEN s.from_seq AND s.through_seq WHERE f.live ORDER BY f.fact_id",
    )


def outcomes_of_removed(url: str, generation: int | None = None) -> set[str]:
    """How events of which retention has removed all messages ended, in one derivation or in any."""
    found = rows_of(
        url,
        "SELECT DISTINCT r.outcome FROM strandline.receipt r"
        " JOIN strandline.flush_event e ON e.event_id = r.event_id"
        " JOIN strandline.retention_step s ON s.session_key = e.session_key AND s.state = 'removed'"
        " AND s.from_seq <= e.from_seq AND s.through_seq >= e.through_seq"
        " WHERE r.generation_id = coalesce(%s, r.generation_id)",
        generation,
    )
    return {outcome for (outcome,) in found}


def in_place(database: Database, settings: Settings, pipeline: str) -> InPlace:
    return replay_in_place(database, begin_in_place(database, pipeline, Selection()), settings)


def replay_new(database: Database, settings: Settings, pipeline: str, **how: Any) -> tuple[int, Progress]:
    provide = retention.provide_input if how.get("from_archive") else None
    runner = BackgroundRunner(database, prepare_stages(database, settings), settings)
    runner.start()
    try:
        replay = begin_generation(database, pipeline, settings, force=True, **how)
        return replay.generation_id, derive_generation(database, replay, provide_input=provide)
    finally:
        runner.stop()


def summary_states(url: str, generation: int) -> list[tuple[Any, ...]]:
    return rows(url, "block_state", generation)


def test_the_summary_at_the_cut_is_where_the_fold_begins(rig: Rig, memory: Memory, truncated: int) -> None:
    throughs = [
        row[0]
        for row in rows_of(
            rig.url,
            "SELECT through_seq FROM strandline.block_state f JOIN strandline.session s"
            " ON s.session_key = f.scope_key WHERE s.session_id = 's' ORDER BY ordinal",
        )
    ]
    assert 0 < throughs[0] <= truncated < throughs[1], "of the states before it none is left"
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
def test_a_replay_in_place_of_what_remains_gives_the_same_rows(
    rig: Rig, truncated: int, pipeline: str
) -> None:
    assert truncated
    before = everything(rig.url)
    counts = in_place(rig.database, rig.settings, pipeline)
    assert everything(rig.url) == before
    assert counts.batches == counts.same > 0 and counts.archived > 0
    assert (counts.asked_again, counts.made_due, counts.rewritten) == (0, 0, 0)


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
def test_a_new_generation_begins_with_the_carried_base(
    rig: Rig, memory: Memory, truncated: int, pipeline: str
) -> None:
    before = facts_of_removed(rig.url)
    summary = memory.get().summary
    generation, progress = replay_new(rig.database, rig.settings, pipeline)
    assert progress.phase == "done" and progress.carried > 0
    marked = rows_of(
        rig.url,
        "SELECT count(*) FROM strandline.batch WHERE generation_id = %s AND carried_from IS NOT NULL",
        generation,
    )
    assert marked[0][0] > 0
    assert verify(rig.database, deep=True).violations == ()
    assert before and facts_of_removed(rig.url) == before
    assert memory.get().summary == summary or pipeline == SUMMARY
    assert truncated and in_place(rig.database, rig.settings, pipeline).rewritten == 0
    if pipeline != VECTORS:
        # It goes back, and is carried a second time.
        roll_back(rig.database, pipeline)
        prune(rig.database, generation)
        assert replay_new(rig.database, rig.settings, pipeline)[1].carried == progress.carried
        assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
def test_what_is_removed_while_a_new_generation_is_filled_is_in_it(
    rig: Rig, memory: Memory, tmp_path: Path, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between taking over what is removed and making due what is not, nothing is removed."""
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=f"file://{tmp_path}/archive"))
    removal = threading.Thread(target=retention.run, args=(rig.database,), kwargs={"at_once": True})

    def make_due_after_a_removal(*given: Any) -> Any:
        if removal.ident is None:
            removal.start()
            wait_until(
                lambda: not removal.is_alive() or lock_is_awaited(rig.url),
                timeout=30,
                what="the removal to end or to wait",
            )
        return make_due(*given)

    monkeypatch.setattr(new_generation, "make_due", make_due_after_a_removal)
    generation, progress = replay_new(rig.database, rig.settings, pipeline)
    removal.join()
    assert progress.phase == "done"
    retention.run(rig.database, at_once=True)
    assert outcomes_of_removed(rig.url, generation) == {"applied"}
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
def test_what_a_reset_made_void_before_it_was_removed_is_void_in_a_new_generation(
    rig: Rig, memory: Memory, pipeline: str
) -> None:
    """Nothing can be derived of it any more, and nothing was."""
    memory.put(Message(role="user", content="My s boat was never derived."))
    memory.flush(all=True)
    memory.reset()
    drain_everything(rig.database, rig.url, rig.settings)
    age_messages(rig.url, "s", 40 * DAY)
    memory.set_retention(Retention(max_age_seconds=30 * DAY))
    while retention.run(rig.database, at_once=True).removed:
        pass
    assert {"void"} < outcomes_of_removed(rig.url)
    generation, progress = replay_new(rig.database, rig.settings, pipeline)
    assert progress.phase == "done" and progress.carried > 0
    assert verify(rig.database, deep=True).violations == ()
    assert outcomes_of_removed(rig.url, generation) == {"applied", "void"}


def test_a_carried_fact_says_so(rig: Rig, memory: Memory, truncated: int) -> None:
    replay_new(rig.database, rig.settings, FACTS)
    explained = [
        explain_fact_alone(rig.database, str(fact.fact_id), user_id="ana")
        for fact in memory.facts.list(limit=1_000)
    ]
    carried = [
        revision
        for one in explained
        for revision in one.revisions  # type: ignore[union-attr]
        if revision.carried_from is not None
    ]
    assert carried and all(revision.removed for revision in carried) and truncated


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY])
def test_it_can_be_derived_from_the_archive_instead(
    rig: Rig, memory: Memory, truncated: int, pipeline: str
) -> None:
    generation, progress = replay_new(rig.database, rig.settings, pipeline, from_archive=True)
    assert (progress.phase, progress.carried) == ("done", 0)
    table = "fact" if pipeline == FACTS else "block_state"
    assert rows(rig.url, table, generation)
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.archived_input") == [(0,)], "gone again"
    assert facts_of_removed(rig.url)
    assert not any((message.seq or 0) <= truncated for message in memory.get_all())
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.usefixtures("truncated")
async def test_the_service_resumes_a_replay_from_the_archive(rig: Rig) -> None:
    replay = begin_generation(rig.database, FACTS, rig.settings, force=True, from_archive=True)
    runner = BackgroundRunner(rig.database, prepare_stages(rig.database, rig.settings), rig.settings)
    runner.start()
    resumed = CarriedReplays(rig.settings)
    try:
        resumed.carry_on(rig.database, replay.replay_id)
        await resumed.wait(replay.replay_id, 300)
    finally:
        await resumed.close()
        runner.stop()
    assert resumed.reason(replay.replay_id) is None
    assert rows(rig.url, "fact", replay.generation_id)
    assert facts_of_removed(rig.url)


def test_without_the_archive_that_is_refused(memory: Memory, database: Database, settings: Settings) -> None:
    memory.set_retention(Retention(max_age_seconds=30 * DAY))
    retention.run(database, at_once=True)
    with pytest.raises(ArchiveError, match="without an archive"):
        replay_new(database, settings, FACTS, from_archive=True)
    with pytest.raises(ReplayError, match="find nothing"):
        begin_generation(database, VECTORS, settings, force=True, from_archive=True)


def test_a_correction_behind_the_cut_leaves_what_is_in_front_of_it(
    rig: Rig, memory: Memory, truncated: int
) -> None:
    facts = facts_of_removed(rig.url)
    assert facts
    memory.replace(truncated + 1, "My other boat is called Borealis.")
    memory.rewind(50)
    drain_everything(rig.database, rig.url, rig.settings)
    assert facts_of_removed(rig.url) == facts
    assert verify(rig.database, deep=True).violations == ()


def test_a_fork_has_what_is_left_and_says_what_is_not(rig: Rig, memory: Memory, truncated: int) -> None:
    memory.fork("copy")
    drain_everything(rig.database, rig.url, rig.settings)
    copy = Memory.from_defaults("copy", user_id="ana", database_url=rig.url, **LIMITS)
    assert [m.seq for m in copy.get_all()] == [m.seq for m in memory.get_all()]
    assert copy.get_retention() == memory.get_retention()
    assert {one.through_seq for one in retention.archived_ranges(rig.database, "copy")} == {truncated}
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("derived", [False, True])
def test_a_reset_forgets_what_is_asked_of_it(rig: Rig, memory: Memory, truncated: int, derived: bool) -> None:
    memory.reset(derived=derived)
    texts = str([fact.text for fact in memory.facts.list(limit=1_000)])
    assert ("My s boat" not in texts) is derived and "My t boat" in texts
    drain_everything(rig.database, rig.url, rig.settings)
    assert verify(rig.database, deep=True).violations == ()
    memory.put(Message(role="user", content="hello"))
    assert [m.text for m in memory.get_all()] == ["hello"] and truncated


def test_archived_messages_come_back_as_they_were(rig: Rig, memory: Memory, truncated: int) -> None:
    restored = retention.restore(rig.database, "s", "back")
    back = rig.memory("back", user_id="ana", **LIMITS)
    messages = back.get_all()
    assert restored.messages == len(messages) == truncated
    assert [m.seq for m in messages] == list(range(1, truncated + 1))
    assert messages == list(retention.read_archived(rig.database, "s"))
    assert retention.restore(rig.database, "s", "back").messages == truncated, "again, it is the same"
    assert len(back.get_all()) == truncated
    assert verify(rig.database, deep=True).violations == ()
    with pytest.raises(ConflictError):
        retention.restore(rig.database, "s", "t")
    age_session(rig.url, "back", 8 * DAY)
    assert back.get_all() == [], "it is kept for a week"
    assert due_work(rig.url) == 0, "nothing is derived again"
