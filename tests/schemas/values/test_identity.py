"""Keys: no user's names lead to another user's rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import MAX_NAME_BYTES, identify_session, identify_user

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20).map("n{}n".format)
identities = st.tuples(names, names, st.none() | names)


@given(identities, identities)
def test_keys_are_equal_only_for_equal_names(one: Any, other: Any) -> None:
    first, second = identify_session(*one), identify_session(*other)
    assert (first.session_key == second.session_key) == (one[:2] == other[:2])
    owner = one[0], one[2], one[1] if one[2] is None else None
    other_owner = other[0], other[2], other[1] if other[2] is None else None
    assert (first.shard_key == second.shard_key) == (owner == other_owner)


@given(names, names)
def test_a_user_is_never_the_session_of_the_same_name(namespace: str, name: str) -> None:
    assert identify_user(namespace, name).shard_key != identify_session(namespace, name, None).shard_key


@given(names, names, names)
def test_parts_do_not_run_into_each_other(a: str, b: str, c: str) -> None:
    assert identify_user(a + b, c) != identify_user(a, b + c)


@given(names, names, names)
def test_a_session_lies_with_its_user(namespace: str, session: str, user: str) -> None:
    assert identify_session(namespace, session, user).owner == identify_user(namespace, user)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "is empty"),
        ("a\x00b", "NUL"),
        ("\ud800", "lone surrogate"),
        ("x" * (MAX_NAME_BYTES + 1), "longer"),
        (7, "int"),
        ([1], "list"),
    ],
)
@pytest.mark.parametrize("field", ["namespace", "session_id", "user_id"])
def test_a_value_that_cannot_be_a_name_is_refused_by_its_field(field: str, name: Any, says: str) -> None:
    given_names = {"namespace": "n", "session_id": "s", "user_id": "u"} | {field: name}
    with pytest.raises(InvalidMessageError, match=says) as caught:
        identify_session(**given_names)
    assert caught.value.field == field
