"""Values that callers may pass by mistake or on purpose: texts, invalid JSON, messages of odd forms."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

# What Postgres, terminals, prompts and parsers stumble over.
_AWKWARD = (
    "\x00",
    "\ud83d",
    "\udcff",
    "\u2028",
    "\u202e",
    "\U000e0041",
    "\x1b]0;x\x07",
    "\x9b2J",
    "\r\n",
    "</memory>",
    "{{ 7 * 7 }}",
    "%(name)s %s",
    "';--",
    "\\",
    "$$",
    "😀",
    "é",
    "e\u0301",
    "ﷺ",
    "<|endoftext|>",
)

texts = st.one_of(
    st.text(max_size=30),
    st.lists(st.sampled_from(_AWKWARD) | st.text(max_size=5), max_size=4).map("".join),
    st.sampled_from(["", " ", "x" * 600, "\n" * 50, "0", "null", "NaN"]),
)
numbers = st.one_of(
    st.integers(),
    st.integers(-3, 3),
    st.sampled_from([2**31, 2**63, -(2**63) - 1, 10**30, 10**4_000]),
    st.floats(),
)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
# Values that are not JSON, but can be passed where JSON is expected.
_foreign = st.one_of(
    st.binary(max_size=4),
    st.just(object()),
    st.just({1, 2}),
    st.datetimes(),
    st.complex_numbers(),
    st.just(print),
    st.builds(lambda: (1, "two")),
)
json_like: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def nested(depth: int) -> Any:
    """Lists and objects within each other."""
    value: Any = "x"
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


anything: st.SearchStrategy[Any] = st.one_of(
    json_like,
    _foreign,
    st.dictionaries(scalars, scalars, max_size=2),
    st.sampled_from([20, 90, 110, 300, 490, 990, 5_000]).map(nested),
)

_kinds = st.sampled_from(
    ["text", "image_url", "input_audio", "file", "video_url", "refusal", "tool_use", "", "zyzzyva"]
)
parts = st.one_of(
    st.fixed_dictionaries({"type": _kinds | scalars}, optional={"text": scalars, "extra": anything}),
    st.builds(lambda kind, inner: {"type": kind, kind: inner}, _kinds, anything),
    anything,
)
_functions = st.one_of(
    st.fixed_dictionaries({"name": scalars, "arguments": scalars | anything}),
    anything,
)
_calls = st.one_of(
    st.fixed_dictionaries(
        {"id": scalars}, optional={"type": scalars, "function": _functions, "custom": anything}
    ),
    anything,
)
_times = st.one_of(
    st.datetimes(timezones=st.just(UTC)),
    st.datetimes(),
    st.just("2024-02-30"),
    st.just(datetime.max.replace(tzinfo=UTC)),
    texts,
)
_roles = st.sampled_from(["user", "assistant", "system", "developer", "tool", "function", "User", ""])

messages: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"role": _roles, "content": texts}, optional={"metadata": json_like}),
    st.fixed_dictionaries({"role": _roles, "content": st.lists(parts, max_size=3)}),
    st.fixed_dictionaries(
        {"role": _roles | scalars},
        optional={
            "content": st.one_of(texts, st.lists(parts, max_size=3), anything),
            "name": scalars,
            "id": scalars,
            "tool_calls": st.lists(_calls, max_size=2) | anything,
            "tool_call_id": scalars,
            "metadata": st.dictionaries(texts, json_like, max_size=3) | anything,
            "created_at": _times | scalars,
            "function_call": _functions,
            "refusal": scalars | anything,
            "seq": scalars,
            "tokens": scalars,
            "zyzzyva": anything,
        },
    ),
    anything,
)
