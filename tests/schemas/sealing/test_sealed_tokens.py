"""Sealed values open to what they were where they belong, and nowhere else; no text is taken for one."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.text.lexemes import lexemes, to_tsvector_text
from strandline.schemas.errors import SealedContentError
from strandline.schemas.sealed.values import keyed_tsvector, open_column, open_traces, seal_traces
from strandline.schemas.sealing.codec import holds_tokens
from strandline.schemas.sealing.marks import Mark, Marks
from strandline.schemas.sealing.owner_keys import (
    DataKeyMissingError,
    OwnerKeys,
    make_owner_keys,
    make_secret,
    renew_data_key,
)
from strandline.schemas.sealing.tokens import escape, escape_json, is_token

SECRET = make_secret()
KEYS = make_owner_keys(uuid4(), {1: SECRET}, is_settled=True)
TEXTS = st.one_of(
    st.text(), st.sampled_from(["sealed:", "sealed:0:", "sealed:1:1:AAAA", "sealed:2:x", '"sealed:'])
)
JSONS = (
    st.none()
    | st.integers()
    | TEXTS
    | st.lists(TEXTS, max_size=2)
    | st.dictionaries(TEXTS, TEXTS, max_size=2)
)


@given(TEXTS, st.text(max_size=5))
def test_a_text_opens_to_what_it_was(text: str, bound: str) -> None:
    sealed = KEYS.seal(text, "fact", bound)
    assert is_token(sealed) and KEYS.open(sealed, "fact", bound) == text
    assert sealed != KEYS.seal(text, "fact", bound), "each has a nonce of its own"
    assert KEYS.open(escape(text), "fact") == text, "in clear as well, whatever it looks like"
    assert KEYS.open_name(KEYS.seal_name(text, "topic"), "topic") == text
    assert KEYS.open_name(escape(text), "topic") == text
    assert KEYS.open_bytes(KEYS.seal_bytes(text.encode(), "answer"), "answer") == text.encode()


@given(st.lists(st.none() | st.lists(st.none() | TEXTS, max_size=3), max_size=3))
def test_an_array_of_texts_opens_as_each_text_does(arrays: list[list[str | None] | None]) -> None:
    mark = Mark(0, "text", "fact")
    sealed = [
        array and [None if text is None else KEYS.seal(text, "fact", "") for text in array]
        for array in arrays
    ]
    has_text = any(text is not None for array in arrays for text in array or ())
    assert holds_tokens(Marks(0, opens=(mark,)), [(array,) for array in sealed]) == has_text
    assert open_column(mark, [sealed], KEYS) == arrays


FORMS = st.sampled_from(["newest", "older", "clear", "none"])


@given(st.lists(st.tuples(FORMS, TEXTS.map(json.dumps), st.text(max_size=3)), max_size=5))
def test_a_column_opens_as_each_of_its_values_does(cells: list[tuple[str, str, str]]) -> None:
    secrets = {1: SECRET, 2: renew_data_key(SECRET)}
    newest = make_owner_keys(KEYS.shard_key, secrets, is_settled=True)
    make: dict[str, Callable[[str, str], str | None]] = {
        "newest": lambda text, bound: newest.seal_json(text, "message", bound),
        "older": lambda text, bound: KEYS.seal_json(text, "message", bound),
        "clear": lambda text, _bound: escape_json(text),
        "none": lambda _text, _bound: None,
    }
    forms, texts, bounds = [[cell[place] for cell in cells] for place in range(3)]
    column = [make[form](text, bound) for form, text, bound in cells]
    shown = [None if form == "none" else text for form, text in zip(forms, texts, strict=True)]
    assert newest.open_all(column, "message", bounds) == shown
    if "newest" in forms:
        with pytest.raises(DataKeyMissingError):
            KEYS.open_all(column, "message", bounds)
        with pytest.raises(SealedContentError, match="does not open"):
            newest.open_all(column, "message", [f"{bound}!" for bound in bounds])


@given(JSONS)
def test_json_opens_to_what_it_was(value: object) -> None:
    text = json.dumps(value)
    assert json.loads(KEYS.seal_json(text, "state")).startswith("sealed:1:1:")
    assert KEYS.open(KEYS.seal_json(text, "state"), "state") == text
    assert KEYS.open(escape_json(text), "state") == text


@pytest.mark.parametrize(
    "other",
    [
        lambda sealed: KEYS.open(sealed, "input", "m1"),
        lambda sealed: KEYS.open(sealed, "fact", "m2"),
        lambda sealed: make_owner_keys(uuid4(), {1: SECRET}, is_settled=True).open(sealed, "fact", "m1"),
        lambda sealed: make_owner_keys(KEYS.shard_key, {1: make_secret()}, is_settled=True).open(
            sealed, "fact", "m1"
        ),
        lambda sealed: KEYS.open(sealed[:-5] + "AAAA=", "fact", "m1"),
        lambda sealed: KEYS.open(sealed.replace(":1:1:", ":1:7:"), "fact", "m1"),
        lambda sealed: KEYS.open("sealed:9:whatever", "fact", "m1"),
    ],
    ids=["kind", "message", "owner", "key", "changed", "no such key", "later form"],
)
def test_it_opens_nowhere_else(other: object) -> None:
    sealed = KEYS.seal("a secret", "fact", "m1")
    with pytest.raises(SealedContentError) as raised:
        other(sealed)  # type: ignore[operator]
    assert "a secret" not in str(raised.value)


def test_a_new_data_key_opens_the_old_and_compares_alike() -> None:
    both = {1: SECRET, 2: renew_data_key(SECRET)}
    newer = make_owner_keys(KEYS.shard_key, both, is_settled=True)
    old = KEYS.seal("words", "fact")
    assert newer.open(old, "fact") == "words"
    assert newer.reseal(old, "fact").startswith("sealed:1:2:")
    assert newer.reseal(newer.seal("words", "fact"), "fact").startswith("sealed:1:2:")
    assert newer.word("boat") == KEYS.word("boat") != _another().word("boat")
    assert newer.digest(b"d" * 16) == KEYS.digest(b"d" * 16) != _another().digest(b"d" * 16)
    assert newer.number_of(7) == KEYS.number_of(7) != _another().number_of(7)
    assert newer.seal_name("boats", "topic") == KEYS.seal_name("boats", "topic")


def _another() -> OwnerKeys:
    return make_owner_keys(KEYS.shard_key, {1: make_secret()}, is_settled=True)


@given(st.text())
def test_words_are_keyed_from_what_is_stored_as_from_what_is_new(text: str) -> None:
    positioned = lexemes(text)
    stored = to_tsvector_text(positioned)
    keyed = to_tsvector_text([(KEYS.word(word), position) for word, position in positioned])
    assert keyed_tsvector(KEYS, stored) == keyed
    assert keyed_tsvector(KEYS, keyed) == keyed, "once"


def test_traces_keep_what_a_tombstone_recognises_by() -> None:
    traces = [
        {"fingerprint": "ab" * 16},
        {"fingerprint": "cd" * 16, "session_key": str(uuid4()), "seqs": [1], "lexemes": ["boat"]},
    ]
    sealed = seal_traces(KEYS, json.dumps(traces))
    assert "boat" not in sealed and "ab" * 16 not in sealed
    assert json.loads(open_traces(KEYS, sealed)) == traces
    assert json.loads(open_traces(KEYS, seal_traces(KEYS, sealed))) == traces


def test_a_key_shows_itself_nowhere() -> None:
    assert SECRET.hex() not in repr(KEYS) and repr(SECRET[32:]) not in repr(KEYS)
