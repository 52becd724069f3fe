"""Each operation is there sync and async, with the same arguments; a twin that falls behind fails here."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from strandline import Audit, Facts, Memory
from strandline.producers.namespace_facts import NamespaceFacts
from tests.conftest import MakeMemory

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


async def test_twins_see_what_the_others_did(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=["vectors"])

    assert await memory.aput({"role": "user", "content": "The anchor is on deck."}) == 1
    assert await memory.aput_messages([{"role": "assistant", "content": "Good."}]) == [2]
    assert [hit.message.seq for hit in await memory.asearch("anchor", limit=1)] == [1]
    assert str(await memory.apop()) == "assistant: Good."
    assert [message.seq async for message in memory.aiterate()] == [1]
    assert await memory.aget_all() == memory.get_all() == list(await memory.aget())
    assert await memory.aset([{"role": "user", "content": "Anew."}]) == [3]
    assert len(await memory.aflush(all=True)) == 1
    await memory.areset(derived=True)
    await memory.aclose()
    assert memory.get_all() == [] and memory.search("anchor") == []
