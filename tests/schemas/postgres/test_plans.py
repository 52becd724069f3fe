"""Query plans on a full database: what runs per put, per hint and per tick never reads a big table whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from strandline import Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.producers.search.message_filter import ALL_MESSAGES
from strandline.schemas.postgres.statements import (
    compile_statements,
    function_source,
    statements,
    with_fragments,
)
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import STAGES
from tests.support.servers.databases import temporary_database
from tools.queries.headers import read_all

# 2,000 owners with a session each: 50 messages, 25 due rows in one lane, 10 batches and 10 facts; and one
# owner with a long history.
FILL = """
CREATE TEMP TABLE owner AS
    SELECT n, md5('owner' || n)::uuid AS shard_key, md5('session' || n)::uuid AS session_key,
        md5('incarnation' || n)::uuid AS incarnation
    FROM generate_series(%(first)s::integer, %(last)s::integer) AS n;
UPDATE owner SET shard_key = %(shard_key)s, session_key = %(session_key)s WHERE n = 1;
INSERT INTO strandline.session_owner (shard_key, namespace, session_id, owner_key)
    SELECT session_key, 'default', 's' || n, shard_key FROM owner;
INSERT INTO strandline.session (shard_key, session_key, incarnation, next_seq, token_limit, flush_at_tokens,
        token_flush_size, max_window_messages, max_window_bytes, namespace, session_id, tokenizer, pipelines,
        window_from, flushed_through)
    SELECT shard_key, session_key, incarnation, 51, 3000, 2100, 300, 2000, 16000000, 'default', 's' || n,
        'o200k_base', '{facts,summary,vectors}', 41, 40 FROM owner;
INSERT INTO strandline.message (shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest,
        envelope, created_at)
    SELECT shard_key, session_key, seq, incarnation, 'm' || seq, 'user', 10, 12, '\\x00', '{"c": "x"}', now()
    FROM owner, generate_series(1, 50) AS seq;
INSERT INTO strandline.flush_event (shard_key, session_key, from_seq, through_seq, event_id, incarnation,
        cause, message_count, tokens, version)
    SELECT shard_key, session_key, seq, seq, md5(session_key::text || seq)::uuid, incarnation, 'manual', 1,
        10, 1 FROM owner, generate_series(1, 25) AS seq;
INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key,
        event_id, incarnation, tokens, namespace, ring_at)
    SELECT e.shard_key, e.session_key, g.generation_id, g.entry_stage, e.from_seq, e.through_seq,
        e.session_key, e.event_id, e.incarnation, 10, 'default', now() - interval '1 minute' * random()
    FROM owner JOIN strandline.flush_event e USING (shard_key) CROSS JOIN strandline.generation g
    WHERE g.pipeline = 'summary';
INSERT INTO strandline.lane (shard_key, scope_key, generation_id, stage, holder, lease_epoch)
    SELECT shard_key, scope_key, generation_id, stage,
        CASE WHEN random() < 0.01 THEN md5(shard_key::text)::uuid END, 1
    FROM (SELECT DISTINCT d.shard_key, d.scope_key, d.generation_id, d.stage
        FROM owner JOIN strandline.due d USING (shard_key)) AS lanes;
INSERT INTO strandline.batch (shard_key, batch_id, scope_key, generation_id, stage, state, lease_epoch,
        event_ids)
    SELECT l.shard_key, gen_random_uuid(), l.scope_key, l.generation_id, l.stage, 'applied', 1,
        ARRAY[gen_random_uuid()] FROM owner JOIN strandline.lane l USING (shard_key), generate_series(1, 10);
INSERT INTO strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics, said_at)
    SELECT o.shard_key, g.generation_id, gen_random_uuid(), 'fact ' || t.n,
        ('\\x' || md5(random()::text))::bytea,
        ARRAY['fact', t.n::text], '{}', now()
    FROM owner o CROSS JOIN generate_series(1, 10) AS t (n) CROSS JOIN strandline.generation g
    WHERE g.pipeline = 'facts';
INSERT INTO strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq, event_id,
        batch_id, length, lexemes)
    SELECT o.shard_key, g.generation_id, o.session_key, t.n, 0, t.n, gen_random_uuid(), gen_random_uuid(), 2,
        'chunk:1 x:2' FROM owner o CROSS JOIN generate_series(1, 20) AS t (n)
    CROSS JOIN strandline.generation g WHERE g.pipeline = 'vectors';
INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)
    SELECT shard_key, session_key, 'idle', now() + interval '1 hour' * (random() - 0.01) FROM owner;
INSERT INTO strandline.receipt (shard_key, event_id, generation_id, stage, outcome)
    SELECT e.shard_key, e.event_id, g.generation_id, 'vectors', 'applied'
    FROM owner JOIN strandline.flush_event e USING (shard_key) CROSS JOIN strandline.generation g
    WHERE g.pipeline = 'vectors';
"""
DUE_IN_LANE = with_fragments(
    "SELECT * FROM @due_in_lane("
    "%(shard_key)s, %(scope_key)s, %(generation_id)s, %(stage)s, %(limit)s) AS due_in_lane"
).encode()
# Dozens for the most part.  Ringing rewrites its two hundred rows and their index entries; a search reads the
# pieces and facts of its scope.
PLANNED_INSIDE = (
    "ring_due",
    "bring_rings_forward",
    "claim_lane",
    "take_turn",
    "renew_lane",
    "store_answer",
    "search_chunks",
)
MOST_PAGES = {"ring_due": 10_000, "search_chunks": 1_000}
BIG = {"message", "due", "lane", "batch", "fact", "chunk", "session", "flush_event", "receipt", "watch"}
# Partitions have the options of storage, and divided tables none.
STORED_TABLES = """
SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'strandline'::regnamespace
"""
KEYS = identify_session("default", "s1", None)


@pytest.fixture(scope="module")
def full(stack: EmbeddedStack) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database with some of everything, analysed."""
    with (
        temporary_database(stack.database_url) as url,
        psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection,
    ):
        fill(connection, 1, 2_000)
        connection.execute("VACUUM ANALYZE")
        yield connection


def fill(connection: psycopg.Connection[Any], first: int, last: int) -> None:
    keys = {"shard_key": KEYS.shard_key, "session_key": KEYS.session_key}
    connection.execute(FILL.encode(), keys | {"first": first, "last": last})
    connection.execute("DROP TABLE owner")


def session_lane(connection: psycopg.Connection[Any], pipeline: str = "summary") -> dict[str, Any]:
    ((generation_id,),) = connection.execute(
        "SELECT generation_id FROM strandline.generation WHERE pipeline = %s", (pipeline,)
    ).fetchall()
    return {
        "shard_key": KEYS.shard_key,
        "scope_key": KEYS.session_key,
        "session_key": KEYS.session_key,
        "generation_id": generation_id,
        "stage": pipeline,
    }


def parameters(connection: psycopg.Connection[Any], name: str) -> dict[str, Any]:
    """The parameters that the statement is run with."""
    lane = session_lane(connection)
    lease = {"worker_id": UUID(int=1), "lease_epoch": 1}
    terms = {"dead_after_seconds": 5.0, "deadline_seconds": 600.0}
    new_batch = {"batch_id": uuid4(), "token_budget": 8_000, "max_events": 64}
    ((event_id, batch_id),) = connection.execute(
        "SELECT (SELECT event_id FROM strandline.due WHERE shard_key = %(shard_key)s LIMIT 1),"
        " (SELECT batch_id FROM strandline.batch WHERE shard_key = %(shard_key)s LIMIT 1)",
        lane,
    ).fetchall()
    events = {"event_ids": [event_id], "batch_id": batch_id, "outcome": "applied"}
    match name:
        case "claim_lane":
            return lane | lease | terms | new_batch
        case "take_turn":
            at = {
                "after": "",
                "namespaces": [],
                "owners": [],
                "skipped_generations": [],
                "precedences": [0, 1],
            }
            return lane | lease | terms | new_batch | at
        case "renew_lane":
            way = {
                "gives_way": True,
                "skipped_generations": [],
                "namespace": "default",
                "has_lane_limit": False,
            }
            way["has_budget"] = False
            return lane | lease | {"lease_epoch": 2} | terms | new_batch | way
        case "ring_due":
            return {"stage": "summary", "limit": 200}
        case "bring_rings_forward":
            return {"stages": list(STAGES), "limit": 200}
        case "orphaned_lanes":
            return {"stages": list(STAGES), "limit": 200, "dead_after_seconds": 5.0}
        case "replay_lanes":
            return terms | {"stages": list(STAGES), "from_shard": UUID(int=0), "limit": 64}
        case "ripe_watches":
            return {"limit": 200}
        case "release_undrained_lanes":
            arrays: dict[str, Any] = {"shard_keys": [], "scope_keys": [], "generation_ids": [], "stages": []}
            return lease | arrays | {"older_than_seconds": 1.0}
        case "related_facts":
            facts = session_lane(connection, "facts")
            words = {"lexemes": ["fact"], "numbers": [1], "weights": [1.0], "meaning": 10.0}
            words |= {"fingerprints": [b"x"], "limit": 60}
            return facts | words | {"sessions": [UUID(int=0)], "seqs": [1], "cited": [1]}
        case "read":
            known = {"known_from": 1, "known_through": 41, "known_seal": "x", "known_facts": None}
            blocks = {"pipelines": ["facts", "summary", "vectors"], "tail_rows": 100, "tail_bytes": 10**6}
            blocks |= {"max_facts": 50}
            return lane | blocks | known
        case "head_messages":
            return lane
        case "put_one":
            unset = dict.fromkeys(("metadata", "created_at", "calls", "answers", "labels"))
            message = {
                "id": "new",
                "role": "user",
                "tokens": 10,
                "bytes": 12,
                "digest": b"x",
                "envelope": '{"content": "x"}',
                "data_key": 0,
            }
            return lane | message | unset
        case "history":
            return lane | {"after_seq": 10, "page_size": 500, "page_bytes": 4_000_000}
        case "search_chunks":
            vectors = session_lane(connection, "vectors")
            query = {"embedding": None, "lexemes": ["x"]}
            bounds = {"similarity_cutoff": 0.0, "visible_from": 41, "top_k": 5, "beside": 1}
            facts = session_lane(connection, "facts")["generation_id"]
            kinds = {"messages": True, "facts_generation_id": facts, "facts_shown": []}
            kinds |= {
                "facts_alone_id": facts,
                "top_facts": 5,
                "part_of": None,
                "at_once": 100,
                "pieces_since": 0,
            }
            kinds |= {"through_session": UUID(int=0), "through_seq": 0, "through_piece": 0}
            wanted = {"topics": None, "agent_id": None, "team_id": None}
            aim = {
                "is_own": False,
                "names": [],
                "dates_from": [],
                "dates_through": [],
                "dates_fit": [],
                "words": 0,
            }
            return vectors | query | bounds | kinds | wanted | aim | ALL_MESSAGES.params(UUID(int=0))
        case "facts_by_words":
            facts = session_lane(connection, "facts")
            wanted = {"topics": None, "agent_id": None, "team_id": None}
            words = {"facts_generation_id": facts["generation_id"], "lexemes": ["x"], "top_facts": 5}
            return facts | wanted | words
        case "unsearched_messages":
            vectors = session_lane(connection, "vectors") | {"scope_key": None, "excluded_session": None}
            vectors |= ALL_MESSAGES.params(UUID(int=0))
            return vectors | {"sessions": 20, "messages": 1_000, "page_bytes": 4_000_000}
        case "owners_with_facts":
            return {"namespace": "default", "after": UUID(int=0), "limit": 20}
        case "happenings":
            ((since,),) = connection.execute(
                "SELECT applied_at FROM strandline.receipt ORDER BY applied_at DESC OFFSET 9 LIMIT 1"
            ).fetchall()
            place = {"since": since, "after_event": UUID(int=0), "after_generation": 0}
            return place | {
                "namespaces": ["default"],
                "session_key": None,
                "until": since + timedelta(1),
                "limit": 1_000,
            }
        case "range_messages":
            return lane | {"from_seq": 1, "through_seq": 10}
        case "batch_messages":
            keys = [lane["session_key"]] * 3
            return lane | {"session_keys": keys, "from_seqs": [1, 5, 9], "through_seqs": [4, 8, 12]}
        case "store_answer":
            answer = {"step": "s", "model": "m", "prompt_hash": "p", "body": b"x", "seconds": 0.1}
            return lane | lease | events | answer | {"input_tokens": 1, "output_tokens": 1, "cost_usd": None}
        case "close_batch":
            return lane | events | {"state": "applied"}
        case "release_lane":
            waiting = {"postponements": 0, "failures": 0, "last_error": None, "wait_seconds": 0.0}
            return lane | lease | waiting
    return lane | lease | events | terms


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def table_of(node: dict[str, Any]) -> str:
    """The table that a node reads, also if it reads a partition of it."""
    return re.sub(r"_p[0-9]+$", "", node.get("Relation Name", ""))


@pytest.mark.parametrize(
    "name",
    [
        "claim_lane",
        "take_turn",
        "lock_lane",
        "renew_lane",
        "release_undrained_lanes",
        "lane_has_work",
        "batch_events",
        "lock_batch",
        "finish_batch",
        "store_answer",
        "stored_answer",
        "close_batch",
        "range_messages",
        "batch_messages",
        "related_facts",
        "ring_due",
        "orphaned_lanes",
        "replay_lanes",
        "ripe_watches",
        "plan_window",
        "read",
        "history",
        "search_chunks",
        "facts_by_words",
        "unsearched_messages",
        "owners_with_facts",
        "happenings",
        "used_pipelines",
    ],
)
def test_no_big_table_is_read_whole(name: str, full: psycopg.Connection[Any]) -> None:
    sql = statements("strandline")[name]
    wanted = parameters(full, name) | ({"step": "s"} if name == "stored_answer" else {})
    with full.transaction(force_rollback=True):
        make_ready(full, name, wanted)
        if name in PLANNED_INSIDE:
            # A function's own statements are planned when a connection first calls it.
            with full.transaction(force_rollback=True):
                full.execute(sql.encode(), wanted)
        explained = full.execute(
            b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql.encode(), wanted
        ).fetchall()
    plan = explained[0][0][0]["Plan"]
    scanned = {table_of(node) for node in nodes(plan) if node["Node Type"] == "Seq Scan"}
    assert scanned & BIG == set(), f"{name} scans {scanned}"
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert pages < MOST_PAGES.get(name, 500), f"{name} touches {pages} pages"


def make_ready(connection: psycopg.Connection[Any], name: str, wanted: dict[str, Any]) -> None:
    """Let the worker have the lane where the statement is about one that is held."""
    if name in ("renew_lane", "store_answer"):
        claim = statements("strandline")["claim_lane"].encode()
        connection.execute(claim, wanted | parameters(connection, "claim_lane"))
    if name == "store_answer":
        ((batch_id,),) = connection.execute("SELECT batch_id FROM strandline.batch WHERE state = 'open'")
        ((epoch,),) = connection.execute(
            "SELECT lease_epoch FROM strandline.lane WHERE holder = %s", (UUID(int=1),)
        )
        wanted |= {"batch_id": batch_id, "lease_epoch": epoch}


# Statements whose plan a connection of a producer or a worker keeps, made for no particular keys.
KEPT = [
    "put_one",
    "read",
    "history",
    "unsearched_messages",
    "lock_lane",
    "release_lane",
    "lane_has_work",
    "lock_batch",
    "finish_batch",
    "close_batch",
    "range_messages",
    "batch_messages",
    "related_facts",
    "batch_events",
    "replay_lanes",
    "ripe_watches",
    "owners_with_facts",
    "happenings",
]


def kept_plan(name: str, connection: psycopg.Connection[Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The plan of a statement as kept connections make it (``ConnectionOptions.planned_once``)."""
    statement = compile_statements("strandline")[name]
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        connection.execute("SET LOCAL enable_seqscan = off")
        connection.execute(b"PREPARE kept AS " + statement)
        values = [wanted[field.name] for field in read_all()[name].params]
        execute = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE kept ({', '.join(['%s'] * len(values))})"
        ((explained,),) = connection.execute(execute.encode(), values).fetchall()
        connection.execute("DEALLOCATE kept")
    plan: dict[str, Any] = explained[0]["Plan"]
    return plan


def looks_up_by_keys(plan: dict[str, Any]) -> bool:
    """Whether nothing big is read but by an index that is told where."""
    scans = [node for node in nodes(plan) if "Scan" in node["Node Type"] and table_of(node) in BIG]
    return bool(scans) and all(
        "Index Cond" in node or node["Node Type"] in ("Bitmap Heap Scan", "Tid Scan") for node in scans
    )


@pytest.mark.parametrize("name", KEPT)
def test_a_plan_that_is_kept_reads_no_big_table_whole(name: str, full: psycopg.Connection[Any]) -> None:
    plan = kept_plan(name, full, parameters(full, name))
    assert looks_up_by_keys(plan)
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert pages < MOST_PAGES.get(name, 500), f"{name} touches {pages} pages"


@pytest.fixture(scope="module")
def empty(stack: EmbeddedStack) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database without rows, analysed; each plan is made and dropped in its test."""
    with (
        temporary_database(stack.database_url) as url,
        psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection,
    ):
        connection.execute("VACUUM ANALYZE")
        yield connection


@pytest.mark.parametrize("name", KEPT)
def test_a_plan_made_while_all_was_empty_can_be_kept(
    name: str, full: psycopg.Connection[Any], empty: psycopg.Connection[Any]
) -> None:
    """As in a process that began before the backlog did."""
    assert looks_up_by_keys(kept_plan(name, empty, parameters(full, name)))


@pytest.mark.parametrize("name", ["read", "head_messages"])
def test_a_plan_made_while_all_was_empty_looks_at_the_log_by_number(
    name: str, full: psycopg.Connection[Any], empty: psycopg.Connection[Any]
) -> None:
    """However long the log is: in a plan without statistics a bound in a join is no bound of the index."""
    plan = kept_plan(name, empty, parameters(full, name))
    looks = [node["Index Cond"] for node in nodes(plan) if node.get("Index Name") == "message_pkey"]
    assert looks
    assert [look for look in looks if "seq" not in look] == []


# (The plans of a claim were made in an empty database, in the test below.)
PLANNED_EARLY = [name for name in PLANNED_INSIDE if name not in ("claim_lane", "take_turn")]


@pytest.fixture(scope="module")
def grown(stack: EmbeddedStack) -> Iterator[dict[str, psycopg.Connection[Any]]]:
    """Connections to a database of many owners, each of which ran its statement while there was one."""
    with temporary_database(stack.database_url) as url, ExitStack() as stays:
        connections = {
            name: stays.enter_context(
                psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor)
            )
            for name in PLANNED_EARLY
        }
        first = connections[PLANNED_EARLY[0]]
        fill(first, 1, 1)
        first.execute("VACUUM ANALYZE")
        for (table,) in first.execute(STORED_TABLES).fetchall():
            first.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
        for name, connection in connections.items():
            connection.execute("SET plan_cache_mode = force_generic_plan")
            connection.execute("SET enable_seqscan = off")
            wanted = parameters(connection, name)
            with connection.transaction(force_rollback=True):
                make_ready(connection, name, wanted)
                assert connection.execute(statements("strandline")[name].encode(), wanted).fetchall()
        # Nothing is analysed from here on, so the plans stay.
        fill(first, 2, 2_000)
        yield connections


@pytest.mark.parametrize("name", PLANNED_EARLY)
def test_plans_that_a_function_made_while_there_was_one_owner_can_be_kept(
    name: str, grown: dict[str, psycopg.Connection[Any]]
) -> None:
    sql, connection = statements("strandline")[name].encode(), grown[name]
    wanted = parameters(connection, name)
    with connection.transaction(force_rollback=True):
        make_ready(connection, name, wanted)
        explained = connection.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, wanted)
        plan = explained.fetchall()[0][0][0]["Plan"]
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert pages < MOST_PAGES.get(name, 500), f"{name} touches {pages} pages"


# Of five tenants and a bit.
BACKLOG = """
INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key,
        event_id, incarnation, tokens, namespace)
    SELECT md5('owner' || n)::uuid, md5('session' || n)::uuid, g.generation_id, g.entry_stage, 1, 1,
        md5('session' || n)::uuid, gen_random_uuid(), gen_random_uuid(), 10, 'tenant ' || n / 10000
    FROM generate_series(1, 50000) AS n CROSS JOIN strandline.generation g WHERE g.pipeline = 'summary'
"""


def test_a_turn_is_found_by_its_index_in_a_backlog_that_came_after_the_plan(
    database_url: str, full: psycopg.Connection[Any]
) -> None:
    sql = statements("strandline")["take_turn"].encode()
    wanted = parameters(full, "take_turn")
    with psycopg.connect(database_url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("SET plan_cache_mode = force_generic_plan")
        assert connection.execute(sql, wanted).fetchall() == []
        connection.execute("ALTER TABLE strandline.due SET (autovacuum_enabled = off)")
        connection.execute(BACKLOG.encode())
        seen: list[str] = []
        for _turn in range(5):
            with connection.transaction(force_rollback=True):
                ((*_, namespace),) = connection.execute(
                    b"SELECT shard_key, namespace FROM strandline.next_lane_v1('summary', '{0,1}',"
                    b" %(after)s, '{}', '{}', '{}', %(worker_id)s, 5.0, NULL, 256)",
                    wanted,
                ).fetchall()
                explained = connection.execute(b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, wanted)
                ((plan,),) = explained.fetchall()
                counted = plan[0]["Plan"]
                # The first turn plans each statement, and reads catalogs for it.
                most = 100 if seen else 400
                assert counted["Shared Hit Blocks"] + counted["Shared Read Blocks"] < most
            seen.append(namespace)
            wanted["after"] = namespace
        assert seen == [f"tenant {number}" for number in range(5)]


def test_producers_plan_each_statement_once(make_memory: Callable[..., Memory]) -> None:
    memory = make_memory("s")
    for _time in range(20):
        memory.put({"role": "user", "content": "a fine day at the harbour"})
        memory.get()
    with memory._resources.database()._pool.connection() as connection:
        kept = "SELECT statement, generic_plans, custom_plans FROM pg_prepared_statements"
        plans = connection.execute(kept).fetchall()
    made = {
        name: sum(
            generic for text, generic, _ in plans if text in compile_statements("strandline")[name].decode()
        )
        for name in ("put_one", "read")
    }
    assert all(number >= 10 for number in made.values()), made
    assert sum(custom for *_, custom in plans) == 0


def ripe_work(stage: str) -> str:
    """The query that ``ring_due_v1`` goes through; EXPLAIN does not look into a function."""
    query = function_source("ring_due_v1", "strandline").split("FOR ripe IN")[1].split("LOOP")[0]
    variables = {"p_stage": f"'{stage}'", "p_limit": "200", "moment": "statement_timestamp()"}
    return re.sub(rf"\b({'|'.join(variables)})\b", lambda found: variables[found[1]], query)


@pytest.mark.parametrize(
    ("sql", "table", "column"),
    [
        (ripe_work("summary"), "due", "ring_at"),
        (statements("strandline")["ripe_watches"], "watch", "check_at"),
    ],
    ids=["due", "watch"],
)
def test_looking_for_what_is_not_there_yet_costs_nothing(
    sql: str, table: str, column: str, full: psycopg.Connection[Any]
) -> None:
    """Each worker looks every second, so work that waits for its time must not be read each time."""
    with full.transaction(force_rollback=True):
        full.execute(f"UPDATE strandline.{table} SET {column} = {column} + interval '2 hours'".encode())
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}".encode()
        plan = full.execute(explain, {"limit": 200}).fetchall()[0][0][0]["Plan"]
        assert sum(node.get("Rows Removed by Filter", 0) for node in nodes(plan)) == 0


def test_a_ring_looks_at_no_more_than_its_share(full: psycopg.Connection[Any]) -> None:
    with full.transaction(force_rollback=True):
        sql = statements("strandline")["ring_due"].encode()
        ((rung_at,),) = full.execute("SELECT clock_timestamp()").fetchall()
        rows = full.execute(sql, {"stage": "summary", "limit": 200}).fetchall()
        assert 1 <= len(rows) <= 200
        touched = "SELECT count(*) FROM strandline.due WHERE rings > 0"
        assert full.execute(touched).fetchall() == [(200,)]
        # Counted from the ring, and not from now, which on a slow machine is later than the shortest wait.
        soonest = "SELECT min(ring_at) - %s >= interval '1.5 seconds' FROM strandline.due WHERE rings > 0"
        assert full.execute(soonest, (rung_at,)).fetchall() == [(True,)]


def test_a_backlog_that_nobody_serves_stands_in_front_of_nobody(full: psycopg.Connection[Any]) -> None:
    with full.transaction(force_rollback=True):
        # All of it is ripe, and older than the one row of another stage.
        full.execute(
            "UPDATE strandline.due SET stage = 'vectors', ring_at = now() - interval '1 second'"
            " WHERE shard_key = %s AND from_seq = 1",
            (KEYS.shard_key,),
        )
        sql = f"EXPLAIN (ANALYZE, FORMAT JSON) {ripe_work('vectors')}".encode()
        plan = full.execute(sql).fetchall()[0][0][0]["Plan"]
        assert sum(node.get("Rows Removed by Filter", 0) for node in nodes(plan)) == 0
        full.execute(statements("strandline")["ring_due"].encode(), {"stage": "vectors", "limit": 200})
        rung = "SELECT stage FROM strandline.due WHERE rings > 0"
        assert full.execute(rung).fetchall() == [("vectors",)]


def test_batches_of_the_past_are_not_read_for_the_next_one(full: psycopg.Connection[Any]) -> None:
    """A lane that has been busy for years has as many applied batches; only split ones matter."""
    with full.transaction(force_rollback=True):
        full.execute(
            "INSERT INTO strandline.batch (shard_key, batch_id, scope_key, generation_id, stage, state,"
            " lease_epoch, event_ids) SELECT %(shard_key)s, gen_random_uuid(), %(scope_key)s,"
            " %(generation_id)s, %(stage)s, 'applied', 1, ARRAY[gen_random_uuid()]"
            " FROM generate_series(1, 5000)",
            session_lane(full),
        )
        full.execute("ANALYZE strandline.batch")
        sql = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + DUE_IN_LANE
        plan = full.execute(sql, session_lane(full) | {"limit": 64}).fetchall()[0][0][0]["Plan"]
        assert {node.get("Index Name") for node in nodes(plan)} >= {"batch_split"}
        # Of the table itself: what other tests took back lies in the others until they are vacuumed.
        read = [node for node in nodes(plan) if table_of(node) == "batch"]
        assert sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in read) < 20


def test_a_long_lane_is_batched_from_its_beginning(full: psycopg.Connection[Any]) -> None:
    rows = full.execute(DUE_IN_LANE, session_lane(full) | {"limit": 64}).fetchall()
    assert [row[1:] for row in rows] == [(10, False)] * 25
