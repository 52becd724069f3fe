"""One BM25: what Postgres computes and what Python computes are the same."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.pipelines.text.bm25 import NEARBY, by_length, rarity, saturated
from strandline.pipelines.text.tone import QUESTION, WISH
from strandline.pipelines.text.weighting import (
    ASKS,
    ASSISTANT,
    CLEAR_CONTRAST,
    FAINT_CONTRAST,
    KNOWN_SHARE,
    NAMED_DAY,
    OTHER_DAY,
    OTHER_SPEAKER,
    STANDING_WISH,
    WORDS_BESIDE_VECTOR,
)
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


@pytest.mark.parametrize("search", ["search_small_v1", "search_big_v1"])
def test_sql_and_python_weigh_neighbouring_messages_alike(search: str) -> None:
    source = function_source(search, "strandline").replace("::float8", "")
    assert ", ".join(f"({distance}, {share:g})" for distance, share in NEARBY.items()) in source
    assert f"ELSE {WORDS_BESIDE_VECTOR} END + {1 - WORDS_BESIDE_VECTOR:g} * t.contrast" in source


@pytest.mark.parametrize("search", ["search_small_v1", "search_big_v1"])
def test_sql_and_python_weigh_voices_alike(search: str) -> None:
    source = " ".join(function_source(search, "strandline").replace("::float8", "").split())
    assert f"CASE WHEN m.is_named THEN 1 ELSE {OTHER_SPEAKER} END" in source
    assert f"CASE WHEN m.tone = {QUESTION} THEN {ASKS} ELSE 1 END" in source
    assert f"CASE WHEN p_is_own AND m.role = 'assistant' THEN {ASSISTANT} ELSE 1 END" in source
    assert f"CASE WHEN m.tone = {WISH} THEN {STANDING_WISH} ELSE 1 END" in source
    assert f"ELSE {OTHER_DAY} + {1 - OTHER_DAY:g} * m.day_fit END" in source
    assert f"* t.contrast + {NAMED_DAY} * t.day_fit) AS score" in source


@pytest.mark.parametrize("search", ["search_small_v1", "search_big_v1"])
def test_sql_and_python_have_one_full_text_score(search: str) -> None:
    source = " ".join(function_source(search, "strandline").replace("::float8", "").split())
    clearness = f"(max(o.contrast) - {FAINT_CONTRAST}) / {CLEAR_CONTRAST - FAINT_CONTRAST:g}"
    assert f"greatest(max(o.text), {KNOWN_SHARE} * least(1, greatest(0, {clearness}))" in source
