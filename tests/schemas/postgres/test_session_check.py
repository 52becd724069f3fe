"""A session's marks, counters and policy fit together, which Postgres holds without a cost for puts."""

from __future__ import annotations

import re

import psycopg
import pytest

from strandline import Memory
from strandline.schemas.postgres.statements import statements
from tests.conftest import rows_of

TRIGGER_COLUMNS = """
SELECT a.attname::text FROM pg_trigger t
JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = ANY (t.tgattr)
WHERE t.tgrelid = 'strandline.session'::regclass AND NOT t.tgisinternal
"""


@pytest.mark.parametrize(
    "change",
    [
        "log_start_seq = 0",
        "pinned_through = log_start_seq - 2",
        "window_from = pinned_through",
        "flushed_through = pinned_through - 1",
        "window_from = flushed_through + 2",
        "flushed_through = next_seq",
        "pinned_tokens = -1",
        "window_from = window_from, window_tokens = -1",
        "window_from = window_from, window_messages = -1",
        "window_from = window_from, window_bytes = -1",
        "shared_scope = 'family'",
        "shared_key = gen_random_uuid()",
        "deliver = 'never'",
    ],
)
def test_a_session_that_contradicts_itself_is_refused(database_url: str, change: str) -> None:
    Memory.from_defaults("s", database_url=database_url, memory_blocks=[]).put(
        {"role": "user", "content": "x"}
    )
    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.errors.CheckViolation) as refused:
        connection.execute(f"UPDATE strandline.session SET {change}")
    assert refused.value.diag.constraint_name == "session_check"


@pytest.mark.parametrize("name", ["put_one", "put_many", "put_one_recorded", "put_many_recorded"])
def test_a_put_in_the_simple_case_sets_no_column_that_is_checked(database_url: str, name: str) -> None:
    (assignments,) = re.findall(
        r"UPDATE strandline\.session t SET(.*?)\bWHERE", statements("strandline")[name], re.DOTALL
    )
    assigned = set(re.findall(r"(\w+) = (?:t\.|CASE|statement)", assignments))
    checked = {column for (column,) in rows_of(database_url, TRIGGER_COLUMNS)}
    assert "next_seq" in assigned and "window_from" in checked
    assert not assigned & checked


def test_the_session_has_no_check_that_each_statement_reads_again(database_url: str) -> None:
    checks = "SELECT FROM pg_constraint WHERE contype = 'c' AND conrelid = 'strandline.session'::regclass"
    assert rows_of(database_url, checks) == []
