"""Four rules that let an engine spread the tables over nodes by ``shard_key``, held over every statement.

docs/architecture/sql-rules.md has them with their reasons.  No such engine is needed: the parser of
Postgres reads the statements, and the server is asked which functions are volatile.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.schemas.postgres.statements import function_names, function_source, statements
from tests.conftest import rows_of
from tests.support.sql.sql_rules import (
    calls_beside_tables,
    conflict_calls,
    row_addresses,
    unkeyed_tables,
    volatile_calls,
)
from tests.support.sql.sql_trees import (
    ParsedStatement,
    calls,
    file_statements,
    function_header,
    function_statements,
    option,
    parsed,
    tables,
)

ALL = [*file_statements(), *function_statements()]
# Statements that are meant to read the rows of many owners, by the reason.
ACROSS_SHARDS = {
    "the directory is kept by session, and listed by namespace": {
        "directory_page",
        "directory_page_of_namespace",
        "directory_page_of_user",
        "directory_page_without_user",
        "find_sessions",
        "known_namespaces",
        "namespace_is_known",
        "namespaces_of_user",
        "user_is_known",
        "users_page",
    },
    "people name what they look for by namespace, not by owner": {
        "explain_find_fact_events",
        "explain_find_facts",
        "explain_find_messages",
        "list_dead_letters",
        "owners_with_facts",
    },
    "one commit takes messages of several sessions": {"put_many", "put_many_recorded"},
    "one page shows sessions or owners of several keys": {"owner_names", "owners_backlog", "session_rows"},
    "who listens to a namespace hears of all its owners": {"happenings"},
    "the sweep and the turns look for work of any owner": {
        "bring_rings_forward_v1",
        "forget_expired_items",
        "forget_kept_responses",
        "next_lane_v1",
        "orphaned_lanes",
        "replay_lanes",
        "ring_due_v1",
        "ripe_letters",
        "ripe_watches",
    },
    "a worker holds lanes of many owners": {"release_undrained_lanes", "leave", "shorten_leases"},
    "a namespace has many owners": {"list_limits", "look_at_bounds_v1", "may_start_v1", "ring_put_off"},
    "a derivation is of all owners": {
        "forget_owners_generations",
        "generation_backlog",
        "ledger_averages",
        "list_generations",
        "older_backlog",
        "owners_after",
        "owners_with_rows",
        "register_generation",
        "replay_size",
        "retire_generation",
        "ring_generation",
        "selected_owners",
        "uncovered_owners",
    },
    "an encrypted namespace has many owners": {
        "encryption_status",
        "fact_owners_to_seal",
        "kek_samples",
        "keks_in_use",
        "keys_of_namespace",
        "owners_with_old_keys",
        "owners_without_keys",
        "seal_sessions",
        "sessions_to_seal",
        "unsettled_owners",
    },
    "an erasure looks for a user wherever the names lie, and processes look for who was erased": {
        "erase_directory_v1",
        "erase_names_v1",
        "erase_shared_v1",
        "erased_rows_v1",
        "erased_since",
        "find_erased",
        "erased_owner_names",
        "owner_directory",
        "unsettled_erasures",
    },
    "retention goes over all sessions": {
        "aged_owners",
        "archive_folders",
        "archive_is_used",
        "archives_with_objects",
        "open_steps",
        "owners_with_input",
        "retention_is_set",
        "retention_totals",
        "sessions_to_retain",
    },
    "a shared scope has messages of many owners": {"search_hits_v1"},
    "the audit trail is sealed, listed and verified for a whole namespace": {
        "advance_chains",
        "audit_namespaces",
        "chain_ends",
        "chains_of_name",
        "keys_of_trails",
        "list_acts",
        "lock_chains",
        "move_sealed",
        "open_chains",
        "sealed_entries",
        "subject_salts",
        "read_unsealed",
        "unsealed_namespaces",
        "unsealed_of",
    },
    "status counts everything": {
        "status_keys",
        "oldest_unchained",
        "failing_stages",
        "status_pipelines",
        "longest_due",
        "stage_rates",
        "status_totals",
        "ledger_totals",
        "used_pipelines",
        "waiting_messages",
    },
    "verify looks at everything, or at the owners of a namespace": {
        name for name in statements("strandline") if name.startswith("verify_")
    },
}
# The keys are compared in a form that no other index serves than the one over words, labels or roles.
KEYED_OTHERWISE = {"search_big_v1": ["b", "b", "b"], "matches_by_label": ["m"], "matches_by_role": ["m"]}


@pytest.fixture(scope="module")
def reading() -> frozenset[str]:
    """The functions that use tables, themselves or by others that they call."""
    bodies = function_statements()
    found = {body.origin for body in bodies if tables(body.tree)}
    while more := {body.origin for body in bodies if found & {call[-1] for call in calls(body.tree)}} - found:
        found |= more
    return frozenset(found)


@pytest.fixture
def volatile(database_url: str) -> frozenset[str]:
    return _functions(database_url, "bool_or(provolatile = 'v')")


@pytest.fixture
def mutable(database_url: str) -> frozenset[str]:
    return _functions(database_url, "bool_and(provolatile <> 'i')")


def _functions(url: str, condition: str) -> frozenset[str]:
    # Of a time with its zone there is none in a statement; until Postgres 15 its timezone() was volatile.
    found = (
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace"
        " AND NOT 'timetz'::regtype = ANY (proargtypes::oid[])"
    )
    return frozenset(name for (name,) in rows_of(url, f"{found} GROUP BY proname HAVING {condition}"))


def _broken(find: Callable[[ParsedStatement], list[str]]) -> dict[str, list[str]]:
    broken: dict[str, list[str]] = {}
    for statement in ALL:
        if what := find(statement):
            broken.setdefault(statement.origin, []).extend(what)
    return broken


def test_every_statement_and_every_function_is_looked_at() -> None:
    seen = {statement.origin for statement in ALL}
    assert seen == set(statements("strandline")) | set(function_names())


def test_no_statement_calls_a_volatile_function(volatile: frozenset[str]) -> None:
    assert _broken(lambda statement: volatile_calls(statement, volatile)) == {}


def test_a_conflict_is_settled_by_the_rows_alone(mutable: frozenset[str]) -> None:
    assert _broken(lambda statement: conflict_calls(statement, mutable)) == {}


def test_no_statement_with_tables_calls_a_function_that_uses_tables(reading: frozenset[str]) -> None:
    assert {"put_v1", "take_turn_v1", "reset_v1"} < reading
    assert _broken(lambda statement: calls_beside_tables(statement, reading)) == {}


def test_postgres_can_put_no_function_that_uses_tables_into_a_statement(reading: frozenset[str]) -> None:
    """It does so with an SQL function that is not volatile, returns rows, and sets nothing."""
    assert [name for name in sorted(reading) if _is_inlinable(function_source(name, "strandline"))] == []


def _is_inlinable(source: str) -> bool:
    header = function_header(source)
    is_sql = option(header, "language")["sval"] == "sql"
    is_stable = (option(header, "volatility") or {}).get("sval") in ("stable", "immutable")
    return is_sql and is_stable and option(header, "set") is None


def test_rows_are_found_again_by_their_keys() -> None:
    assert _broken(row_addresses) == {}


def test_the_shard_key_is_given_by_value() -> None:
    across = set().union(*ACROSS_SHARDS.values())
    broken = _broken(unkeyed_tables)
    assert {name: aliases for name, aliases in broken.items() if name not in across} == KEYED_OTHERWISE
    # One that is not across shards any more has no place in the list.
    assert across - broken.keys() == {"verify_erased", "verify_limits", "verify_snapshot", "verify_unjudged"}


@pytest.mark.parametrize(
    ("sql", "broken"),
    [
        ("SELECT FROM strandline.fact f WHERE f.shard_key = $1", []),
        ("SELECT FROM strandline.fact WHERE shard_key = $1::uuid AND live", []),
        ("SELECT FROM strandline.fact f", ["f"]),
        ("SELECT FROM strandline.generation g", []),
        ("SELECT FROM strandline.fact f WHERE f.shard_key = $1 OR f.live", ["f"]),
        ("SELECT FROM strandline.fact f WHERE f.shard_key <> $1", ["f"]),
        ("UPDATE strandline.fact f SET live = true WHERE f.fact_id = $1", ["f"]),
        ("DELETE FROM strandline.fact f USING strandline.due d WHERE f.shard_key = d.shard_key", ["f", "d"]),
        (
            "SELECT FROM strandline.due d JOIN strandline.fact f ON f.shard_key = d.shard_key"
            " WHERE d.shard_key = $1",
            [],
        ),
        (
            "SELECT FROM strandline.due d LEFT JOIN strandline.fact f ON f.shard_key = d.shard_key"
            " WHERE d.shard_key = $1",
            ["f"],
        ),
        (
            "SELECT FROM strandline.due d LEFT JOIN strandline.fact f ON f.shard_key = $1"
            " WHERE d.shard_key = $1",
            [],
        ),
        (
            "SELECT FROM strandline.due d WHERE d.shard_key = $1 AND EXISTS ("
            "SELECT FROM strandline.fact f WHERE f.shard_key = d.shard_key)",
            ["f"],
        ),
        (
            "WITH d AS (SELECT $1 AS shard_key)"
            " SELECT FROM strandline.fact f, d WHERE f.shard_key = d.shard_key",
            ["f"],
        ),
    ],
)  # fmt: skip
def test_a_table_without_its_key_by_value_is_found_in_joins_and_subqueries(
    sql: str, broken: list[str]
) -> None:
    (statement,) = parsed(sql)
    assert sorted(unkeyed_tables(statement)) == sorted(broken)


FUNCTION = """CREATE FUNCTION strandline.f_v1(p_shard_key uuid) RETURNS void LANGUAGE plpgsql AS $function$
DECLARE
    moment timestamptz := clock_timestamp();
    one record;
BEGIN
    IF moment > clock_timestamp() THEN
        RETURN;
    END IF;
    FOR one IN SELECT d.shard_key, d.ctid FROM strandline.due d LOOP
        UPDATE strandline.fact f SET updated_at = clock_timestamp() WHERE f.shard_key = one.shard_key;
        moment := (SELECT random() FROM strandline.lane l WHERE l.shard_key = p_shard_key);
        PERFORM strandline.g_v1(l.shard_key) FROM strandline.lane l WHERE l.shard_key = moment;
    END LOOP;
END
$function$"""


def test_the_rules_reach_into_functions() -> None:
    found = parsed(FUNCTION)
    volatile = frozenset({"clock_timestamp", "random"})
    assert [call for each in found for call in volatile_calls(each, volatile)] == [
        "clock_timestamp",
        "random",
    ]
    assert [call for each in found for call in calls_beside_tables(each, frozenset({"g_v1"}))] == ["g_v1"]
    assert [column for each in found for column in row_addresses(each)] == ["d.ctid"]
    assert [alias for each in found for alias in unkeyed_tables(each)] == ["d"]
