"""Operations on items: reads first, then writes; of several, all in one transaction if one is a write."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from strandline.pipelines.audit.appending import Act, append_act
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.items.filters import ItemFilter, fits_filter
from strandline.producers.items.requests import ItemGet, ItemPut, ItemSearch, PathList, labels_of
from strandline.schemas.postgres.operations import Atomic, Operation, fetch, find_owner_keys
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.application.items import (
    ClaimItem,
    DeleteItems,
    GetItems,
    ItemsAfter,
    ListItemPaths,
    LockItems,
    PutItems,
    RefreshItems,
    SearchItems,
    SearchItemsByVector,
)

# How many items are opened at a time where values are sealed, and a filter cannot be Postgres' work.
SEALED_PAGE = 500


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as it is stored; ``score`` is its nearness to the query of a search, if there was one."""

    labels: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: datetime
    updated_at: datetime
    score: float | None = None


Request = ItemGet | ItemSearch | PathList | ItemPut
Answer = StoredItem | list[StoredItem] | list[tuple[str, ...]] | None


class _Row(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def value(self) -> str: ...
    @property
    def ttl_minutes(self) -> float | None: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def updated_at(self) -> datetime: ...


def answer_requests(shard_key: UUID, requests: Sequence[Request]) -> Operation[list[Answer]]:
    """Answer requests, in their order.

    Reads see the items as before these requests; the last of several puts of an item counts.
    """
    if len(requests) > 1 and any(isinstance(request, ItemPut) for request in requests):
        answers: list[Answer] = yield Atomic(partial(_answer_all, shard_key, requests))
        return answers
    return (yield from _answer_all(shard_key, requests))


def claim_item(shard_key: UUID, claim: ItemPut) -> Operation[tuple[dict[str, Any], bool]]:
    """Store an item unless there is one; returns the value that is there then, and whether it is new."""
    assert claim.value is not None, "a claim stores a value"  # noqa: S101
    while True:
        asked = ClaimItem(shard_key=shard_key, path=claim.path, key=claim.key, value=claim.value)
        for row in (yield from fetch(asked)):
            return json.loads(row.value), row.is_new


def items_by_key(shard_key: UUID, path: str, after: str, limit: int) -> Operation[list[tuple[str, Any]]]:
    """A page of the items under a path, those whose keys come after one: each key with its value."""
    rows = yield from fetch(ItemsAfter(shard_key=shard_key, path=path, after=after, limit=limit))
    return [(row.key, json.loads(row.value)) for row in rows]


def _answer_all(shard_key: UUID, requests: Sequence[Request]) -> Operation[list[Answer]]:
    answers: list[Answer] = [None] * len(requests)
    gets = {place: one for place, one in enumerate(requests) if isinstance(one, ItemGet)}
    if gets:
        items = yield from _get(shard_key, list(gets.values()))
        for place, get in gets.items():
            answers[place] = items.get((get.path, get.key))
    for place, request in enumerate(requests):
        if isinstance(request, ItemSearch):
            answers[place] = yield from _search(shard_key, request)
        elif isinstance(request, PathList):
            rows = yield from fetch(
                ListItemPaths.of(
                    request,
                    shard_key=shard_key,
                    path_from=request.paths.start,
                    path_before=request.paths.end,
                    patterns=list(request.patterns),
                )
            )
            answers[place] = [tuple(row.labels) for row in rows]
    yield from _put(shard_key, [one for one in requests if isinstance(one, ItemPut)])
    return answers


def _get(shard_key: UUID, gets: Sequence[ItemGet]) -> Operation[dict[tuple[str, str], StoredItem]]:
    names = sorted({(get.path, get.key) for get in gets})
    rows = yield from fetch(
        GetItems(
            shard_key=shard_key, paths=[path for path, _key in names], keys=[key for _path, key in names]
        )
    )
    refreshed = {(get.path, get.key) for get in gets if get.refreshes}
    yield from _refresh(shard_key, [row for row in rows if (row.path, row.key) in refreshed])
    return {(row.path, row.key): _item(row) for row in rows}


def _search(shard_key: UUID, search: ItemSearch) -> Operation[list[StoredItem]]:
    if search.filter != ItemFilter() and (yield from find_owner_keys(shard_key)) is not None:
        return (yield from _search_sealed(shard_key, search))
    rows: Sequence[_Row] = yield from fetch(_statement(shard_key, search))
    yield from _refresh(shard_key, rows if search.refreshes else ())
    return [_item(row, getattr(row, "score", None)) for row in rows]


def _search_sealed(shard_key: UUID, search: ItemSearch) -> Operation[list[StoredItem]]:
    """``_search`` for sealed values: all items below the path are read and filtered, in pages."""
    items: list[StoredItem] = []
    passed, read = 0, 0
    while len(items) < search.limit:
        page = replace(search, filter=ItemFilter(), limit=SEALED_PAGE, offset=read, refreshes=False)
        rows: Sequence[_Row] = yield from fetch(_statement(shard_key, page))
        read += len(rows)
        for row in rows:
            if all(fits_filter(row.value, part) for part in (search.filter.equal, search.filter.conditions)):
                passed += 1
                if search.offset < passed <= search.offset + search.limit:
                    items.append(_item(row, getattr(row, "score", None)))
                    yield from _refresh(shard_key, [row] if search.refreshes else ())
        if len(rows) < SEALED_PAGE:
            break
    return items


def _statement(shard_key: UUID, search: ItemSearch) -> Query[Any]:
    asked: dict[str, Any] = {
        "shard_key": shard_key,
        "path_from": search.paths.start,
        "path_before": search.paths.end,
        "equal": search.filter.equal,
        "filter": search.filter.conditions,
        "limit": search.limit,
        "offset": search.offset,
    }
    if search.vector is None:
        return SearchItems(**asked)
    return SearchItemsByVector(**asked, vector=search.vector, distance=search.distance)


def _refresh(shard_key: UUID, rows: Iterable[_Row]) -> Operation[None]:
    """Only items with a time to live cost a write."""
    names = sorted({(row.path, row.key) for row in rows if row.ttl_minutes is not None})
    if names:
        yield from fetch(
            RefreshItems(
                shard_key=shard_key, paths=[path for path, _key in names], keys=[key for _path, key in names]
            )
        )


def _put(shard_key: UUID, puts: Sequence[ItemPut]) -> Operation[None]:
    latest = {(put.path, put.key): put for put in puts}
    ordered = [latest[name] for name in sorted(latest)]
    if len(ordered) > 1:
        # Deletions and puts are two statements, each in an order of its own.
        paths, keys = [put.path for put in ordered], [put.key for put in ordered]
        yield from fetch(LockItems(shard_key=shard_key, paths=paths, keys=keys))
    gone = [put for put in ordered if put.value is None]
    if gone:
        yield from fetch(
            DeleteItems(shard_key=shard_key, paths=[put.path for put in gone], keys=[put.key for put in gone])
        )
    if stored := [put for put in ordered if put.value is not None]:
        yield from fetch(PutItems(shard_key=shard_key, items=f"[{','.join(map(_put_json, stored))}]"))


def _put_json(put: ItemPut) -> str:
    beside = {
        "path": put.path,
        "key": put.key,
        "vectors": put.vectors,
        "ttl_minutes": put.ttl_minutes,
    }
    return f'{json.dumps(beside, ensure_ascii=False)[:-1]}, "value": {put.value}}}'


def _item(row: _Row, score: float | None = None) -> StoredItem:
    return StoredItem(
        labels=labels_of(row.path),
        key=row.key,
        value=json.loads(row.value),
        created_at=row.created_at,
        updated_at=row.updated_at,
        score=score,
    )


def answer_recorded(
    recorder: Recorder, shard_key: UUID, requests: Sequence[Request]
) -> Operation[list[Answer]]:
    """Answer requests as ``answer_requests`` does, and append the acts to the trail.

    Deletions are recorded in their transaction, as changes are.  Puts and reads are recorded where reads are,
    which this process looks up every five seconds.

    Raises:
        ActRefusedError: the compliance hook refuses one of them; nothing was done.
    """
    puts = [one for one in requests if isinstance(one, ItemPut)]
    gone = sum(1 for one in puts if one.value is None)
    if not puts:
        act = Act.here("items.read", count=len(requests))
        return (yield from recorder.read(act, answer_requests(shard_key, requests)))
    acts = []
    for kind, count in (
        ("items.read", len(requests) - len(puts)), ("items.put", len(puts) - gone), ("items.delete", gone),
    ):  # fmt: skip
        if count:
            acts.append((yield from recorder.check(Act.here(kind, count=count))))
    if not (yield from recorder.records_reads()):
        acts = [act for act in acts if act.level == "changes"]
    if not acts:
        return (yield from answer_requests(shard_key, requests))
    answers: list[Answer] = yield Atomic(partial(_answer_and_append, recorder, shard_key, requests, acts))
    return answers


def _answer_and_append(
    recorder: Recorder, shard_key: UUID, requests: Sequence[Request], acts: Sequence[Act]
) -> Operation[list[Answer]]:
    answers = yield from answer_requests(shard_key, requests)
    for act in acts:
        yield from append_act(recorder.whom, act)
    return answers
