"""Lexemes: the same for documents and queries, in every script, and always a valid tsvector."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.pipelines.text.lexemes import (
    MAX_POSITION,
    MAX_POSITIONS_PER_LEXEME,
    MAX_REMEMBERED_CHARACTERS,
    forget_texts,
    forget_words,
    length_of,
    lexemes,
    query_lexemes,
    remembered,
    to_tsvector_text,
)
from strandline.pipelines.text.tone import QUESTION, WISH
from strandline.pipelines.text.weighting import (
    ASKS,
    ASSISTANT,
    CLEAR_CONTRAST,
    FAINT_CONTRAST,
    KNOWN_SHARE,
    NAMED_DAY,
    NEARBY,
    OTHER_DAY,
    OTHER_SPEAKER,
    STANDING_WISH,
    WORDS_BESIDE_VECTOR,
    by_length,
    rarity,
    saturated,
)
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.statements import function_source, with_fragments

ENTRY = re.compile(r"'((?:[^'\\]|''|\\\\)+)':(\d+(?:,\d+)*)(?: |$)")


def read(literal: str) -> dict[str, list[int]]:
    """Read a tsvector literal by Postgres' quoting rules; fails on anything else in it."""
    found, end = {}, 0
    for entry in ENTRY.finditer(literal):
        assert entry.start() == end
        end = entry.end()
        lexeme = entry.group(1).replace("''", "'").replace("\\\\", "\\")
        found[lexeme] = [int(place) for place in entry.group(2).split(",")]
    assert end == len(literal)
    return found


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_becomes_a_literal_that_reads_back(text: str) -> None:
    expected: dict[str, list[int]] = {}
    for lexeme, position in lexemes(text):
        assert lexeme and "\x00" not in lexeme
        assert len(lexeme.encode()) < 2046
        expected.setdefault(lexeme, []).append(position)
    assert read(to_tsvector_text(lexemes(text))) == expected


@given(st.text())
def test_a_text_is_found_by_itself(text: str) -> None:
    assert set(query_lexemes(text)) <= {lexeme for lexeme, _ in lexemes(text)}
    assert length_of(lexemes(text)) <= len(lexemes(text))
    assert len(set(query_lexemes(text))) == len(query_lexemes(text))


def test_question_words_go_and_names_and_numbers_stay() -> None:
    assert query_lexemes("When did Maria's dogs visit New York, and how? 2022!") == [
        "maria", "dog", "visit", "new", "york", "2022",
    ]  # fmt: skip
    assert query_lexemes("What does he do, don’t you know how?") == ["know"]


@pytest.mark.parametrize(
    ("document", "query"),
    [
        ("She was running marathons", "RUN marathon"),
        ("The café’s naïve owners", "cafe\u0301 nai\u0308ve"),
        ("paid 1,000.50 in cash", "1000.50"),
        ("ＦＵＬＬ　ＷＩＤＴＨ", "full width"),
        ("我喜欢吃苹果", "苹果"),
        ("東京タワーに行きました", "東京タワー"),
        ("저는 서울에서 살아요", "서울에서"),
        ("ฉันชอบแมว", "แมว"),
        ("मेरी बहन दिल्ली में रहती है", "दिल्ली"),
        ("Straße in München", "STRASSE münchen"),
    ],
)
def test_queries_find_documents(document: str, query: str) -> None:
    wanted = query_lexemes(query)
    assert wanted and set(wanted) <= {lexeme for lexeme, _ in lexemes(document)}


def test_cjk_is_cut_into_bigrams_and_a_lone_character_stays() -> None:
    assert query_lexemes("吃苹果 茶") == ["吃苹", "苹果", "茶"]


def test_a_text_holds_its_words_of_one_character_at_the_place_of_their_pair() -> None:
    assert lexemes("吃苹果 茶") == [
        ("吃苹", 1), ("吃", 1), ("苹果", 2), ("苹", 2), ("果", 2), ("茶", 3),
    ]  # fmt: skip
    assert length_of(lexemes("吃苹果 茶")) == 3
    assert "개" in dict(lexemes("개가")) and "가" not in dict(lexemes("개가")), "a suffix is no word"
    assert [lexeme for lexeme, _ in lexemes("แมว")] == ["แม", "มว"]


@pytest.mark.parametrize(
    ("forms", "script"),
    [("собака собаку собаки", "русский"), ("كلب كلبي الكلب", "العربية"), ("γάτα γάτες", "ελληνικά")],
)
def test_forms_of_a_word_are_one_lexeme_in_its_own_script(forms: str, script: str) -> None:
    assert len(query_lexemes(forms)) == 1, script


def test_an_apostrophe_inside_a_name_is_quoted() -> None:
    assert to_tsvector_text(lexemes("Shaun O\u2019Neil")) == "'shaun':1 'o''neil':2"


def test_positions_count_stop_words() -> None:
    assert lexemes("the cat and the dog") == [("cat", 2), ("dog", 5)]


def test_other_languages_have_their_own_stemmer() -> None:
    assert query_lexemes("Häuser", language="german") == query_lexemes("Haus", language="german")
    with pytest.raises(ConfigurationError, match=r"klingon.*german"):
        lexemes("nuqneH", language="klingon")


def test_positions_stay_within_postgres_bounds() -> None:
    places = read(to_tsvector_text(lexemes("word " * 20_000 + "last")))
    assert len(places["word"]) == MAX_POSITIONS_PER_LEXEME
    assert places["last"] == [MAX_POSITION]


def test_a_huge_text_stays_under_one_megabyte() -> None:
    literal = to_tsvector_text(lexemes(" ".join(f"{'token' * 30}{number:x}" for number in range(8_000))))
    places = read(literal)
    assert sum(len(lexeme.encode()) + 8 + 2 * len(at) for lexeme, at in places.items()) < 1_000_000
    assert 5_000 < len(places) < 8_000
    assert read(to_tsvector_text(lexemes("q" * 1_000_000)))


def test_stemming_is_the_same_from_many_threads() -> None:
    texts = [f"running{n} flies{n} happily{n} nationalisation{n}" for n in range(400)]
    with ThreadPoolExecutor(8) as pool:
        parallel = list(pool.map(query_lexemes, texts * 2))
    assert parallel[:400] == parallel[400:] == [query_lexemes(text) for text in texts]


# One BM25: what Postgres computes and what Python computes are the same.
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
    clearness = f"(max(b.contrast) - {FAINT_CONTRAST}) / {CLEAR_CONTRAST - FAINT_CONTRAST:g}"
    assert f"greatest(max(b.text), {KNOWN_SHARE} * least(1, greatest(0, {clearness}))" in source


def test_a_short_text_is_read_once_until_texts_are_forgotten() -> None:
    texts: list[str] = []

    def note(text: str) -> int:
        texts.append(text)
        return len(text)

    read, long = remembered(note), "b" * (MAX_REMEMBERED_CHARACTERS + 1)
    for forget in (forget_texts, forget_words):
        assert [read(text) for text in ("a", "a", long, long)] == [1, 1, len(long), len(long)]
        forget()
    assert texts == ["a", long, long] * 2
