"""A filter of items is decided by the process where values are sealed, and as Postgres decides it."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.producers.items.filters import fits_filter
from tests.support.servers.databases import temporary_database

SCALARS = st.sampled_from([None, True, False, 0, 1, 1.0, 2, -1, 1.5, "", "a", "b", "ä", "1"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xy"), inner, max_size=2),
    max_leaves=4,
)
ORDERED = st.sampled_from([0, 1, 1.5, "a", "ä", ""])
OPERATORS = st.dictionaries(
    st.sampled_from(["$eq", "$ne"]), VALUES, min_size=1, max_size=2
) | st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), ORDERED, min_size=1, max_size=2)
CONDITIONS = st.dictionaries(st.sampled_from("abc"), VALUES | OPERATORS, max_size=2)
ITEMS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
ASK = """
SELECT NOT EXISTS (SELECT FROM jsonb_each(%s::jsonb) AS f (name, condition)
    WHERE NOT strandline.fits_condition_v1(%s::jsonb -> f.name, f.condition))
"""


@pytest.fixture(scope="module")
def connection(stack: EmbeddedStack) -> Any:
    with temporary_database(stack.database_url) as url, psycopg.connect(url, autocommit=True) as opened:
        yield opened


def test_it_is_decided_as_postgres_decides(connection: psycopg.Connection[Any]) -> None:
    @settings(max_examples=300)
    @given(ITEMS, CONDITIONS)
    def alike(value: dict[str, Any], conditions: dict[str, Any]) -> None:
        texts = json.dumps(value), json.dumps(conditions)
        row = connection.execute(ASK, (texts[1], texts[0])).fetchone()
        assert row == (fits_filter(*texts),)

    alike()
