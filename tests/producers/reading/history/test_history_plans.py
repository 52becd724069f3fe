"""On a hundred thousand messages of one session a filtered history touches what it gives, not the log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from strandline import Memory
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres.statements import compile_statements, statements
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.labels import label_of
from strandline.schemas.values.message import ROLES
from tests.schemas.postgres.test_migrations import whole_tables
from tests.schemas.postgres.test_plans import fill, nodes
from tests.support.servers.databases import temporary_database
from tools.queries.headers import read_all

LONG = identify_session("default", "long", None)
NUMBER = 100_000
START = datetime(2026, 1, 1, tzinfo=UTC)
RARE, COMMON = (label_of(LONG.session_key, "kind", kind) for kind in ("rare", "common"))

# One message a minute; of 10,000 one is a tool's, one a rare note's, and half are common notes.
MESSAGES = """
INSERT INTO strandline.session_owner (shard_key, namespace, session_id, owner_key)
    VALUES (%(directory_key)s, 'default', 'long', %(shard_key)s);
INSERT INTO strandline.session (shard_key, session_key, next_seq, token_limit, flush_at_tokens,
        token_flush_size, max_window_messages, max_window_bytes, namespace, session_id, tokenizer, pipelines,
        window_from, flushed_through)
    VALUES (%(shard_key)s, %(session_key)s, %(number)s + 1, 3000, 2100, 300, 2000, 16000000, 'default',
        'long', 'o200k_base', '{}', %(number)s - 9, %(number)s - 10);
INSERT INTO strandline.message (shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest,
        envelope, metadata, created_at, labels)
    SELECT %(shard_key)s, %(session_key)s, seq, s.incarnation, 'm' || seq,
        CASE WHEN seq %% 10000 = 7 THEN 'tool' WHEN seq %% 2 = 0 THEN 'user' ELSE 'assistant' END, 10, 400,
        '\\x00', json_build_object('content', repeat('words ', 60)),
        CASE WHEN seq %% 10000 = 1 THEN '{"kind": "rare"}' WHEN seq %% 2 = 0 THEN '{"kind": "common"}'
            END::json,
        %(start)s::timestamptz + interval '1 minute' * seq,
        CASE WHEN seq %% 10000 = 1 THEN ARRAY[%(rare)s::bigint]
            WHEN seq %% 2 = 0 THEN ARRAY[%(common)s::bigint] END
    FROM strandline.session s, generate_series(1, %(number)s::integer) AS seq
    WHERE s.shard_key = %(shard_key)s AND s.session_key = %(session_key)s;
"""


@pytest.fixture(scope="module")
def url(stack: EmbeddedStack) -> Iterator[str]:
    """A database with the long session among five hundred others."""
    with temporary_database(stack.database_url) as url:
        with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
            fill(connection, 1, 500)
            wanted = {"number": NUMBER, "start": START, "rare": RARE, "common": COMMON}
            connection.execute(MESSAGES.encode(), wanted | LONG.keys | {"directory_key": LONG.directory_key})
            connection.execute("VACUUM ANALYZE")
        yield url


ANY: dict[str, Any] = {
    "roles": list(ROLES),
    "since": None,
    "until": None,
    "labels": None,
    "clear_labels": None,
    "offset": 0,
}
LATER, SOON = START + timedelta(minutes=40_000), START + timedelta(minutes=40_050)

# What is asked for, what comes, the index that leads there, and the most pages that are touched.
CASES: list[tuple[str, dict[str, Any], int, str, int]] = [
    ("newest_seqs", {"limit": 10}, 10, "message_pkey", 20),
    ("recent_matches", {"limit": 10, "scan": 1_000, "labels": [COMMON]}, 10, "message_pkey", 150),
    ("matches_by_role", {"limit": 10, "roles": ["tool"]}, 10, "message_by_role", 20),
    ("matches_by_role", {"limit": 100, "since": LATER, "until": SOON}, 51, "message_by_role", 40),
    ("matches_by_role", {"limit": 9, "until": SOON, "roles": ["tool"]}, 5, "message_by_role", 20),
    ("matches_by_label", {"limit": 10, "labels": [RARE]}, 10, "message_by_label", 40),
    ("matches_by_label", {"limit": 9, "labels": [RARE], "until": LATER}, 4, "message_by_label", 40),
    ("matches_by_label", {"limit": 9, "labels": [RARE, COMMON]}, 0, "message_by_label", 200),
    (
        "matches_by_label",
        {"limit": 10, "labels": [RARE + 1], "clear_labels": [RARE]},
        10,
        "message_by_label",
        60,
    ),
    ("messages_by_seq", {"seqs": [1, 50_000, 99_999]}, 3, "message_pkey", 30),
    (
        "newest_within",
        {"before_seq": 2**62, "page_size": 500, "tokens": 100, "max_bytes": 2**62},
        10,
        "message_pkey",
        100,
    ),
]
IN_ORDER = [case for case in CASES if case[0] in ("newest_seqs", "recent_matches", "newest_within")]


def explained(name: str, wanted: dict[str, Any], url: str, **parameters: str) -> dict[str, Any]:
    """The plan of a statement with what it did, by these parameters of the server."""
    values = ANY | wanted | LONG.keys
    ordered = [values[field.name] for field in read_all()[name].params]
    with psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        for parameter, value in parameters.items():
            connection.execute(f"SET {parameter} = {value}".encode())
        connection.execute(b"PREPARE kept AS " + compile_statements("strandline")[name])
        places = ", ".join(["%s"] * len(ordered))
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE kept ({places})".encode()
        connection.execute(explain, ordered)  # what a plan looks up in the catalog is not counted
        ((found,),) = connection.execute(explain, ordered).fetchall()
    plan: dict[str, Any] = found[0]["Plan"]
    return plan


@whole_tables  # a partition's indexes have other names
@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
@pytest.mark.parametrize(("name", "wanted", "rows", "index", "pages"), CASES)
def test_an_index_leads_to_what_is_asked_for(
    name: str, wanted: dict[str, Any], rows: int, index: str, pages: int, mode: str, url: str
) -> None:
    plan = explained(name, wanted, url, plan_cache_mode=mode)
    used = {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
    assert index in used and plan["Actual Rows"] == rows
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= pages
    assert "message" not in {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"}


@whole_tables
@pytest.mark.parametrize(("name", "wanted", "pages"), [(case[0], case[1], case[4]) for case in IN_ORDER])
def test_a_page_is_read_in_the_order_of_the_log_whatever_a_page_costs(
    name: str, wanted: dict[str, Any], pages: int, url: str
) -> None:
    """With so dear a page a plan that sorts the log is taken wherever it seems to be as good."""
    plan = explained(name, wanted, url, plan_cache_mode="force_custom_plan", random_page_cost="40")
    assert not {"Bitmap Heap Scan", "Seq Scan"} & {
        node["Node Type"] for node in nodes(plan) if node.get("Relation Name") == "message"
    }
    assert (
        plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 3 * pages
    )  # of thousands; a row may be looked up in the table as well


def test_the_statements_are_all_there() -> None:
    assert {name for name, *_ in CASES} <= set(statements("strandline"))


def test_what_is_rare_and_what_is_common_is_found(url: str) -> None:
    memory = Memory.from_defaults("long", database_url=url, memory_blocks=[])
    rare = list(range(1, NUMBER, 10_000))
    assert [one.seq for one in memory.history(metadata={"kind": "rare"})] == rare
    assert [one.seq for one in memory.history(3, offset=2, metadata={"kind": "rare"})] == rare[-5:-2]
    assert [one.seq for one in memory.history(2, metadata={"kind": "common"})] == [NUMBER - 2, NUMBER]
    assert [one.seq for one in memory.history(1, roles=["tool"])] == [90_007]
    assert len(memory.history(until=SOON, since=LATER, roles=["user"])) == 26
    memory.close()
