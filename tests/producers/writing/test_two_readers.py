"""Arguments of calls that two readers of JSON take for two values: a hook sees all that any of them may."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.redaction.json_texts import visit_message, visit_object

CARD = "4111 1111"


def hide(text: str) -> str:
    return text.replace("4111", "[X]")


def redacted(arguments: str) -> str:
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    (visited,) = visit_message({"tool_calls": [call]}, hide)["tool_calls"]
    result: str = visited["function"]["arguments"]
    return result


@pytest.mark.parametrize(
    "arguments",
    [
        '{"card":"4111 1111","card":"none"}',
        '{"card":"none","card":"4111 1111"}',
        '{"a":{"card":"4111 1111","card":"none"}}',
        '{"a":[1,[{"card":"4111 1111","card":"none"}]]}',
        '{"a":{"4111":1},"a":1}',
        '{"card":"\\u0034111 1111","card":"none"}',
        '{"card":"\\u00341\\u00311 1111","c\\u0061rd":"none"}',
        '{"card":"\\u0034111 1111"',
        '{"card":"\\u0034111 1111"} trailing',
        '\ufeff{"card":"\\u0034111 1111"}',
        '{"card":"\\u0034111 1111",}',
        '{"card":"\\u0034111 1111"} // a comment',
        '{"card":"\\u0034111 1111","n":1e999}',
        '{"card":"\\u0034111 1111","n":NaN}',
        '{"card":"\\u0034111 1111","n":' + "1" * 5_000 + "}",
        '{"card":4.111111111111111e15}',
        '{"card":4111111111111111.0}',
        '{"card":-4111111111111111}',
        "[" * 100 + '"\\u0034111 1111"' + "]" * 100,
        "pay with 4111 1111",
    ],
)
def test_a_hook_sees_every_reading(arguments: str) -> None:
    stored = redacted(arguments)
    assert "[X]" in stored and "4111" not in stored and "\\u0034" not in stored


@pytest.mark.parametrize(
    "arguments", ['{"a":1,"a":2}', '{"a":1e999}', '"\\u0022', '{"a":"\\u0041","a":1}', ""]
)
def test_what_a_hook_does_not_change_stays_as_it_was_written(arguments: str) -> None:
    assert redacted(arguments) == arguments


def test_an_escape_does_not_end_a_string() -> None:
    stored = redacted('{"a":"\\u0022,\\"b\\":\\\\u0034 \\ud83d\\u0000","a":"4111"}')
    assert json.loads(stored) == {"a": "[X]"}
    assert stored.startswith('{"a":"\\u0022,\\"b\\":\\\\u0034 \\ud83d\\u0000"')


def test_whole_numbers_are_visited_however_they_are_written() -> None:
    assert visit_object({"n": [4111111111111111.0, 4.5e6, 1234567.5]}, hide) == {
        "n": ["[X]111111111111", 4.5e6, 1234567.5]
    }


def first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs))


_KEYS = st.sampled_from(["a", "b"])
_OBJECTS = st.recursive(
    st.sampled_from([f'"{CARD}"', '"none"', "1", '"\\u0034111"', "1e400"]),
    lambda inner: (
        st.lists(st.builds('"{}":{}'.format, _KEYS, inner), max_size=3).map(
            lambda all_: f"{{{','.join(all_)}}}"
        )
        | st.lists(inner, max_size=2).map(lambda all_: f"[{','.join(all_)}]")
    ),
    max_leaves=8,
)


@given(_OBJECTS)
def test_neither_the_first_nor_the_last_of_repeated_keys_passes(arguments: str) -> None:
    stored = redacted(arguments)
    for reader in (dict, first):
        assert "4111" not in json.dumps(json.loads(stored, object_pairs_hook=reader))
