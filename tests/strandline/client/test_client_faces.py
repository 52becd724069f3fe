"""The client's classes have what ``Memory`` and its facts have, in the same words, or here is a reason."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from strandline import ConfigurationError, Facts, Memory
from strandline.client import (
    AsyncRemoteAdmin,
    AsyncRemoteFacts,
    AsyncRemoteMemory,
    RemoteAdmin,
    RemoteFacts,
    RemoteMemory,
    RemoteService,
)
from strandline.client.session import _OF_THE_SERVICE

# Of a method that the client has not, why.
MISSING = {
    "Memory": {
        "set": "a reset and a put: two requests, each of which can be repeated",
        "call_tool": "calls of tools go to /mcp",
        "retention_acts": "an operator's record",
        "put_limits": "the service's, whose refusal names the bound",
        "namespace": "the key's, which RemoteAdmin.whoami tells",
        "memory_blocks": "the service reads with those that are stored with the session",
    },
    "Facts": {
        "apply_optimization": "optimize(apply=True) proposes and carries out in one request",
        "capture_acts": "an operator's record",
        "namespace": "the key's, which RemoteAdmin.whoami tells",
        "of_namespace": "RemoteAdmin.users lists them; clearing all of a namespace is an operator's command",
    },
}
# Of an argument that the client has not, or has besides, why.
ARGUMENTS = {
    "connection": "joins a transaction of the caller's, which ends at the service",
    "Memory.from_defaults service": "where memory is, in place of a database",
    **{f"Memory.from_defaults {name}": reason for name, reason in _OF_THE_SERVICE.items()},
    "Memory.pop keep": "a function, which cannot be sent",
    "Memory.summarize_last model": "the service's settings name the model",
    "Memory.set_policy on_overflow": "handlers are the service's",
    "Memory.set_policy fixed": "takes unknown names, to explain them",
    "Facts.for_owner service": "where facts are, in place of a database",
    "Facts.for_owner session_id": "facts over HTTP are those of a user",
    **{
        f"Facts.for_owner {name}": _OF_THE_SERVICE[name]
        for name in ("namespace", "database_url", "pool", "schema")
    },
    "Facts.search first_n": "the route has only the best",
    "Facts.search last_n": "the route has only the best",
    "Facts.choose agent_id": "the route has no such filter",
    "Facts.choose team_id": "the route has no such filter",
    "Facts.choose model": "the service's settings name the model",
    "Facts.clear actor": "the act names the key",
    "Facts.delete actor": "the act names the key",
    "Facts.optimize apply": "a proposal is not kept between requests",
}
# Types that differ: what is sent is of the wire, or a name; what is made is of the client.
TYPES = {
    ("Memory", "from_defaults", "memory_blocks"),
    ("Memory", "from_defaults", "insert_method"),
    ("Memory", "from_defaults", "return"),
    ("Facts", "for_owner", "return"),
    ("Memory", "set_policy", "memory_blocks"),
    ("Facts", "import_facts", "facts"),
    ("Facts", "optimize", "return"),
}
# Defaults that differ: facts over HTTP are those of a user, who is named.
DEFAULTS = {("Facts", "for_owner", "user_id")}
PAIRS: list[tuple[str, type, type]] = [("Memory", Memory, RemoteMemory), ("Facts", Facts, RemoteFacts)]


def public(face: type) -> dict[str, Any]:
    return {name: value for name, value in inspect.getmembers(face) if not name.startswith("_")}


def words(face: str, name: str, method: Any) -> dict[str, tuple[Any, Any, str]]:
    """Kind, default and type of each parameter, and the result."""
    signature = inspect.signature(method)
    shown: dict[str, tuple[Any, Any, str]] = {
        one.name: (one.kind, one.default, str(one.annotation))
        for one in signature.parameters.values()
        if one.name != "self"
    }
    shown["return"] = (None, None, str(signature.return_annotation))
    return {
        argument: value
        for argument, value in shown.items()
        if argument not in ARGUMENTS and f"{face}.{name} {argument}" not in ARGUMENTS
    }


@pytest.mark.parametrize(("face", "near", "far"), PAIRS)
def test_every_method_is_there_or_a_reason_is(face: str, near: type, far: type) -> None:
    sync = {name for name in public(near) if not (name[0] == "a" and name[1:] in public(near))}
    lacking = sync - set(public(far))
    assert lacking == set(MISSING[face]), "list it with its reason, or take it out"
    for name in sync - lacking:
        if f"a{name}" in public(near):
            assert f"a{name}" in public(far), name


@pytest.mark.parametrize(("face", "near", "far"), PAIRS)
def test_its_signature_is_the_same_but_for_what_is_listed(face: str, near: type, far: type) -> None:
    compared = 0
    for name, method in public(near).items():
        plain = name.removeprefix("a") if name[0] == "a" and name[1:] in public(near) else name
        if not callable(method) or name not in public(far) or f"{face}.{plain}" in ARGUMENTS:
            continue
        ours, theirs = words(face, plain, public(far)[name]), words(face, plain, method)
        for argument in {*ours, *theirs}:
            place = (face, plain, argument)
            expected: Any = theirs.get(argument)
            given: Any = ours.get(argument)
            if expected and given:
                same = 1 if place in DEFAULTS else 2 if place in TYPES else 3
                assert (expected == given) == (same == 3), place
                expected, given = expected[:same], given[:same]
            assert given == expected, place
            compared += 1
    assert compared > 80


def test_each_reason_is_still_needed() -> None:
    for key in ARGUMENTS:
        place, _, argument = key.partition(" ")
        face, _, name = place.partition(".")
        if not name:
            assert argument == "", key
            continue
        near = {"Memory": Memory, "Facts": Facts}[face]
        far = {"Memory": RemoteMemory, "Facts": RemoteFacts}[face]
        has = [argument in inspect.signature(getattr(one, name)).parameters for one in (near, far)]
        assert has in ([True, False], [False, True]), key


@pytest.mark.parametrize("name", _OF_THE_SERVICE)
def test_what_is_configured_at_the_service_is_refused_with_its_reason(name: str) -> None:
    given: dict[str, Any] = {name: "x"}
    with pytest.raises(ConfigurationError, match=_OF_THE_SERVICE[name]):
        RemoteMemory.from_defaults(service=RemoteService("http://x", "sl_a_b"), **given)


@pytest.mark.parametrize(
    ("sync", "asynchronous"),
    [(RemoteMemory, AsyncRemoteMemory), (RemoteFacts, AsyncRemoteFacts), (RemoteAdmin, AsyncRemoteAdmin)],
)
def test_the_asyncio_classes_have_the_same_names(sync: type, asynchronous: type) -> None:
    assert set(public(sync)) == set(public(asynchronous))
    for name, method in public(sync).items():
        twin = getattr(asynchronous, name)
        if callable(method) and not inspect.ismethod(method) and inspect.isfunction(twin):
            assert list(inspect.signature(twin).parameters) == list(inspect.signature(method).parameters)
