"""Replays: deriving memory again, beside what serves and in place, on the real engine and a model server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest

from strandline import Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.engine.dead_letters import list_dead_letters, retry_dead_letter
from strandline.pipelines.generations.registry import find, serving_generations
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.comparison import compare_generations
from strandline.pipelines.replay.estimate import estimate
from strandline.pipelines.replay.in_place import InPlace, begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Replay, Selection, claim_replay, replays
from strandline.pipelines.replay.switching import prune, roll_back, serve_everybody, switch_owner
from strandline.schemas.errors import ConfigurationError, ReplayError, UnknownReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.statements import with_fragments
from strandline.schemas.queries.derived.replay import TakeReplayCall
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from strandline.workers.replay_slots import waiting_lanes
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.opened_rows import clear_only, stored_rows_of
from tests.support.servers.databases import temporary_database
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest, answer_to
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import HandWorker, say

PROMPT = "Find what is worth keeping, and answer in the form that was asked for."
USERS = 3


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def model_server(server: ModelServer) -> ModelServer:
    """One for all tests, since the generations in the database that they copy name it."""
    server.behave()
    return server


@pytest.fixture(scope="module")
def derived(stack: EmbeddedStack, server: ModelServer) -> Iterator[str]:
    """The name of a database with two sessions of each of three users, all derived."""
    with temporary_database(stack.database_url) as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("STRANDLINE_EMBEDDED", "never")
        database = Database.connect(ConnectionOptions.from_settings(url, load_settings()))
        for n in range(2 * USERS):
            memory = Memory.from_defaults(f"s{n}", user_id=f"u{n % USERS}", database_url=url)
            say(memory, f"my boat number {n} is blue", f"I moor it at pier {n}")
            memory.close()
        drain_everything(database, url, first_settings(url, server))
        database.close()
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_url(stack: EmbeddedStack, derived: str) -> Iterator[str]:
    """A copy of it."""
    with temporary_database(stack.database_url, derived) as url:
        yield url


def first_settings(database_url: str, model_server: ModelServer) -> Settings:
    """Settings under which the first generations are made: the stand-in server, 256 dimensions."""
    return load_settings(
        database_url=database_url,
        openai_base_url=model_server.base_url,
        text_backend="openai",
        embedding_backend="openai",
        embedding_model="text-embedding-3-small",
        embedding_dimensions=256,
        retry_base_seconds=0.05,
    )


@pytest.fixture
def before(database_url: str, model_server: ModelServer) -> Settings:
    return first_settings(database_url, model_server)


@pytest.fixture
def after(before: Settings, tmp_path: Path) -> Settings:
    """The changed settings: a custom fact prompt, and 384 dimensions."""
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "extract.md").write_text(PROMPT)
    return before.model_copy(update={"embedding_dimensions": 384, "prompts_dir": prompts})


@pytest.fixture
def memories(make_memory: MakeMemory) -> list[Memory]:
    """Two sessions of each of three users, all derived."""
    return [make_memory(f"s{n}", user_id=f"u{n % USERS}") for n in range(2 * USERS)]


@contextmanager
def working(database: Database, settings: Settings) -> Iterator[BackgroundRunner]:
    """Workers in this process, as ``settings`` would have them; the generations say what they derive."""
    runner = BackgroundRunner(database, prepare_stages(database, settings), settings)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()


def is_new_extract(request: RecordedRequest) -> bool:
    """Whether a request is for facts by the changed prompt."""
    return PROMPT in str(request.body.get("messages"))


def replay_new(
    database: Database, settings: Settings, pipeline: str, **options: Any
) -> tuple[Replay, Progress]:
    """Derive a pipeline again while workers work."""
    with working(database, settings):
        replay = begin_generation(database, pipeline, settings, **options)
        return replay, derive_generation(database, replay)


def in_place(database: Database, settings: Settings, pipeline: str, **chosen: Any) -> InPlace:
    replay = begin_in_place(database, pipeline, Selection(**chosen))
    return replay_in_place(database, replay, settings)


def reads(memories: list[Memory], generation: int | None = None) -> list[list[dict[str, Any]]]:
    """What each session shows to a model."""
    asked = "where do I moor my boat?"
    return [memory.get(asked, generation=generation).to_openai() for memory in memories]


def known(memories: list[Memory]) -> list[str]:
    return sorted(fact.text for memory in memories[:USERS] for fact in memory.facts.list())


def due_where_it_serves(database_url: str) -> bool:
    sql = """SELECT 1 FROM strandline.due d JOIN strandline.generation g USING (generation_id)
        WHERE g.state = 'serving' LIMIT 1"""
    return bool(rows_of(database_url, sql))


def rows_by_table(database_url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every derived row with the transaction that wrote it: an update in place shows as well."""
    tables = ("fact_candidate", "fact", "fact_revision", "block_state", "chunk", "batch", "answer", "receipt")
    return {
        table: stored_rows_of(
            database_url, f"SELECT xmin::text, t::text FROM strandline.{table} t ORDER BY 2"
        )
        for table in tables
    }


def test_everything_is_derived_anew_and_then_serves(
    rig: Rig, memories: list[Memory], after: Settings
) -> None:
    first, asked, facts = serving_generations(rig.database), rig.model.received, known(memories)
    done = [replay_new(rig.database, after, pipeline, force=True) for pipeline in (FACTS, SUMMARY, VECTORS)]
    assert {progress.phase for _, progress in done} == {"done"}
    second = serving_generations(rig.database)
    assert all(second[name].generation_id != first[name].generation_id for name in second)
    assert second[VECTORS].recipe.config["dimensions"] == 384
    assert second[FACTS].recipe.prompts["extract"] == PROMPT
    assert known(memories) == facts
    bodies = [request.body for request in rig.model.requests[asked:]]
    assert PROMPT in [body["messages"][0]["content"] for body in bodies if "messages" in body]
    assert {body["dimensions"] for body in bodies if "dimensions" in body} == {384}
    assert not verify(rig.database).violations
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.scope_generation") == [(0,)]


def test_what_people_did_to_facts_holds_in_a_new_generation(
    memories: list[Memory], database: Database, after: Settings
) -> None:
    facts = memories[0].facts
    blue, pier = (next(f for f in facts.list() if word in f.text) for word in ("boat number 0", "pier 0"))
    facts.delete(blue.fact_id)
    facts.replace(pier.fact_id, "moors at the new harbour")
    facts.add("likes herring")
    wanted = known(memories)
    assert "moors at the new harbour" in wanted and not any("boat number 0" in text for text in wanted)
    replay_new(database, after, FACTS)
    assert known(memories) == wanted
    assert not verify(database, deep=True).violations


def test_a_look_for_replay_work_goes_all_around_the_owners(
    memories: list[Memory], database: Database, before: Settings, after: Settings
) -> None:
    """Whichever owner it begins at: the first owners do not wait until all others have no work."""
    filled = threading.Event()

    def look(progress: Progress) -> None:
        if progress.phase not in ("waiting", "filling"):
            filled.set()

    derive_generation(database, begin_generation(database, FACTS, after), on_progress=look, stop=filled)
    worker = HandWorker(database, prepare_stages(database, before))
    owners = {lane.shard_key for lane in waiting_lanes(worker.engine, UUID(int=0))}
    assert len(owners) == USERS
    for start in owners:
        assert {lane.shard_key for lane in waiting_lanes(worker.engine, start)} == owners


def test_a_held_generation_waits_and_is_promoted_for_one_and_for_all(
    rig: Rig, memories: list[Memory], after: Settings
) -> None:
    replay, progress = replay_new(rig.database, after, VECTORS, hold=True)
    old, new = serving_generations(rig.database)[VECTORS].generation_id, replay.generation_id
    assert (progress.phase, old == new) == ("held", False)
    with working(rig.database, after):
        # It is fed by what is flushed meanwhile, as is the one that serves.
        say(memories[0], "the harbour master is called Ida")
        wait_until(lambda: nothing_due(rig.url), timeout=30, what="both generations to be fed")
    generation = find(rig.database, new)
    assert generation is not None
    assert switch_owner(rig.database, generation, identify_user("default", "u0").shard_key)
    row = with_fragments("SELECT generation_id FROM @serving(%s, '{vectors}') AS serving")
    for user, served_by in (("u0", new), ("u1", old)):
        assert rows_of(rig.url, row, identify_user("default", user).shard_key) == [(served_by,)]
    assert not verify(rig.database).violations
    serve_everybody(rig.database, generation)
    assert serving_generations(rig.database)[VECTORS].generation_id == new
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.scope_generation") == [(0,)]
    assert not verify(rig.database).violations


def test_going_back_reads_as_before_and_pruning_leaves_a_line(
    rig: Rig, memories: list[Memory], after: Settings
) -> None:
    shown, first = reads(memories), serving_generations(rig.database)
    for pipeline in (FACTS, VECTORS):
        replay_new(rig.database, after, pipeline)
    for pipeline in (FACTS, VECTORS):
        roll_back(rig.database, pipeline)
    assert {n: g.generation_id for n, g in serving_generations(rig.database).items()} == {
        n: g.generation_id for n, g in first.items()
    }
    assert reads(memories) == shown
    left = [
        g
        for (g,) in rows_of(
            rig.url, "SELECT generation_id FROM strandline.generation WHERE state = 'feeding'"
        )
    ]
    assert len(left) == 2
    with pytest.raises(ReplayError, match="serves; promote another"):
        prune(rig.database, first[FACTS].generation_id)
    for generation_id in left:
        prune(rig.database, generation_id)
        for table in ("fact", "fact_candidate", "chunk", "receipt", "batch", "due", "lane", "block_state"):
            counted = f"SELECT count(*) FROM strandline.{table} WHERE generation_id = %s"
            assert rows_of(rig.url, counted, generation_id) == [(0,)], table
    assert reads(memories) == shown
    assert not verify(rig.database).violations
    with pytest.raises(ReplayError, match="nothing to roll back to"):
        roll_back(rig.database, FACTS)


def test_replaying_in_place_asks_nothing_and_changes_nothing(
    rig: Rig, memories: list[Memory], before: Settings
) -> None:
    rows, asked = rows_by_table(rig.url), rig.model.received
    for pipeline in (FACTS, SUMMARY, VECTORS):
        found = in_place(rig.database, before, pipeline)
        assert (found.batches, found.rewritten, found.differing) == (found.same, 0, 0)
        assert found.batches >= 6
    assert rows_by_table(rig.url) == rows
    assert rig.model.received == asked


@clear_only("changes stored texts by SQL")
def test_a_comparison_in_place_executes_no_write(rig: Rig, memories: list[Memory], before: Settings) -> None:
    """Not even one that is rolled back: any write of what is derived raises."""
    rows_of(rig.url, "UPDATE strandline.fact_candidate SET text = text || '!' RETURNING 1")
    refuse = """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'a write of %', TG_TABLE_NAME; END $$;
        CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON strandline.chunk
            FOR EACH ROW EXECUTE FUNCTION refuse();
        CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON strandline.fact_candidate
            FOR EACH ROW EXECUTE FUNCTION refuse();
        CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON strandline.block_state
            FOR EACH ROW EXECUTE FUNCTION refuse();
        CREATE TRIGGER refuse BEFORE INSERT OR UPDATE OR DELETE ON strandline.receipt
            FOR EACH ROW EXECUTE FUNCTION refuse();
    """
    with psycopg.connect(rig.url, autocommit=True) as connection:
        connection.execute(refuse)
    for pipeline in (SUMMARY, VECTORS):
        found = in_place(rig.database, before, pipeline)
        assert found.batches == found.same >= 6
    found = in_place(rig.database, before, FACTS)
    assert found.differing > 0
    assert found.differing + found.same == found.batches


def test_replaying_in_place_puts_right_what_differs(
    rig: Rig, memories: list[Memory], before: Settings
) -> None:
    def contents() -> list[Any]:
        sql = "SELECT to_jsonb(t)::text FROM strandline.{} t ORDER BY 1"
        return [rows_of(rig.url, sql.format(table)) for table in ("chunk", "block_state")]

    whole, asked = contents(), rig.model.received
    rows_of(
        rig.url,
        "DELETE FROM strandline.chunk WHERE session_key = (SELECT session_key FROM"
        " strandline.session WHERE session_id = 's1') RETURNING 1",
    )
    rows_of(rig.url, 'UPDATE strandline.block_state SET state = \'{"text": "nonsense"}\' RETURNING 1')
    assert in_place(rig.database, before, VECTORS, namespace="default", session_id="s0").rewritten == 0
    assert in_place(rig.database, before, VECTORS, namespace="default", user_id="u1").rewritten > 0
    assert in_place(rig.database, before, SUMMARY).rewritten > 0
    assert contents() == whole
    assert rig.model.received == asked


def test_answers_that_are_gone_are_asked_for_again(
    rig: Rig, memories: list[Memory], before: Settings
) -> None:
    shown = reads(memories)
    rows_of(rig.url, "DELETE FROM strandline.answer RETURNING 1")
    told = estimate(rig.database, VECTORS, Selection(), before, new=False)
    assert (told.stored_batches, told.events) == (0, 12) and told.batches == told.model_calls
    for pipeline in (SUMMARY, VECTORS):
        assert in_place(rig.database, before, pipeline).asked_again > 0
    assert in_place(rig.database, before, FACTS).kept > 0
    with working(rig.database, before):
        wait_until(lambda: nothing_due(rig.url), timeout=30, what="what was asked again")
    assert reads(memories) == shown
    assert not verify(rig.database).violations


def test_a_dead_letter_stands_in_the_way_until_it_is_replayed(
    rig: Rig, memories: list[Memory], after: Settings
) -> None:
    def refuse(request: RecordedRequest) -> Raw | None:
        poisoned = "pier 4" in str(request.body) and is_new_extract(request)
        return Raw(400, b'{"error": {"message": "refused", "code": "content_filter"}}') if poisoned else None

    rig.model.behave(responder=refuse)
    with working(rig.database, after):
        replay = begin_generation(rig.database, FACTS, after)
        with pytest.raises(ReplayError, match=r"1 event of 1 owner is a dead letter"):
            derive_generation(rig.database, replay)
        assert replays(rig.database, replay_id=replay.replay_id)[0].state == "stopped"
        with pytest.raises(ReplayError, match=f"--resume {replay.replay_id}"):
            begin_generation(rig.database, FACTS, after)
        rig.model.behave()
        for letter in list_dead_letters(rig.database, pipeline=FACTS):
            retry_dead_letter(rig.database, letter)
        assert derive_generation(rig.database, claim_replay(rig.database, replay.replay_id)).phase == "done"
    assert not verify(rig.database).violations


def test_dead_letters_of_an_owner_who_talks_all_the_time_are_told(
    rig: Rig, memories: list[Memory], after: Settings
) -> None:
    """Something is always due for such an owner: that is not what the replay waits for."""

    def refuse(request: RecordedRequest) -> Raw | None:
        if not is_new_extract(request):
            return None
        if "pier 4" in str(request.body):
            return Raw(400, b'{"error": {"message": "refused", "code": "content_filter"}}')
        return Raw(503, b"{}") if "pier 99" in str(request.body) else None

    rig.model.behave(responder=refuse)
    # However often what is always due was tried meanwhile, it is no dead letter.
    after = after.model_copy(update={"max_failures": 10_000})
    with working(rig.database, after):
        replay = begin_generation(rig.database, FACTS, after)
        say(memories[4], "no, I moor it at pier 99")
        wait_until(lambda: not due_where_it_serves(rig.url), timeout=30, what="what serves to be derived")
        with pytest.raises(ReplayError, match=r"1 event of 1 owner is a dead letter"):
            derive_generation(rig.database, replay)


def test_reads_see_one_whole_generation_at_every_moment(
    rig: Rig, memories: list[Memory], after: Settings
) -> None:
    """While it is derived and switched: never without facts, never facts of two generations."""
    wanted, stop, wrong = [], threading.Event(), []
    for memory in memories:
        wanted.append({fact.text for fact in memory.facts.list()})

    def look() -> None:
        while not stop.is_set():
            for memory, texts in zip(memories, wanted, strict=True):
                seen = [fact.text for fact in memory.facts.list()]
                if len(seen) != len(set(seen)) or not texts <= set(seen):
                    wrong.append(seen)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _again in range(2):
            replay_new(rig.database, after, FACTS, force=True)
        roll_back(rig.database, FACTS)
    finally:
        stop.set()
        looking.join()
    assert wrong == []


def test_a_stopped_replay_goes_on_where_it_was(
    memories: list[Memory], database: Database, after: Settings
) -> None:
    stop = threading.Event()
    replay = begin_generation(database, FACTS, after)

    def stop_soon(progress: Progress) -> None:
        if progress.owners == 1:
            stop.set()

    halfway = derive_generation(database, replay, on_progress=stop_soon, stop=stop)
    assert (halfway.phase, halfway.owners) == ("filling", 1)
    with working(database, after):
        ended = derive_generation(database, claim_replay(database, replay.replay_id))
    assert (ended.phase, ended.owners) == ("done", USERS)
    assert not verify(database).violations


class StopBetweenLooks(threading.Event):
    """Once armed, set right after it was found not to be."""

    armed = False

    def is_set(self) -> bool:
        was_set = super().is_set()
        if self.armed:
            self.set()
        return was_set


def test_a_replay_that_is_stopped_before_a_pass_serves_nobody(
    memories: list[Memory], database: Database, after: Settings
) -> None:
    """No worker runs, so all owners lack something."""
    stop = StopBetweenLooks()
    replay = begin_generation(database, FACTS, after)

    def stop_later(progress: Progress) -> None:
        stop.armed = progress.phase == "switching"

    stopped = derive_generation(database, replay, on_progress=stop_later, stop=stop)
    assert stopped.phase == "switching"
    generation = find(database, replay.generation_id)
    assert generation is not None and generation.state == "feeding"
    with working(database, after):
        ended = derive_generation(database, claim_replay(database, replay.replay_id))
    assert (ended.phase, ended.owners) == ("done", USERS)
    assert not verify(database).violations


def test_a_budget_of_calls_holds_for_replays_alone(rig: Rig, memories: list[Memory], after: Settings) -> None:
    asked = rig.model.received
    replay_new(rig.database, after, VECTORS, calls_per_second=3.0)
    assert rig.model.received - asked >= 6
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.replay_budget") == [(1,)]


def test_a_budget_of_calls_fills_up_with_time_to_one_call_at_least(rig: Rig, memories: list[Memory]) -> None:
    """One call an hour: the time is that of the budget's row, which the test moves."""
    owner = identify_user("default", "u0").shard_key
    call = TakeReplayCall(shard_key=owner, calls_per_second=1 / 3600)

    def take_after(hours: int) -> bool:
        age = "UPDATE strandline.replay_budget SET filled_at = filled_at - %s * interval '1 hour' RETURNING 1"
        rows_of(rig.url, age, hours)
        return rig.database.fetch(call) == [(0,)]

    assert [take_after(hours) for hours in (0, 0, 1, 0, 10, 0)] == [True, False, True, False, True, False]


def test_an_estimate_says_what_changes_and_what_it_takes(
    memories: list[Memory], database: Database, after: Settings
) -> None:
    told = estimate(database, FACTS, Selection(), after, new=True)
    assert [change.split(":")[0] for change in told.differences] == ["prompt extract"]
    assert told.events == 12 and told.model_calls and told.input_tokens
    assert estimate(database, FACTS, Selection(), after, new=False).model_calls == 0


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
def test_a_dry_run_promises_what_the_run_makes(
    rig: Rig, memories: list[Memory], before: Settings, after: Settings, pipeline: str
) -> None:
    """In place, as a new generation of the same recipe, and with another prompt and other dimensions."""
    told, asked = estimate(rig.database, pipeline, Selection(), before, new=False), rig.model.received
    found = in_place(rig.database, before, pipeline)
    assert (told.batches, told.stored_batches) == (found.batches, found.same)
    assert told.model_calls == rig.model.received - asked == 0
    for settings in (before, after):
        told = estimate(rig.database, pipeline, Selection(), settings, new=True)
        replay, progress = replay_new(rig.database, settings, pipeline, force=True)
        made = "SELECT count(*) FROM strandline.{} WHERE generation_id = %s"
        ((batches,),) = rows_of(rig.url, made.format("batch"), replay.generation_id)
        ((calls,),) = rows_of(rig.url, made.format("model_call"), replay.generation_id)
        assert (told.events, told.batches, told.model_calls) == (progress.events, batches, calls)


@pytest.mark.parametrize("pipeline", [SUMMARY, VECTORS])
def test_a_dry_run_counts_what_is_asked_for_again(
    rig: Rig, memories: list[Memory], before: Settings, pipeline: str
) -> None:
    rows_of(
        rig.url,
        "DELETE FROM strandline.answer a USING strandline.batch b JOIN strandline.session s"
        " ON s.session_key = b.scope_key WHERE b.batch_id = a.batch_id AND b.stage = %s"
        " AND s.session_id IN ('s1', 's2') RETURNING 1",
        pipeline,
    )
    told = estimate(rig.database, pipeline, Selection(), before, new=False)
    found = in_place(rig.database, before, pipeline)
    asked = rig.model.received
    drain_everything(rig.database, rig.url, before)
    assert (told.batches, told.stored_batches) == (found.batches, found.same)
    assert told.model_calls == rig.model.received - asked > 0


def reword(request: RecordedRequest) -> str | None:
    """Another wording of one fact."""
    text = str(request.body.get("messages", [{}])[-1].get("content"))
    if "<transcript>" not in text or "pier 0" not in text or "<summary_so_far>" in text:
        return None
    answer = answer_to(text)
    for fact in answer["facts"]:
        fact["text"] = fact["text"].replace("I moor it at pier 0", "moors at pier 0")
    return json.dumps(answer)


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
def test_a_read_at_a_generation_is_the_read_once_it_serves(
    rig: Rig, memories: list[Memory], after: Settings, pipeline: str
) -> None:
    """Of each pipeline, beside others, and again when the earlier one is chosen."""
    rig.model.behave(responder=reword)
    old = serving_generations(rig.database)[pipeline].generation_id
    replay, _ = replay_new(rig.database, after, pipeline, hold=True, force=True)
    before, chosen = (reads(memories, generation) for generation in (None, replay.generation_id))
    assert reads(memories, old) == before == reads(memories)
    generation = find(rig.database, replay.generation_id)
    assert generation is not None
    serve_everybody(rig.database, generation)
    assert reads(memories) == chosen
    assert reads(memories, old) == before
    if pipeline == FACTS:
        assert "moors at pier 0" in str(chosen) and "moors at pier 0" not in str(before)


def test_a_generation_that_no_block_reads_is_refused(
    rig: Rig, memories: list[Memory], before: Settings
) -> None:
    facts = serving_generations(rig.database)[FACTS].generation_id
    alone = Memory.from_defaults("s0", user_id="u0", database_url=rig.url, memory_blocks=["vectors"])
    for memory, number in ((memories[0], 99), (alone, facts)):
        with pytest.raises(UnknownReplayError, match=f"reads generation {number}"):
            memory.get(generation=number)
    with pytest.raises(ConfigurationError, match="generation"):
        memories[0].get(generation=0)
    alone.close()


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
def test_a_read_at_a_generation_covers_what_is_derived_in_it(
    rig: Rig, memories: list[Memory], after: Settings, pipeline: str
) -> None:
    """At each step of filling it is refused, or says that it has not caught up."""
    replay, stop = begin_generation(rig.database, pipeline, after, hold=True, force=True), threading.Event()
    told: list[dict[str, int | None]] = []

    def look(progress: Progress) -> None:
        for memory in memories:
            try:
                context = memory.get(generation=replay.generation_id)
            except UnknownReplayError:
                assert progress.phase != "deriving"
            else:
                assert not context.caught_up
                told.append(dict(context.covered_through))
        if progress.phase == "deriving":
            stop.set()

    with pytest.raises(UnknownReplayError, match="still being filled"):
        memories[0].get(generation=replay.generation_id)
    derive_generation(rig.database, replay, on_progress=look, stop=stop)
    assert len(told) >= len(memories) and {covered[pipeline] for covered in told} == {0}
    with working(rig.database, after):
        derive_generation(rig.database, claim_replay(rig.database, replay.replay_id))
    for memory in memories:
        served, chosen = memory.get(), memory.get(generation=replay.generation_id)
        assert chosen.caught_up and chosen.covered_through == served.covered_through
        with pytest.raises(ConfigurationError, match="leave out wait_for"):
            memory.get(wait_for=1, generation=replay.generation_id)


def test_two_generations_are_compared(rig: Rig, memories: list[Memory], after: Settings) -> None:
    rig.model.behave(responder=reword)
    replay, _ = replay_new(rig.database, after, FACTS, hold=True)
    found = compare_generations(rig.database, replay.generation_id)
    assert {name: count for name, count in found.totals.items() if count} == {"same": 11, "changed": 1}
    ((owner,),) = [found.owners]
    assert (owner.user_id, owner.facts[0].before, owner.facts[0].after) == (
        "u0",
        "I moor it at pier 0",
        "moors at pier 0",
    )


def test_no_flush_falls_between_the_phases(rig: Rig, memories: list[Memory], after: Settings) -> None:
    """A transaction that flushed before the generation was there is waited for, and then derived."""
    late = rig.memory("late", user_id="u0")
    late.put({"role": "user", "content": "the first one"})
    with psycopg.connect(rig.url) as connection:
        late.put({"role": "user", "content": "my tender is called Pip"}, connection=connection)
        late.flush(all=True, connection=connection)
        replay = begin_generation(rig.database, FACTS, after)
        with pytest.raises(ReplayError, match=f"--resume {replay.replay_id}"):
            derive_generation(rig.database, replay, wait_seconds=0.3)
        connection.commit()
    with working(rig.database, after):
        assert derive_generation(rig.database, claim_replay(rig.database, replay.replay_id)).phase == "done"
        wait_until(lambda: nothing_due(rig.url), timeout=30, what="the rest")
    assert "my tender is called Pip" in known(memories)
    assert not verify(rig.database).violations


def test_what_was_known_before_a_reset_is_known_again(
    rig: Rig, memories: list[Memory], after: Settings
) -> None:
    """A reset keeps what was derived, and so does a new generation; what it made void stays void."""
    say(memories[0], "nobody has read this")
    memories[0].reset()
    say(memories[0], "a new life begins")
    with working(rig.database, after):
        wait_until(lambda: nothing_due(rig.url), timeout=30, what="the new life")
    before = known(memories)
    assert "my boat number 0 is blue" in before and "nobody has read this" not in before
    replay_new(rig.database, after, FACTS)
    assert known(memories) == before
    tail = [message.text for message in memories[0].get()]
    assert not any("boat number 0 is blue" in text and text.startswith("my boat") for text in tail)
    assert not verify(rig.database).violations


def test_a_log_of_which_messages_are_gone_is_refused(
    rig: Rig, memories: list[Memory], after: Settings
) -> None:
    """What serves knows what they said; neither a new generation nor a replay in place may forget it."""
    served, facts = serving_generations(rig.database)[FACTS].generation_id, known(memories)
    rows_of(
        rig.url,
        "DELETE FROM strandline.message m USING strandline.session s"
        " WHERE m.session_key = s.session_key AND s.session_id = 's1' AND m.seq = 2 RETURNING 1",
    )
    said = r"log of session 's1' was truncated: of its messages 2 to 2, 0 of 1 are left"
    for replay_it in (replay_new, in_place):
        with pytest.raises(ReplayError, match=said):
            replay_it(rig.database, after, FACTS)
    assert serving_generations(rig.database)[FACTS].generation_id == served
    assert known(memories) == facts
