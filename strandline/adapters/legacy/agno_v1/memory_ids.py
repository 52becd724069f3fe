"""The ids that callers gave to memories, which no fact can have as its own: items of the adapter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.producers.execution import OperationRunner, Resources
from strandline.producers.items.operations import (
    Answer,
    Request,
    StoredItem,
    answer_requests,
    claim_item,
    items_by_key,
)
from strandline.producers.items.requests import ItemGet, ItemPut, check_key, path_of, value_json
from strandline.schemas.values.identity import adapter_items_key

MAX_VALUE_BYTES = 8_000
PAGE = 1_000

_BY_ID = ("ids",)
_BY_FACT = ("facts",)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the memory of an id is."""

    user_id: str
    fact_id: UUID


class MemoryIds:
    """The ids of a namespace, each with its user and fact."""

    def __init__(self, resources: Resources, namespace: str) -> None:
        self._runner = OperationRunner(resources)
        self._key = adapter_items_key(namespace, "agno_1")

    def find(self, memory_id: str) -> Place | None:
        """Where the memory of an id is; None if no caller gave it."""
        (item,) = self._ask(ItemGet(path_of(_BY_ID), check_key(memory_id), False))
        if not isinstance(item, StoredItem) or "fact_id" not in item.value:
            return None
        return Place(str(item.value["user_id"]), UUID(item.value["fact_id"]))

    def of_facts(self, fact_ids: Sequence[UUID]) -> dict[UUID, str]:
        """The ids that callers gave, by fact."""
        gets = [ItemGet(path_of(_BY_FACT), str(fact_id), False) for fact_id in fact_ids]
        items = self._ask(*gets) if gets else []
        return {UUID(item.key): str(item.value["id"]) for item in items if isinstance(item, StoredItem)}

    def claim(self, memory_id: str, user_id: str) -> tuple[str, bool]:
        """Reserve an id for a user, before there is a fact; returns whose it is, and whether it was free."""
        put = _put(_BY_ID, memory_id, {"user_id": user_id})
        known, is_new = self._runner.run(claim_item(self._key, put))
        return str(known["user_id"]), is_new

    def release(self, memory_id: str) -> None:
        """Forget an id that was reserved, and is not used."""
        self._ask(_put(_BY_ID, memory_id))

    def keep(self, memory_id: str, place: Place) -> None:
        """Keep an id; of several ids of one fact, the first one is shown."""
        fact_id = str(place.fact_id)
        puts = [_put(_BY_ID, memory_id, {"user_id": place.user_id, "fact_id": fact_id})]
        if place.fact_id not in self.of_facts([place.fact_id]):
            puts.append(_put(_BY_FACT, fact_id, {"id": memory_id}))
        self._ask(*puts)

    def forget(self, memory_id: str, place: Place) -> None:
        """Forget an id."""
        self._ask(_put(_BY_ID, memory_id), _put(_BY_FACT, str(place.fact_id)))

    def users(self) -> list[str]:
        """The users of all ids, by name."""
        return sorted({str(value["user_id"]) for page in self._pages(_BY_ID) for _key, value in page})

    def forget_all(self) -> None:
        """Forget all ids of the namespace."""
        for labels in (_BY_ID, _BY_FACT):
            for page in self._pages(labels):
                self._ask(*[_put(labels, key) for key, _value in page])

    def _ask(self, *requests: Request) -> list[Answer]:
        return self._runner.run(answer_requests(self._key, requests))

    def _pages(self, labels: tuple[str]) -> Iterator[list[tuple[str, Any]]]:
        after = ""
        while page := self._runner.run(items_by_key(self._key, path_of(labels), after, PAGE)):
            yield page
            after = page[-1][0]


def _put(labels: tuple[str], key: str, value: Mapping[str, str] | None = None) -> ItemPut:
    stored = None if value is None else value_json(value, MAX_VALUE_BYTES)
    return ItemPut(path_of(labels), check_key(key), stored)
