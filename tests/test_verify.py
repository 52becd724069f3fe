"""Verify: clean whatever the pipeline did, and naming whatever somebody broke in the tables by hand."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from strandline import Memory
from strandline.assembly import prepare_stages
from strandline.deploy.stack import EmbeddedStack
from strandline.pipelines.verification import CHECKS, SENTENCES, Report, verify
from strandline.schemas.connections import ConnectionOptions
from strandline.schemas.database import Database
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import Settings, load_settings
from strandline.workers.background import BackgroundRunner
from tests.conftest import TEMPLATE, MakeMemory, nothing_due, rows_of, wait_until
from tests.draining import drain_everything
from tests.model_server import ModelServer, Raw, RecordedRequest

POISON = "zyzzyva"
MOVED = "Oslo is where I live now"
MANY_SESSIONS = 200


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
    name = f"history_{uuid4().hex}"
    url = stack.database_url
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        with pytest.MonkeyPatch.context() as environment, ModelServer() as server:
            environment.setenv("OPENAI_BASE_URL", server.base_url)
            environment.setenv("OPENAI_API_KEY", "unused")
            environment.setenv("STRANDLINE_EMBEDDED", "never")
            server.behave(responder=answer)
            live_through(url.replace("/postgres", f"/{name}", 1))
        yield name
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def live_through(url: str) -> None:
    """Two sessions of one user, one that was reset, one with a hole, and one that nobody consumed."""
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
    say(hole, f"a {POISON} went by")
    say(hole, "and a boat")
    drain_everything(database, url, settings)
    waiting = Memory.from_defaults("waiting", namespace="elsewhere", database_url=url)
    say(waiting, "nobody has read this")
    waiting.put({"role": "user", "content": "nor flushed this"})
    for memory in (*anna, reset, hole, waiting):
        memory.close()
    database.close()


def say(memory: Memory, text: str) -> None:
    """A turn, as a flush event of its own."""
    memory.put_messages(
        [{"role": "user", "content": text}, {"role": "assistant", "content": "Tell me more."}]
    )
    memory.flush(all=True)


@pytest.fixture
def database_url(stack: EmbeddedStack, history: str) -> Iterator[str]:
    """That history in a database of the test's own."""
    name = f"t_{uuid4().hex}"
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {history}")
        yield stack.database_url.replace("/postgres", f"/{name}", 1)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_everything_that_happened_is_accounted_for(database: Database) -> None:
    report = verify(database, deep=True)
    assert report.violations == ()
    assert (report.sessions, report.messages, report.events) == (5, 1 + 6 * 2 + 2 + 3 * 2 + 2 * 2 + 3, 13)
    # The reset came before anyone had taken up what was said before it.
    assert (report.pending, report.voids, report.holes, report.dropped) == (3, 3, 1, 0)
    assert report.applications == (13 - 1) * 4 - 1 - 4
    assert report.facts == 3 + 1 + 2 + 2


def event_of(session: str, number: int) -> str:
    """SQL for the id of a session's n-th event."""
    return (
        "(SELECT event_id FROM strandline.flush_event JOIN strandline.session USING (shard_key, session_key)"
        f" WHERE session_id = '{session}' ORDER BY from_seq LIMIT 1 OFFSET {number - 1})"
    )


FIRST, SECOND, LAST = event_of("anna-1", 1), event_of("anna-1", 2), event_of("anna-1", 3)
ANNA_1 = "(SELECT session_key FROM strandline.session WHERE session_id = 'anna-1')"
A_FACT = "(SELECT fact_id FROM strandline.fact WHERE text = 'I keep bees')"
OTHER = "gen_random_uuid()"

# How each kind comes about.  Some of these break more than one thing.
BREAKS = {
    "message_missing": f"DELETE FROM strandline.message WHERE session_key = {ANNA_1} AND seq IN (3, 4)",
    "message_stray": "INSERT INTO strandline.message SELECT shard_key, session_key, 999, incarnation, 'stray',"
    f" role, tokens, digest, envelope FROM strandline.message WHERE session_key = {ANNA_1} LIMIT 1",
    "window_tokens_wrong": "UPDATE strandline.session SET window_tokens = window_tokens + 1",
    "pinned_tokens_wrong": "UPDATE strandline.session SET pinned_tokens = pinned_tokens + 1",
    "marks_out_of_order": "ALTER TABLE strandline.session DROP CONSTRAINT session_marks_check;"
    " UPDATE strandline.session SET window_from = flushed_through + 2",
    "delivered_never": f"DELETE FROM strandline.flush_event WHERE event_id = {SECOND}",
    "delivered_twice": "UPDATE strandline.flush_event SET through_seq = through_seq + 1"
    f" WHERE event_id = {FIRST}",
    "event_beyond_marks": "UPDATE strandline.flush_event SET through_seq = through_seq + 1"
    f" WHERE event_id = {LAST}",
    "event_without_session": f"UPDATE strandline.flush_event SET session_key = {OTHER} WHERE event_id = {LAST}",
    "event_count_wrong": "UPDATE strandline.flush_event SET message_count = message_count + 1"
    f" WHERE event_id = {LAST}",
    "event_tokens_wrong": f"UPDATE strandline.flush_event SET tokens = tokens - 1 WHERE event_id = {LAST}",
    "work_missing": f"DELETE FROM strandline.receipt WHERE stage = 'vectors' AND event_id = {FIRST}",
    "work_ahead": f"DELETE FROM strandline.receipt WHERE stage = 'extract' AND event_id = {FIRST}",
    "due_without_event": f"UPDATE strandline.due SET event_id = {OTHER} WHERE stage = 'summary'",
    "due_and_received": "INSERT INTO strandline.receipt SELECT shard_key, event_id, generation_id, stage, 'void'"
    " FROM strandline.due",
    "receipt_without_event": f"UPDATE strandline.receipt SET event_id = {OTHER}"
    f" WHERE stage = 'summary' AND event_id = {FIRST}",
    "applied_without_batch": "UPDATE strandline.batch SET state = 'void' WHERE stage = 'summary'"
    f" AND state = 'applied' AND event_ids @> ARRAY[{FIRST}]",
    "dead_without_letter": "DELETE FROM strandline.dead_letter",
    "void_without_reset": "UPDATE strandline.receipt SET outcome = 'void', batch_id = NULL"
    f" WHERE stage = 'vectors' AND event_id = {FIRST}",
    "letter_without_receipt": "DELETE FROM strandline.receipt WHERE outcome = 'dead'",
    "open_batch_not_due": "UPDATE strandline.batch SET state = 'open' WHERE stage = 'summary'"
    f" AND state = 'applied' AND event_ids @> ARRAY[{FIRST}]",
    "applied_batch_without_receipt": "INSERT INTO strandline.batch SELECT shard_key, gen_random_uuid(),"
    " scope_key, generation_id, stage, state, lease_epoch, event_ids FROM strandline.batch"
    f" WHERE stage = 'summary' AND event_ids @> ARRAY[{FIRST}]",
    "candidate_unreceipted": f"UPDATE strandline.fact_candidate SET batch_id = {OTHER} WHERE event_id = {FIRST}",
    "candidate_not_folded": f"DELETE FROM strandline.fact_revision WHERE event_id = {SECOND}",
    "chunk_unreceipted": "INSERT INTO strandline.chunk SELECT shard_key, generation_id, session_key, from_seq,"
    f" piece + 1, through_seq, event_id, {OTHER}, length, lexemes FROM strandline.chunk"
    f" WHERE event_id = {FIRST}",
    "chunk_outside_event": f"UPDATE strandline.chunk SET from_seq = 1 WHERE event_id = {FIRST}",
    "state_unreceipted": f"UPDATE strandline.block_state SET batch_id = {OTHER} WHERE scope_key = {ANNA_1}",
    "state_doubled": "INSERT INTO strandline.block_state SELECT shard_key, scope_key, generation_id,"
    f" through_seq + 100, state, batch_id FROM strandline.block_state WHERE scope_key = {ANNA_1}",
    "fact_without_source": f"DELETE FROM strandline.fact_revision WHERE fact_id = {A_FACT} AND revision = 1",
    "fact_text_differs": rf"UPDATE strandline.fact SET fingerprint = '\x00' WHERE fact_id = {A_FACT}",
    "fact_ended_by_nothing": f"UPDATE strandline.fact SET invalidated_by = {OTHER} WHERE NOT live",
    "fact_doubled": "DROP INDEX strandline.fact_fingerprint; INSERT INTO strandline.fact SELECT shard_key,"
    f" generation_id, {OTHER}, text, fingerprint, lexemes, topics, said_by, about_date, said_at"
    f" FROM strandline.fact WHERE fact_id = {A_FACT}",
    "fact_fingerprint_wrong": f"UPDATE strandline.fact SET text = 'I keep wasps' WHERE fact_id = {A_FACT}",
    "revision_without_fact": f"DELETE FROM strandline.fact WHERE fact_id = {A_FACT}",
    "revision_without_event": f"UPDATE strandline.fact_revision SET event_id = {OTHER} WHERE fact_id = {A_FACT}",
    "revision_without_message": f"UPDATE strandline.fact_revision SET seqs = '{{999}}' WHERE fact_id = {A_FACT}",
    "revision_unreceipted": f"UPDATE strandline.fact_revision SET merge_batch_id = {OTHER}"
    f" WHERE fact_id = {A_FACT}",
    "revision_outside_event": f"UPDATE strandline.fact_revision SET seqs = '{{7}}' WHERE fact_id = {A_FACT}",
}


def test_there_is_a_break_for_every_kind() -> None:
    assert set(BREAKS) == set(SENTENCES)


@pytest.mark.parametrize("kind", BREAKS)
def test_what_is_broken_is_named(database: Database, database_url: str, kind: str) -> None:
    with psycopg.connect(database_url) as connection:
        for statement in BREAKS[kind].split(";"):
            assert connection.execute(statement.encode()).rowcount, "the break touched nothing"
    named = [violation for violation in verify(database, deep=True).violations if violation.kind == kind]
    assert named
    for violation in named:
        assert violation.sentence.endswith(".") and "None" not in violation.sentence
        if "session" in SENTENCES[kind] and kind not in ("event_without_session", "receipt_without_event"):
            assert repr(violation.session_id) in violation.sentence


def test_a_break_shows_where_it_is_and_nowhere_else(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(BREAKS["message_missing"].encode())
    for scope in ({}, {"namespace": "default"}, {"session_id": "anna-1"}):
        (missing,) = (v for v in verify(database, **scope).violations if v.kind == "message_missing")
        assert (missing.session_id, missing.from_seq, missing.through_seq) == ("anna-1", 3, 4)
    assert verify(database, session_id="hole").violations == ()
    assert verify(database, session_id="waiting", namespace="elsewhere").violations == ()
    elsewhere = verify(database, namespace="elsewhere")
    assert (elsewhere.violations, elsewhere.sessions, elsewhere.pending) == ((), 1, 3)


def test_an_unknown_session_is_an_error(database: Database) -> None:
    with pytest.raises(ConfigurationError, match="no session 'nobody' in namespace 'default'"):
        verify(database, session_id="nobody")


def test_progress_names_every_check(database: Database) -> None:
    seen: list[tuple[str, int, int]] = []
    verify(database, progress=lambda name, number, total: seen.append((name, number, total)))
    assert [(name, number) for name, number, _total in seen] == [
        (name, number) for number, name in enumerate(CHECKS.values(), 1)
    ]
    assert {total for _name, _number, total in seen} == {len(CHECKS)}


def test_a_reset_with_derived_leaves_tombstones_and_no_violation(
    database: Database, database_url: str, settings: Settings
) -> None:
    # Session 1 said everything first, so its revisions are where the facts begin.
    Memory.from_defaults("anna-1", user_id="anna", database_url=database_url).reset(derived=True)
    report = verify(database, deep=True)
    assert report.violations == ()
    assert report.tombstones > 0


STEPS = st.sampled_from(["say", "say again", "put", "flush", "reset", "forget", "consume", "consume some"])


@given(steps=st.lists(st.tuples(STEPS, st.integers(0, 2)), min_size=5, max_size=25))
@examples(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_done_in_whatever_order_verifies_clean(
    database: Database, database_url: str, settings: Settings, steps: list[tuple[str, int]]
) -> None:
    """Three sessions, two of one user; nothing that the library does may look like a violation."""
    run = uuid4().hex
    users = (f"u-{run}", f"u-{run}", None)
    memories = [
        Memory.from_defaults(f"{run}-{at}", user_id=user, database_url=database_url)
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
            drain_everything(database, database_url, settings, *([stages] if stages else []))
        assert [violation.sentence for violation in verify(database, deep=True).violations] == []


def test_a_running_system_verifies_clean(
    database: Database, database_url: str, settings: Settings, make_memory: MakeMemory
) -> None:
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


def fill(database_url: str, sessions: int) -> None:
    """Sessions of 500 messages as if flushed every 25 and consumed, of which ten are one chunk."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in FILL:
            connection.execute(statement.encode(), {"sessions": sessions})
        connection.execute("ANALYZE")


EVENTS = "strandline.flush_event e JOIN strandline.session s USING (shard_key, session_key)"
FILL = (
    "INSERT INTO strandline.session (shard_key, session_key, next_seq, window_from, flushed_through,"
    " window_tokens, token_limit, flush_at_tokens, token_flush_size, namespace, session_id, tokenizer, pipelines)"
    " SELECT md5('o' || n)::uuid, md5('s' || n)::uuid, 501, 476, 475, 500, 3000, 2000, 500, 'many', 's' || n,"
    " 'o200k_base', '{facts,summary,vectors}' FROM generate_series(1, %(sessions)s) AS n",
    "INSERT INTO strandline.message (shard_key, session_key, seq, incarnation, id, role, tokens, digest,"
    " envelope, created_at) SELECT shard_key, session_key, seq, incarnation, 'm' || seq, 'user', 20, '\\x00',"
    ' \'{"content": "what somebody said that is about as long as most of what people say in a chat"}\', now()'
    " FROM strandline.session, generate_series(1, 500) AS seq WHERE namespace = 'many'",
    "INSERT INTO strandline.flush_event (shard_key, session_key, from_seq, through_seq, event_id, incarnation,"
    " cause, message_count, tokens, version) SELECT shard_key, session_key, n * 25 + 1, n * 25 + 25,"
    " gen_random_uuid(), incarnation, 'threshold', 25, 500, 1"
    " FROM strandline.session, generate_series(0, 18) AS n WHERE namespace = 'many'",
    "INSERT INTO strandline.batch (shard_key, batch_id, scope_key, generation_id, stage, state, lease_epoch,"
    " event_ids) SELECT e.shard_key, gen_random_uuid(), CASE w.stage WHEN 'merge' THEN e.shard_key ELSE"
    " e.session_key END, g.generation_id, w.stage, 'applied', 1, ARRAY[e.event_id]"
    f" FROM {EVENTS} CROSS JOIN (VALUES ('facts', 'extract'), ('facts', 'merge'), ('summary', 'summary'),"
    " ('vectors', 'vectors')) AS w (pipeline, stage) JOIN strandline.generation g USING (pipeline)"
    " WHERE s.namespace = 'many'",
    "INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome, batch_id)"
    " SELECT b.shard_key, b.event_ids[1], b.generation_id, b.stage, 'applied', b.batch_id"
    " FROM strandline.batch b JOIN strandline.session s USING (shard_key) WHERE s.namespace = 'many'",
    "INSERT INTO strandline.chunk SELECT e.shard_key, b.generation_id, e.session_key, e.from_seq + n * 2, 0,"
    " e.from_seq + n * 2 + 1, e.event_id, b.batch_id, 9, 'somebody:1 said:2 chat:3'::tsvector,"
    " array_fill(0.0625, ARRAY[256])::vector::halfvec FROM strandline.batch b JOIN strandline.flush_event e"
    " ON e.shard_key = b.shard_key AND e.event_id = b.event_ids[1] AND b.stage = 'vectors'"
    " JOIN strandline.session s ON s.session_key = e.session_key AND s.namespace = 'many',"
    " generate_series(0, 11) AS n",
    "INSERT INTO strandline.block_state (shard_key, scope_key, generation_id, through_seq, state, batch_id)"
    ' SELECT b.shard_key, b.scope_key, b.generation_id, e.through_seq, \'{"text": "so far"}\', b.batch_id'
    " FROM strandline.batch b JOIN strandline.flush_event e ON e.shard_key = b.shard_key"
    " AND e.event_id = b.event_ids[1] AND b.stage = 'summary' JOIN strandline.session s"
    " ON s.session_key = e.session_key AND s.namespace = 'many'",
    "INSERT INTO strandline.fact_candidate (shard_key, generation_id, event_id, ordinal, session_key, batch_id,"
    " text, seqs, topics, said_at, model, prompt_hash) SELECT b.shard_key, b.generation_id, e.event_id, n,"
    " e.session_key, b.batch_id, 'fact ' || n, ARRAY[e.from_seq + n], '{}', now(), 'm', 'p'"
    " FROM strandline.batch b JOIN strandline.flush_event e ON e.shard_key = b.shard_key"
    " AND e.event_id = b.event_ids[1] AND b.stage = 'extract' JOIN strandline.session s"
    " ON s.session_key = e.session_key AND s.namespace = 'many', generate_series(0, 2) AS n",
    "INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics, said_at)"
    " SELECT shard_key, generation_id, md5(event_id::text || ordinal)::uuid, text || event_id,"
    " decode(md5(event_id::text || ordinal), 'hex'), '{fact}', '{}', now() FROM strandline.fact_candidate c"
    " WHERE c.model = 'm'",
    "INSERT INTO strandline.fact_revision (shard_key, generation_id, fact_id, revision, operation, text,"
    " fingerprint, lexemes, event_id, session_key, seqs, extract_batch_id, merge_batch_id, model, prompt_hash)"
    " SELECT c.shard_key, c.generation_id, md5(c.event_id::text || c.ordinal)::uuid, 1, 'add', c.text,"
    " decode(md5(c.event_id::text || c.ordinal), 'hex'), '{fact}', c.event_id, c.session_key, c.seqs,"
    " c.batch_id, r.batch_id, 'm', 'p' FROM strandline.fact_candidate c JOIN strandline.receipt r"
    " ON r.shard_key = c.shard_key AND r.event_id = c.event_id AND r.stage = 'merge' WHERE c.model = 'm'",
    # The window of 25 messages at 20 tokens each, as the session says.
    "UPDATE strandline.session SET window_tokens = 500 WHERE namespace = 'many'",
)


def test_a_hundred_thousand_messages_take_seconds(database: Database, database_url: str) -> None:
    """A tenth of the million that may take a minute, on a machine that does other things as well."""
    fill(database_url, MANY_SESSIONS)
    began = time.monotonic()
    report = verify(database)
    assert time.monotonic() - began < 6.0
    assert report.violations == ()
    assert report.messages > 100_000


def command(database_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``strandline verify`` as a process."""
    return subprocess.run(
        [sys.executable, "-m", "strandline", "verify", "--database-url", database_url, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command_exits_with_0_or_1_and_names_violations(database_url: str) -> None:
    clean = command(database_url)
    assert (clean.returncode, clean.stderr) == (0, "")
    assert "no violation" in clean.stdout and "\x1b" not in clean.stdout
    with psycopg.connect(database_url) as connection:
        connection.execute(BREAKS["message_missing"].encode())
    broken = command(database_url, "--session", "anna-1")
    assert broken.returncode == 1
    assert "message_missing: Messages 3 to 4 of session 'anna-1' are missing" in broken.stdout
    report = Report.model_validate_json(command(database_url, "--json").stdout)
    assert {"message_missing", "event_count_wrong"} <= {violation.kind for violation in report.violations}
    schema = json.loads(command(database_url, "--json-schema").stdout)
    assert {"messages", "events", "violations"} <= set(schema["required"])
    unknown = command(database_url, "--session", "nobody")
    assert unknown.returncode == 1 and unknown.stderr.startswith("strandline: There is no session")


def test_it_writes_nothing_and_waits_for_nobody(database: Database, database_url: str) -> None:
    with psycopg.connect(database_url) as holder:
        for table in ("session", "lane", "due", "receipt"):
            holder.execute(f"SELECT FROM strandline.{table} FOR UPDATE".encode())
        assert verify(database).violations == ()
    assert rows_of(database_url, "SELECT count(*) FROM strandline.due") == [(3,)]
