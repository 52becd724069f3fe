"""Each operation is there sync and async, with the same arguments; a twin that falls behind fails here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from strandline import Audit, Facts, Memory
from strandline.producers.namespace_facts import NamespaceFacts

# Plain values, and what makes the object itself.
NO_IO = {"from_defaults", "for_owner", "of_namespace", "get_scope", "tools"}
# Done once, from a command or a script.
FOR_SCRIPTS = {"import_messages", "import_facts"}


def operations(owner: type) -> dict[str, Any]:
    return {
        name: function
        for name, function in inspect.getmembers(owner, callable)
        if not name.startswith("_") and name not in NO_IO
    }


@pytest.mark.parametrize("owner", [Memory, Facts, NamespaceFacts, Audit])
def test_every_operation_has_a_twin_with_the_same_arguments(owner: type) -> None:
    found = operations(owner)
    pairs = [(name, f"a{name}") for name in found if f"a{name}" in found]
    assert set(found) - {name for pair in pairs for name in pair} <= FOR_SCRIPTS
    for sync, twin in pairs:
        assert inspect.signature(found[sync]).parameters == inspect.signature(found[twin]).parameters, sync
        assert inspect.iscoroutinefunction(found[twin]) or inspect.isasyncgenfunction(found[twin]), twin
        assert not inspect.iscoroutinefunction(found[sync]), sync


def test_the_operations_of_the_documents_are_there() -> None:
    named = {"put", "put_messages", "get", "get_all", "set", "reset"}
    assert named | {f"a{name}" for name in named} <= set(operations(Memory))
