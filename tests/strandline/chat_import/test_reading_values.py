"""What imports are read with: arrays of any size, values as text, places that are the same each time."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from strandline.chat_import.exports import json_array
from strandline.chat_import.exports.json_array import ElementScanner, read_elements
from strandline.chat_import.records import Place
from strandline.chat_import.tables.values import MAX_LITERAL_CHARACTERS, read_json, read_mapping, read_moment

JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    values=some.lists(JSON, max_size=5),
    size=some.integers(1, 40),
    indent=some.none() | some.integers(0, 2),
    ascii_only=some.booleans(),
)
def test_an_array_is_cut_into_its_elements_wherever_the_pieces_end(
    values: list[object], size: int, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode()
    scanner = ElementScanner(json_array.MAX_ELEMENT_BYTES)
    pieces = (text[at : at + size] for at in range(0, len(text), size))
    elements = [element for piece in pieces for element in scanner.feed(piece)]
    assert [json.loads(element or b"") for element in elements] == values
    assert not scanner.is_within


def test_an_element_of_too_many_values_is_dropped_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "PIECE_BYTES", 100)
    monkeypatch.setattr(json_array, "MAX_ELEMENT_VALUES", 50)
    elements = [{"a": [{}] * 30}, {"b": [{}] * 20, "c": ",[{" * 100}, [[1]] * 40, {"d": 1}]
    kept = read_elements(io.BytesIO(json.dumps(elements).encode()), lambda _size: None, 10_000)
    assert [None if one is None else json.loads(one) for one in kept] == [None, elements[1], None, {"d": 1}]


@settings(max_examples=40)
@given(noise=some.binary(max_size=200))
def test_bytes_that_are_no_json_do_no_harm(noise: bytes) -> None:
    with suppress(ValueError):  # it ends too early, and that is said
        assert None not in read_elements(io.BytesIO(noise), lambda _size: None, 1_000)


def test_only_so_much_of_an_element_is_kept_as_may_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_array, "PIECE_BYTES", 100)
    elements = [{"a": "x" * 1_000}, {"b": 1}]
    counted: list[int] = []
    file = io.BytesIO(json.dumps(elements).encode())
    assert list(read_elements(file, counted.append, 500)) == [None, b'{"b": 1}']
    assert sum(counted) == len(file.getvalue())


@settings(max_examples=40)
@given(some.dictionaries(some.text(), JSON))
def test_a_dict_is_read_as_json_encoded_twice_or_as_python_writes_it(value: dict[str, object]) -> None:
    assert read_mapping(json.dumps(value)) == value
    assert read_json(json.dumps(json.dumps(value))) == value
    assert read_mapping(str(value)) == value


@pytest.mark.parametrize(
    "text", ["__import__('os')", "{1: print(2)}", "[1]", "{" * 10_000, "(" * 500, None, "", "{'a': b'", "nan"]
)
def test_nothing_else_is_read(text: str | None) -> None:
    with pytest.raises(ValueError, match="neither a JSON object nor a Python dict"):
        read_mapping(text)


def test_a_long_python_dict_is_refused_unread() -> None:
    with pytest.raises(ValueError, match=f"more than {MAX_LITERAL_CHARACTERS:,} characters"):
        read_mapping("{'a': '" + "x" * MAX_LITERAL_CHARACTERS + "'}")


MOMENT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [1_700_000_000, "1700000000", "1700000000.0", 1_700_000_000_000, 1_700_000_000_000_000,
     "1700000000000000000", "2023-11-14T22:13:20Z", "2023-11-14 22:13:20", "2023-11-14 23:13:20+01"],
)  # fmt: skip
def test_moments_in_all_their_forms(value: object) -> None:
    assert read_moment(value) == MOMENT


@settings(max_examples=40)
@given(
    some.none()
    | some.booleans()
    | some.text()
    | some.floats()
    | some.integers()
    | some.lists(some.integers())
)
def test_what_is_no_moment_is_none(value: object) -> None:
    moment = read_moment(value)
    assert moment is None or moment.tzinfo is not None


@settings(max_examples=40)
@given(some.lists(some.tuples(*[some.text() for _field in range(5)]), unique=True, max_size=6))
def test_each_place_has_an_id_of_its_own(places: list[tuple[str, str, str, str, str]]) -> None:
    assert len({Place(*fields).message_id for fields in places}) == len(places)
