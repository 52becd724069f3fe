"""JSON values come back as they were put: in metadata, content parts, tool calls and further fields."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import MakeMemory

# Values that a put refuses (NUL, lone surrogates) are tested in test_bad_input.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
numbers = st.one_of(
    st.integers(),
    st.integers(-(10**300), 10**300),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e308, 5e-324, -0.0, 1e16, 1e22, 2.0, 2**53 + 1, 0.1]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts.filter(bool), values, max_size=4)


def exactly(value: Any) -> str:
    """A value's JSON: tells 1 from 1.0 and from true, and 0.0 from -0.0."""
    return json.dumps(value, sort_keys=True)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(metadata=objects, part=objects, arguments=objects, extra=objects, more=objects)
def test_json_comes_back_as_it_was_put(
    make_memory: MakeMemory,
    metadata: dict[str, Any],
    part: dict[str, Any],
    arguments: dict[str, Any],
    extra: dict[str, Any],
    more: dict[str, Any],
) -> None:
    memory = make_memory("s", memory_blocks=[])
    memory.reset()
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps(arguments)}}]
    content = [{"type": "input_other", "value": part}]
    first = {"role": "user", "content": content, "metadata": metadata, "x_extra": {"value": extra}}
    second = {"role": "assistant", "tool_calls": [calls[0] | {"more": more}], "metadata": metadata}
    # By itself, and together with another: these are two ways through the database.
    memory.put(first)
    memory.put_messages([first, second])
    for message, given_ in zip(memory.get_all(), (first, first, second), strict=True):
        assert exactly(message.metadata) == exactly(given_["metadata"])
        shown = message.to_dict()
        for field in ("content", "tool_calls", "x_extra"):
            assert exactly(shown.get(field)) == exactly(given_.get(field))
