"""Verify: clean whatever the pipeline did, and naming each thing broken in the tables by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from strandline import Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.inspect.verify import CHECKS, SENTENCES, Report, verify
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings, load_settings
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.many_sessions import fill
from tests.support.processes.commands import run_here
from tests.support.servers.databases import temporary_database
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.sql.named_sql import named_statements
from tests.support.stored import due_work
from tests.support.workers.draining import drain_everything

POISON = "zyzzyva"
MOVED = "Oslo is where I live now"


def answer(request: RecordedRequest) -> Raw | str | None:
    """Refuses to sum up one word, and lets one fact take another's place."""
    prompt = json.dumps(request.body)
    if POISON in prompt and "<summary_so_far>" in prompt:
        return Raw(400, b'{"error": {"message": "no such words"}}')
    if MOVED in prompt and "<candidates>" in prompt:
        operation = {"op": "invalidate", "candidate": 1, "fact": 1, "text": None}
        return json.dumps({"operations": [operation]})
    return None


@pytest.fixture(scope="module")
def history(stack: EmbeddedStack) -> Iterator[str]:
    """The name of a database in which everything that can happen has happened."""
    with temporary_database(stack.database_url) as url:
        with pytest.MonkeyPatch.context() as environment, ModelServer() as server:
            environment.setenv("OPENAI_BASE_URL", server.base_url)
            environment.setenv("OPENAI_API_KEY", "unused")
            environment.setenv("STRANDLINE_EMBEDDED", "never")
            server.behave(responder=answer)
            live_through(url)
        yield urlsplit(url).path.removeprefix("/")


def live_through(url: str) -> None:
    """Two sessions of one user, one that was reset, one with a hole, and one that no worker consumed."""
    settings = load_settings(database_url=url, embedding_backend="local", batch_token_budget=20)
    database = Database.connect(ConnectionOptions.from_settings(url, settings))
    anna = [Memory.from_defaults(f"anna-{n}", user_id="anna", database_url=url) for n in (1, 2)]
    anna[0].put({"role": "system", "content": "Be kind."})
    for memory in anna:
        for text in ("Bergen is where I live", "I keep bees", "My sister is Ida"):
            say(memory, text)
    drain_everything(database, url, settings)
    say(anna[1], MOVED)
    reset = Memory.from_defaults("reset", database_url=url)
    say(reset, "I like rain")
    drain_everything(database, url, settings)
    say(reset, "I like snow")
    reset.reset()
    say(reset, "I like fog")
    hole = Memory.from_defaults("hole", database_url=url)
    hole.put({"role": "user", "content": f"a {POISON} went by"})
    hole.flush(all=True)
    say(hole, "and a boat")
    drain_everything(database, url, settings)
    waiting = Memory.from_defaults("waiting", namespace="elsewhere", database_url=url)
    say(waiting, "nobody has read this")
    waiting.put({"role": "user", "content": "nor flushed this"})
    for memory in (*anna, reset, hole, waiting):
        memory.close()
    database.close()


def say(memory: Memory, text: str) -> None:
    """Put a turn and flush it as a separate event."""
    memory.put_messages(
        [{"role": "user", "content": text}, {"role": "assistant", "content": "Tell me more."}]
    )
    memory.flush(all=True)


@pytest.fixture
def database_url(stack: EmbeddedStack, history: str) -> Iterator[str]:
    """That history in a database of the test's own."""
    with temporary_database(stack.database_url, history) as url:
        yield url


def test_everything_that_happened_is_accounted_for(database: Database) -> None:
    report = verify(database, deep=True)
    assert report.violations == ()
    assert (report.sessions, report.messages, report.events) == (5, 1 + 6 * 2 + 2 + 3 * 2 + 1 + 2 + 3, 13)
    # The reset came before anyone had taken up what was said before it.
    assert (report.pending, report.voids, report.holes, report.dropped) == (3, 3, 1, 0)
    assert report.applications == (13 - 1) * 4 - 1 - 4
    assert report.facts == 3 + 1 + 2 + 2


BREAKS = named_statements("breaking.sql")
NAMES_NO_SESSION = ("event_without_session", "receipt_without_event", "erased_row")
EVENT = (
    "(SELECT event_id FROM strandline.flush_event JOIN strandline.session USING (shard_key, session_key)"
    " WHERE session_id = 'anna-1' ORDER BY from_seq LIMIT 1 OFFSET {})"
)
PLACES = {
    "first": EVENT.format(0),
    "second": EVENT.format(1),
    "last": EVENT.format(2),
    "session": "(SELECT session_key FROM strandline.session WHERE session_id = 'anna-1')",
    "other": "gen_random_uuid()",
}


def break_it(database_url: str, kind: str) -> None:
    """Do to the tables what makes this kind of violation."""
    ((fact,),) = rows_of(database_url, "SELECT fact_id FROM strandline.fact WHERE text = 'I keep bees'")
    places = {**PLACES, "fact": f"'{fact}'::uuid"}
    with psycopg.connect(database_url) as connection:
        for statement in BREAKS[kind].split(";"):
            filled = re.sub(r"\{(\w+)\}", lambda found: places[found[1]], statement)
            assert connection.execute(filled.encode()).rowcount, "the break touched nothing"


def test_each_kind_of_violation_has_a_test_that_breaks_it() -> None:
    assert set(BREAKS) == set(SENTENCES)


@pytest.mark.parametrize("kind", BREAKS)
def test_each_kind_of_violation_is_named_in_a_sentence(rig: Rig, kind: str) -> None:
    break_it(rig.url, kind)
    named = [violation for violation in verify(rig.database, deep=True).violations if violation.kind == kind]
    assert named
    for violation in named:
        assert violation.sentence.endswith(".") and "None" not in violation.sentence
        if "session" in SENTENCES[kind] and kind not in NAMES_NO_SESSION:
            assert repr(violation.session_id) in violation.sentence


def test_a_break_shows_where_it_is_and_nowhere_else(database: Database, database_url: str) -> None:
    break_it(database_url, "message_missing")
    for namespace, session_id in ((None, None), ("default", None), (None, "anna-1")):
        report = verify(database, namespace=namespace, session_id=session_id)
        (missing,) = (v for v in report.violations if v.kind == "message_missing")
        assert (missing.session_id, missing.from_seq, missing.through_seq) == ("anna-1", 3, 4)
    assert verify(database, session_id="hole").violations == ()
    assert verify(database, session_id="waiting", namespace="elsewhere").violations == ()
    elsewhere = verify(database, namespace="elsewhere")
    assert (elsewhere.violations, elsewhere.sessions, elsewhere.pending) == ((), 1, 3)


def test_an_unknown_session_is_an_error(database: Database) -> None:
    with pytest.raises(ConfigurationError, match="Session 'nobody' does not exist in namespace 'default'"):
        verify(database, session_id="nobody")


def test_progress_names_every_check(database: Database) -> None:
    seen: list[tuple[str, int, int]] = []
    verify(database, progress=lambda name, number, total: seen.append((name, number, total)))
    assert [(name, number) for name, number, _total in seen] == [
        (name, number) for number, name in enumerate(CHECKS, 1)
    ]
    assert {total for _name, _number, total in seen} == {len(CHECKS)}


def test_a_reset_with_derived_leaves_tombstones_and_no_violation(rig: Rig) -> None:
    # Session 1 said everything first, so its revisions are where the facts begin.
    Memory.from_defaults("anna-1", user_id="anna", database_url=rig.url).reset(derived=True)
    report = verify(rig.database, deep=True)
    assert report.violations == ()
    assert report.tombstones > 0


STEPS = st.sampled_from(["say", "say again", "put", "flush", "reset", "forget", "consume", "consume some"])


@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 2)), min_size=5, max_size=25))
@examples(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_operations_in_any_order_verify_clean(rig: Rig, steps: list[tuple[str, int]]) -> None:
    """Three sessions, two of one user; nothing that the library does may look like a violation."""
    run = uuid4().hex
    users = (f"u-{run}", f"u-{run}", None)
    memories = [
        Memory.from_defaults(f"{run}-{at}", user_id=user, database_url=rig.url)
        for at, user in enumerate(users)
    ]
    for number, (step, which) in enumerate(steps):
        memory = memories[which]
        if step in ("say", "say again"):
            say(memory, "I live in Kotor with my cat" if step == "say again" else f"I own {number} red boats")
        elif step == "put":
            memory.put({"role": "user", "content": f"note {number}"})
        elif step == "flush":
            memory.flush()
        elif step in ("reset", "forget"):
            memory.reset(derived=step == "forget")
        else:
            stages = ["extract", "summary"] if step == "consume some" else None
            drain_everything(rig.database, rig.url, rig.settings, *([stages] if stages else []))
        assert [violation.sentence for violation in verify(rig.database, deep=True).violations] == []


def test_a_running_system_verifies_clean(
    database: Database,
    database_url: str,
    settings: Settings,
    make_memory: MakeMemory,
    model_server: ModelServer,
) -> None:
    # The existing memory was derived by a model server, and so is the rest.
    settings = settings.model_copy(update={"openai_base_url": model_server.base_url})
    runner = BackgroundRunner(database, prepare_stages(database, settings), settings)
    runner.start()
    reports: list[Report] = []
    try:
        memories = [make_memory(user_id="kim") for _ in range(3)] + [make_memory() for _ in range(3)]
        for number in range(30):
            for memory in memories:
                say(memory, f"I have {number} brothers and I live in street {number}")
            if number % 10 == 9:
                memories[number % 4].reset(derived=number > 20)
            reports.append(verify(database))
        wait_until(lambda: nothing_due(database_url), timeout=30, what="the backlog to be done")
        reports.append(verify(database, deep=True))
    finally:
        runner.stop()
    assert [violation.sentence for report in reports for violation in report.violations] == []
    assert any(report.pending for report in reports), "it looked while there was work"
    assert reports[-1].pending == 0


def test_sessions_that_were_made_up_verify_clean(database: Database, database_url: str) -> None:
    """As ``make soak`` makes them up, which measures how long a look at many takes."""
    fill(database_url, 20)
    report = verify(database)
    assert report.violations == ()
    assert report.messages > 10_000


def test_the_command_exits_with_0_or_1_and_names_violations(database_url: str) -> None:
    clean = run_here("verify", on=database_url)
    assert (clean.code, clean.err) == (0, "")
    assert "no violation" in clean.out and "\x1b" not in clean.out
    break_it(database_url, "message_missing")
    broken = run_here("verify", "--session", "anna-1", on=database_url)
    assert broken.code == 1
    assert "message_missing: Messages 3 to 4 of session 'anna-1' are missing" in broken.out
    report = Report.model_validate_json(run_here("verify", "--json", on=database_url).out)
    assert {"message_missing", "event_count_wrong"} <= {violation.kind for violation in report.violations}
    schema = json.loads(run_here("verify", "--json-schema", on=database_url).out)
    assert {"messages", "events", "violations"} <= set(schema["required"])
    unknown = run_here("verify", "--session", "nobody", on=database_url)
    assert unknown.code == 1 and unknown.err.startswith("strandline: Session 'nobody' does not exist")


def test_verify_writes_nothing_and_waits_for_no_lock(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as holder:
        for table in ("session", "lane", "due", "receipt"):
            holder.execute(f"SELECT FROM strandline.{table} FOR UPDATE".encode())
        assert verify(database).violations == ()
    assert due_work(database_url) == 3
