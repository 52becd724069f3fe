"""Statements that look up given rows compare each with its own, by the rows that their plans count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres.statements import compile_statements, function_source
from tests.schemas.postgres.test_plans import KEYS, fill, nodes
from tests.support.servers.databases import temporary_database
from tools.queries.headers import read_all

GIVEN = 400
IDS = [f"n{number}" for number in range(GIVEN)]
DIGESTS = [b"\0"] * GIVEN
OWNER = {"shard_key": KEYS.shard_key, "session_key": KEYS.session_key}
# All of one owner: what a plan takes for a handful.
MANY = """
INSERT INTO strandline.message (shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest,
        envelope, created_at)
    SELECT s.shard_key, s.session_key, 100 + n, s.incarnation, 'n' || n, 'user', 10, 12, '\\x00', '{}', now()
    FROM strandline.session s, generate_series(0, %(given)s - 1) AS n;
INSERT INTO strandline.store_item (shard_key, path, key, value, ttl_minutes, expires_at)
    SELECT s.shard_key, 'p.', 'n' || n, '{}', 9, now() + interval '9 minutes'
    FROM strandline.session s, generate_series(0, %(given)s - 1) AS n;
INSERT INTO strandline.flush_event (shard_key, session_key, from_seq, through_seq, event_id, incarnation,
        cause, message_count, tokens, version)
    SELECT s.shard_key, s.session_key, 100 + n, 100 + n, md5('n' || n)::uuid, s.incarnation, 'manual', 1,
        10, 1 FROM strandline.session s, generate_series(0, %(given)s - 1) AS n;
"""
ITEMS = {"paths": ["p."] * GIVEN, "keys": IDS}
SEQS = list(range(100, 100 + GIVEN))
LOOK_UPS: dict[str, dict[str, Any]] = {
    "known_messages": {"ids": IDS, "digests": DIGESTS, "keyed_digests": DIGESTS},
    "messages_in_order": {"seqs": SEQS, "page_bytes": 10**9},
    "batch_messages": {
        "generation_id": 1,
        "session_keys": [KEYS.session_key] * GIVEN,
        "from_seqs": SEQS,
        "through_seqs": SEQS,
    },
    "batch_events": {"event_ids": []},
    "lock_items": ITEMS,
    "get_items": ITEMS,
}


def put_look_up() -> str:
    """The look-up of a put's ids inside ``put_v1``, which EXPLAIN does not look into."""
    source = function_source("put_v1", "strandline")
    found = source[source.rindex("SELECT array_agg(m.seq ORDER BY given.place)") :].split(";")[0]
    found = found.replace("INTO seqs, known, detail", "").replace("s.incarnation", "$2")
    return found.replace("p_shard_key", "$1").replace("p_ids", "$3").replace("p_digests", "$4")


@pytest.fixture(scope="module")
def early(stack: EmbeddedStack) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose plans were made while all was empty, as a new installation's producer has them."""
    with (
        temporary_database(stack.database_url) as url,
        psycopg.connect(url, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection,
    ):
        connection.execute("SET plan_cache_mode = force_generic_plan")
        connection.execute("SET enable_seqscan = off")
        connection.execute("VACUUM ANALYZE")
        for name in LOOK_UPS:
            connection.execute(f"PREPARE {name} AS ".encode() + compile_statements("strandline")[name])
        connection.execute(f"PREPARE put_v1 (uuid, uuid, text[], bytea[]) AS {put_look_up()}".encode())
        fill(connection, 1, 1)
        connection.execute(MANY.encode(), {"given": GIVEN})
        yield connection


def most_compared(connection: psycopg.Connection[Any], name: str, values: list[Any]) -> float:
    """The most rows that a step of the plan looked at, given or thrown away."""
    places = ", ".join(["%s"] * len(values))
    explain = f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {name} ({places})".encode()
    with connection.transaction(force_rollback=True):
        ((found,),) = connection.execute(explain, values).fetchall()
    removed = ("Rows Removed by Join Filter", "Rows Removed by Filter")
    return max(
        float(node["Actual Rows"] + sum(node.get(kind, 0) for kind in removed)) * float(node["Actual Loops"])
        for node in nodes(found[0]["Plan"])
    )


@pytest.mark.parametrize("name", LOOK_UPS)
def test_each_given_row_is_compared_with_its_own(name: str, early: psycopg.Connection[Any]) -> None:
    rows = early.execute("SELECT array_agg(event_id) FROM strandline.flush_event WHERE from_seq >= 100")
    ((events,),) = rows.fetchall()
    values = {**OWNER, **LOOK_UPS[name]}
    values |= {"event_ids": events} if name == "batch_events" else {}
    ordered = [values[field.name] for field in read_all()[name].params]
    assert GIVEN <= most_compared(early, name, ordered) <= 3 * GIVEN


def test_a_put_compares_each_id_with_its_own(early: psycopg.Connection[Any]) -> None:
    ((incarnation,),) = early.execute("SELECT incarnation FROM strandline.session").fetchall()
    values = [KEYS.shard_key, incarnation, IDS, DIGESTS]
    assert GIVEN <= most_compared(early, "put_v1", values) <= 3 * GIVEN
