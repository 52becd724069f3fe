"""The ids that callers gave to memories, which no fact can have as its own: items of the adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.producers.execution import OperationRunner, Resources
from strandline.producers.items.filters import ItemFilter
from strandline.producers.items.operations import StoredItem, answer_requests, claim_item, items_by_key
from strandline.producers.items.requests import (
    ItemGet,
    ItemPut,
    ItemSearch,
    check_key,
    path_of,
    range_below,
    value_json,
)
from strandline.schemas.values.identity import adapter_items_key

MAX_VALUE_BYTES = 8_000
PAGE = 1_000
ALL = ItemFilter()

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
        get = ItemGet(path_of(_BY_ID), check_key(memory_id), False)
        (item,) = self._runner.run(answer_requests(self._key, [get]))
        if not isinstance(item, StoredItem) or "fact_id" not in item.value:
            return None
        return Place(str(item.value["user_id"]), UUID(item.value["fact_id"]))

    def of_facts(self, fact_ids: Sequence[UUID]) -> dict[UUID, str]:
        """The ids that callers gave, by fact."""
        gets = [ItemGet(path_of(_BY_FACT), str(fact_id), False) for fact_id in fact_ids]
        items = self._runner.run(answer_requests(self._key, gets)) if gets else []
        return {UUID(item.key): str(item.value["id"]) for item in items if isinstance(item, StoredItem)}

    def claim(self, memory_id: str, user_id: str) -> tuple[str, bool]:
        """Reserve an id for a user, before there is a fact; returns whose it is, and whether it was free."""
        value = value_json({"user_id": user_id}, MAX_VALUE_BYTES)
        put = ItemPut(path_of(_BY_ID), check_key(memory_id), value)
        known, is_new = self._runner.run(claim_item(self._key, put))
        return str(known["user_id"]), is_new

    def release(self, memory_id: str) -> None:
        """Forget an id that was reserved, and is not used."""
        put = ItemPut(path_of(_BY_ID), check_key(memory_id), None)
        self._runner.run(answer_requests(self._key, [put]))

    def keep(self, memory_id: str, place: Place) -> None:
        """Keep an id; of several ids of one fact, the first one is shown."""
        fields = {"user_id": place.user_id, "fact_id": str(place.fact_id)}
        puts = [ItemPut(path_of(_BY_ID), check_key(memory_id), value_json(fields, MAX_VALUE_BYTES))]
        if place.fact_id not in self.of_facts([place.fact_id]):
            value = value_json({"id": memory_id}, MAX_VALUE_BYTES)
            puts.append(ItemPut(path_of(_BY_FACT), str(place.fact_id), value))
        self._runner.run(answer_requests(self._key, puts))

    def forget(self, memory_id: str, place: Place) -> None:
        """Forget an id."""
        puts = [
            ItemPut(path_of(_BY_ID), check_key(memory_id), None),
            ItemPut(path_of(_BY_FACT), str(place.fact_id), None),
        ]
        self._runner.run(answer_requests(self._key, puts))

    def users(self) -> list[str]:
        """The users of all ids, by name."""
        users: set[str] = set()
        after = ""
        while True:
            page = self._runner.run(items_by_key(self._key, path_of(_BY_ID), after, PAGE))
            users.update(str(value["user_id"]) for _key, value in page)
            if len(page) < PAGE:
                return sorted(users)
            after = page[-1][0]

    def forget_all(self) -> None:
        """Forget all ids of the namespace."""
        for labels in (_BY_ID, _BY_FACT):
            search = ItemSearch(range_below(labels), ALL, PAGE, 0, False)
            while True:
                (items,) = self._runner.run(answer_requests(self._key, [search]))
                keys = [item.key for item in items or () if isinstance(item, StoredItem)]  # type: ignore[union-attr]
                if not keys:
                    break
                puts = [ItemPut(path_of(labels), key, None) for key in keys]
                self._runner.run(answer_requests(self._key, puts))
