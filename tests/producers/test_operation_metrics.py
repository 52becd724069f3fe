"""Operations are measured by their public names and outcomes, where the settings ask for it."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY

from strandline import OwnerError
from tests.conftest import MakeMemory
from tests.support.messages import user


def counted(operation: str, outcome: str = "ok") -> float:
    labels = {"operation": operation, "outcome": outcome}
    return REGISTRY.get_sample_value("strandline_operation_seconds_count", labels) or 0


def test_operations_are_counted_by_name_and_outcome(
    make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_OPERATION_METRICS", "true")
    memory = make_memory("s", user_id="maren")
    names = ("put", "get", "search", "history")
    before = {name: counted(name) for name in names}
    refused = counted("put", "OwnerError")
    memory.put(user("I sail."))
    memory.get("sails")
    memory.search("sails")
    memory.history()

    async def twins() -> None:
        await memory.aput(user("And I row."))
        await memory.aget("rows")
        await memory.asearch("rows")
        await memory.ahistory()

    asyncio.run(twins())
    assert {name: counted(name) - before[name] for name in names} == dict.fromkeys(names, 2)
    with pytest.raises(OwnerError):
        make_memory("s", user_id="lars").put(user("I sail as well."))
    assert counted("put", "OwnerError") == refused + 1


def test_nothing_is_counted_otherwise(make_memory: MakeMemory) -> None:
    before = counted("put")
    make_memory("s", user_id="maren").put(user("I sail."))
    assert counted("put") == before
