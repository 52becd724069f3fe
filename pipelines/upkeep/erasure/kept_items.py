"""What adapters keep of a user for themselves: items of the namespace, whose values may be sealed.

So no statement can find the user's among them: a page at a time, they are opened here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.schemas.erasure_plan import ADAPTERS_WITH_ITEMS
from strandline.schemas.errors import KeyUnavailableError, SealedContentError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.upkeep.erasures import (
    EraseKeptItems,
    KeptItemNames,
    KeptItems,
    KeptItemsRow,
)
from strandline.schemas.values.identity import adapter_items_key

PAGE = 500
# Which user and fact each id is of, and under the fact's own id the one that was given to it.
_BY_ID = "ids."
_BY_FACT = "facts."


@dataclass(frozen=True, slots=True)
class KeptErased:
    """What was erased of a user: ``rows`` items; ``unread`` ones could not be opened, whosever they are."""

    rows: int = 0
    unread: int = 0


def erase_kept_items(number: int, namespace: str, user_id: str) -> Operation[KeptErased]:
    """Delete what adapters keep of a user; counted with the erasure of this number."""
    rows = unread = 0
    for adapter in ADAPTERS_WITH_ITEMS:
        shard_key = adapter_items_key(namespace, adapter)
        while True:
            erased = yield from _erase_pass(number, shard_key, user_id)
            rows += erased.rows
            if not erased.rows:  # what was written meanwhile is found by another pass
                break
        unread += erased.unread
    return KeptErased(rows, unread)


def _erase_pass(number: int, shard_key: UUID, user_id: str) -> Operation[KeptErased]:
    rows = unread = 0
    after = ""
    while True:
        names = yield from fetch(KeptItemNames(shard_key=shard_key, path=_BY_ID, after=after, limit=PAGE))
        opened, sealed = yield from _open(shard_key, [name.key for name in names])
        unread += sealed
        rows += yield from _erase_those_of(number, shard_key, user_id, opened)
        if len(names) < PAGE:
            return KeptErased(rows, unread)
        after = names[-1].key


def _open(shard_key: UUID, keys: Sequence[str]) -> Operation[tuple[list[KeptItemsRow], int]]:
    """The items of these keys; and how many of them do not open."""
    if not keys:
        return [], 0
    try:
        return (yield from fetch(KeptItems(shard_key=shard_key, path=_BY_ID, keys=list(keys)))), 0
    except KeyUnavailableError:
        return [], len(keys)
    except SealedContentError:
        if len(keys) == 1:
            return [], 1
    opened: list[KeptItemsRow] = []
    sealed = 0
    for key in keys:
        one, closed = yield from _open(shard_key, [key])
        opened += one
        sealed += closed
    return opened, sealed


def _erase_those_of(
    number: int, shard_key: UUID, user_id: str, items: Sequence[KeptItemsRow]
) -> Operation[int]:
    gone: list[tuple[str, str, str | None]] = []
    for item in items:
        value = json.loads(item.value)
        if isinstance(value, dict) and value.get("user_id") == user_id:
            gone.append((_BY_ID, item.key, item.version))
            if value.get("fact_id") is not None:  # of this user's fact, whatever is kept of it now
                gone.append((_BY_FACT, str(value["fact_id"]), None))
    if not gone:
        return 0
    paths, keys, versions = map(list, zip(*gone, strict=True))
    (done,) = yield from fetch(
        EraseKeptItems(number=number, shard_key=shard_key, paths=paths, keys=keys, versions=versions)
    )
    return done.rows
