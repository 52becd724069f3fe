"""One rule of a name, everywhere: two spellings that a header or a form makes one are never two users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from strandline.administration.keys import KeySpec
from strandline.client import WITHOUT_USER, RemoteFacts, RemoteMemory, RemoteService
from strandline.client.operations import Call
from strandline.erasure import Erasures
from strandline.schemas.errors import StrandlineError
from strandline.schemas.values.acts.acting import acting
from strandline.schemas.values.identity import check_name, identify_session, identify_user
from strandline.schemas.values.policy import make_policy
from strandline.schemas.wire.keys import KeyRequest
from strandline.schemas.wire.operations import Promotion, ReplayIn
from strandline.schemas.wire.sessions import ForkRequest
from tests.support.names.bad_names import BAD_NAMES, GOOD_NAMES, RESERVED_USERS

SERVICE = RemoteService("http://127.0.0.1:1", "sl_" + "0" * 16 + "_" + "0" * 64)


def enter(name: str) -> None:
    with acting(actor=name):
        pass


# Each takes a name of any kind.
NAMES: dict[str, Callable[[Any], object]] = {
    "namespace": lambda name: identify_session(name, "s", None),
    "session": lambda name: identify_session("n", name, None),
    "namespace of a user": lambda name: identify_user(name, "u"),
    "shared scope": lambda name: make_policy(tokenizer="", pipelines=(), shared_scope=name),
    "actor": enter,
    "key's namespace": lambda name: KeySpec(name, ["read"]),
    "key's scope": lambda name: KeySpec("n", ["read"], user_id="u", shared_scopes=[name]),
    "erasures": lambda name: Erasures.of_namespace(name, database_url="postgresql://127.0.0.1:1/x"),
    "fork over HTTP": lambda name: ForkRequest(session_id=name),
    "key's namespace over HTTP": lambda name: KeyRequest(scopes=["read"], namespace=name),
    "remote session": lambda name: RemoteMemory.from_defaults(name, service=SERVICE),
    "remote scope": lambda name: RemoteMemory.from_defaults("s", service=SERVICE).get_scope(name),
}
# Each takes the id of a user.
USERS: dict[str, Callable[[Any], object]] = {
    "session": lambda name: identify_session("n", "s", name),
    "user": lambda name: identify_user("n", name),
    "key": lambda name: KeySpec("n", ["read"], user_id=name),
    "key over HTTP": lambda name: KeyRequest(scopes=["read"], user_id=name),
    "replay over HTTP": lambda name: ReplayIn(user_id=name),
    "promotion over HTTP": lambda name: Promotion(user_id=name),
    "remote memory": lambda name: RemoteMemory.from_defaults("s", user_id=name, service=SERVICE),
    "remote facts": lambda name: RemoteFacts.for_owner(user_id=name, service=SERVICE),
    "header of the client": lambda name: SERVICE.request_of(Call("GET", "/v1/sessions", user_id=name)),
}


def is_refused(enter_name: Callable[[Any], object], name: str) -> bool:
    try:
        enter_name(name)
    except (StrandlineError, ValidationError):
        return True
    return False


@pytest.mark.parametrize("entry", NAMES)
def test_every_entry_refuses_what_is_no_name(entry: str) -> None:
    assert [name for name in BAD_NAMES if not is_refused(NAMES[entry], name)] == []
    assert [name for name in GOOD_NAMES if is_refused(NAMES[entry], name)] == []


@pytest.mark.parametrize("entry", USERS)
def test_every_entry_refuses_what_is_no_user(entry: str) -> None:
    assert [name for name in (*BAD_NAMES, *RESERVED_USERS) if not is_refused(USERS[entry], name)] == []
    assert [name for name in GOOD_NAMES if is_refused(USERS[entry], name)] == []


def test_the_name_of_all_namespaces_is_no_tenants() -> None:
    assert is_refused(NAMES["namespace"], "*") and is_refused(NAMES["key's namespace"], "*")


def test_the_client_says_without_user_by_a_value_of_its_own() -> None:
    assert RemoteMemory.from_defaults("s", user_id=WITHOUT_USER, service=SERVICE).user_id == "-"
    sent = SERVICE.request_of(Call("GET", "/v1/sessions", user_id=WITHOUT_USER))
    assert sent["headers"]["Strandline-User"] == b"-"


@given(st.text(min_size=1, max_size=20))
def test_no_name_is_changed_by_what_strips_it(name: str) -> None:
    if not is_refused(lambda text: check_name("name", text), name):
        assert name.strip() == name and name.strip("\ufeff\u200b\u2060") == name
        assert not any(ord(character) < 32 for character in name)


def test_ways_to_write_one_letter_are_two_names() -> None:
    """They are not changed silently: an application normalises before it asks."""
    assert identify_user("n", "Zo\u00eb").shard_key != identify_user("n", "Zoe\u0308").shard_key
