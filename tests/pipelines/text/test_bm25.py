"""One BM25: what Postgres computes and what Python computes are the same."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.pipelines.text.bm25 import NEARBY, WORDS_BESIDE_VECTOR, by_length, rarity, saturated
from strandline.schemas.postgres.statements import function_source, with_fragments

COMPUTED = with_fragments(
    "SELECT @by_length(%(length)s::float8), @saturated(%(times)s::float8),"
    " @rarity(%(pieces)s::float8, %(holders)s::bigint)"
).encode()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    length=st.integers(1, 100_000),
    times=st.floats(0, 1_000),
    pieces=st.integers(0, 1_000_000),
    share=st.floats(0, 1),
)
def test_the_weights_are_the_same_in_both(
    database_url: str, length: int, times: float, pieces: int, share: float
) -> None:
    holders = int(pieces * share)
    with psycopg.connect(database_url) as connection:
        params = {"length": length, "times": times, "pieces": pieces, "holders": holders}
        ((*computed,),) = connection.execute(COMPUTED, params).fetchall()
    assert computed == pytest.approx([by_length(length), saturated(times), rarity(pieces, holders)])


def test_sql_and_python_weigh_neighbouring_messages_alike() -> None:
    source = function_source("search_v1", "strandline").replace("::float8", "")
    assert ", ".join(f"({distance}, {share:g})" for distance, share in NEARBY.items()) in source
    assert f"ELSE {WORDS_BESIDE_VECTOR} END + {1 - WORDS_BESIDE_VECTOR} * t.contrast" in source
