"""The work of an erasure: the fence in one transaction, and then the rest, a page a transaction.

Each page is counted in the transaction that deletes it, so an interrupted erasure is simply started again: it
finds its number, and resumes.  Two concurrent ones share the work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Literal, Protocol
from uuid import UUID, uuid4

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.audit.upkeep import forget_pseudonym
from strandline.pipelines.facts.edits import take_away_again
from strandline.pipelines.upkeep.erasure.target import ErasureTarget
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConflictError, KeyUnavailableError, NotFoundError, SealedContentError
from strandline.schemas.postgres.operations import Operation, atomic, fetch
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.erased import ERASED, SCOPED
from strandline.schemas.queries.upkeep.erasures import (
    EraseDirectory,
    ErasedRows,
    EraseItems,
    EraseKeptItems,
    EraseNames,
    EraseRows,
    EraseSession,
    EraseShared,
    FenceOwner,
    KeptItemNames,
    KeptItems,
    KeptItemsRow,
    MoveRows,
    NoteMissed,
)
from strandline.schemas.values.identity import adapter_items_key, item_store_key

# Adapters that keep items of users for themselves (``adapter_items_key``).
ADAPTERS_WITH_ITEMS = ("agno_1",)
PAGE = 500
# The user and fact of each given id, and under the fact's own id the given one.
_BY_ID = "ids."
_BY_FACT = "facts."


@dataclass(frozen=True, slots=True)
class KeptErased:
    """The erased items of a user: ``rows``; ``unread`` ones, of any user, could not be opened."""

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
            if not erased.rows:  # another pass finds concurrent writes
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
            if value.get("fact_id") is not None:  # of this user's fact, whatever its present item
                gone.append((_BY_FACT, str(value["fact_id"]), None))
    if not gone:
        return 0
    paths, keys, versions = map(list, zip(*gone, strict=True))
    (done,) = yield from fetch(
        EraseKeptItems(number=number, shard_key=shard_key, paths=paths, keys=keys, versions=versions)
    )
    return done.rows


ROWS_PER_PAGE = 2_000
# Nothing is added after the fence; another pass finds rows of earlier transactions.
MAX_PASSES = 5
# The tables whose rows name the objects in archives.
STEPS = ("retention_step", "given_up_step")
# Their rows stay, under a random key.
MOVED = ("model_call", "audit_entry")

Step = Literal["fence", "names", "shared", "rows", "calls", "directory", "items", "check", "receipt"]
OnProgress = Callable[[Step, str, int], None]


class _Page(Protocol):
    @property
    def rows(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ItemRange:
    """Items of the namespace below a path, which the application says are the user's."""

    path_from: str
    path_before: str


@dataclass(frozen=True, slots=True)
class ErasureOrder:
    """The erasure to run; a forced one also where it was done before, because a restore brought rows back."""

    target: ErasureTarget
    actor: str | None = None
    items: Sequence[ItemRange] = ()
    is_forced: bool = False
    erasure_id: UUID = field(default_factory=uuid4)
    act: Act = field(default_factory=partial(Act.here, "erasure"))
    on_progress: OnProgress = lambda _step, _table, _rows: None


@dataclass(frozen=True, slots=True)
class Fenced:
    """An erasure whose fence stands; ``is_done`` if an earlier one was finished and nothing was begun."""

    number: int
    ledger_key: UUID
    requested_at: datetime | None
    is_done: bool = False


def set_fence(order: ErasureOrder) -> Operation[Fenced]:
    """The decisive transaction: from its commit on, nothing can be written for the target.

    Raises:
        NotFoundError: there is no such session.
        ConflictError: the erasure of the session's user is not finished.
    """
    order.on_progress("fence", "erasure_fence", 0)
    return (yield from (_fence_session if order.target.session_key else _fence_owner)(order))


@atomic
def _fence_owner(order: ErasureOrder) -> Operation[Fenced]:
    target = order.target
    (row,) = yield from fetch(
        FenceOwner.of(
            order,
            kind=target.kind,
            namespace=target.namespace,
            shard_key=target.owner_key,
            ledger_key=uuid4(),
            user_id=target.user_id,
            act=order.act.as_json(),
        )
    )
    return Fenced(row.number, row.ledger_key or uuid4(), row.requested_at, row.status == "erased")


@atomic
def _fence_session(order: ErasureOrder) -> Operation[Fenced]:
    target = order.target
    (row,) = yield from fetch(
        EraseSession.of(
            order,
            namespace=target.namespace,
            shard_key=target.owner_key,
            session_key=target.scope_key,
            directory_key=target.directory_key or target.scope_key,
            ledger_key=uuid4(),
            user_id=target.user_id,
            act=order.act.as_json(),
        )
    )
    if row.number is None:
        raise NotFoundError("The session does not exist: nothing was put to it, or it was erased.")
    if row.status == "owner":
        # What that was asked for besides, as items, only its own caller knows.
        raise ConflictError(
            f"The session goes with its user, whose erasure {row.number} is not finished; nothing was begun."
            " Run the erasure of the user again.",
            for_clients="The session goes with its user, whose erasure is not finished; nothing was begun."
            " Ask for the erasure of the user again.",
        )
    yield from take_away_again(target.owner_key, row.touched)
    return Fenced(row.number, row.ledger_key or uuid4(), row.requested_at, row.status == "erased")


def erase_what_is_left(
    order: ErasureOrder, fenced: Fenced, clear_archives: Callable[[int], Operation[Sequence[str]]]
) -> Operation[list[str]]:
    """Delete everything behind the fence, until the catalog shows that nothing is left.

    ``clear_archives`` deletes the objects that rows of ``STEPS`` name, which therefore go after it; its
    failures are kept with the erasure.

    Returns: sentences for unchecked places.

    Raises:
        ConflictError: rows came back each time, which no process of this release writes.
    """
    yield from _erase_names(order, fenced)
    yield from _erase_items(order, fenced)
    missed = yield from _erase_kept(order, fenced)
    if order.target.is_whole_owner:
        origins = yield from forget_pseudonym(order.target.namespace, order.target.owner_key, fenced.number)
        order.on_progress("names", "audit_sealed", origins)
    for _pass in range(MAX_PASSES):
        yield from _erase_once(order, fenced)
        if unreached := (yield from clear_archives(fenced.number)):
            yield from fetch(NoteMissed(number=fenced.number, missed=list(unreached)))
        for table in STEPS:
            yield from _erase_table(order, fenced, table, SCOPED[table])
        left = yield from rows_left(order.target)
        if not left:
            return missed
    raise ConflictError(
        f"Rows of an erased owner kept coming back ({', '.join(sorted(left))}): a process of an earlier"
        " release may be running. Stop it, and run the same erasure again."
    )


def rows_left(target: ErasureTarget) -> Operation[dict[str, int]]:
    """The tables, from the catalog, that still hold rows of the target, with their number."""
    rows = yield from fetch(ErasedRows(shard_key=target.owner_key, scope_key=target.scope_key))
    return {row.table_name: row.rows for row in rows if row.rows}


def _erase_names(order: ErasureOrder, fenced: Fenced) -> Operation[None]:
    """Before the directory goes, by which the sessions in selections of replays are recognised."""
    target = order.target
    if not target.is_whole_owner and target.session_id is None:
        return  # nothing unnamed is named in selections, and its owner's names stay
    (done,) = yield from fetch(
        EraseNames(
            number=fenced.number,
            owner_key=target.owner_key,
            namespace=target.namespace,
            user_id=target.user_id if target.is_whole_owner else None,
            session_id=None if target.is_whole_owner else target.session_id,
            mark=f"erased-{uuid4().hex}",
        )
    )
    order.on_progress("names", "names", done.rows)


def _erase_kept(order: ErasureOrder, fenced: Fenced) -> Operation[list[str]]:
    target = order.target
    if target.user_id is None or not target.is_whole_owner:
        return []
    kept = yield from erase_kept_items(fenced.number, target.namespace, target.user_id)
    order.on_progress("items", "store_item", kept.rows)
    if not kept.unread:
        return []
    return [
        f"Adapters: {quantity(kept.unread, 'item')} of the namespace did not open; if any of them is the"
        " user's, it is still there, sealed under a key that is missing."
    ]


def _erase_items(order: ErasureOrder, fenced: Fenced) -> Operation[None]:
    for one in order.items:
        page = EraseItems(
            number=fenced.number,
            shard_key=item_store_key(order.target.namespace),
            path_from=one.path_from,
            path_before=one.path_before,
            limit=ROWS_PER_PAGE,
        )
        yield from _erase_pages(order, "items", "store_item", page, until=1)


def _erase_once(order: ErasureOrder, fenced: Fenced) -> Operation[None]:
    target, number = order.target, fenced.number
    shared = EraseShared(
        number=number, owner_key=target.owner_key, session_key=target.session_key, limit=ROWS_PER_PAGE
    )
    yield from _erase_pages(order, "shared", "shared_message", shared, until=1)
    tables = [(table, None) for table in ERASED] if target.is_whole_owner else list(SCOPED.items())
    for table, column in tables:
        if table not in STEPS:
            yield from _erase_table(order, fenced, table, column)
    if target.is_whole_owner:
        for table in MOVED:
            page = MoveRows(
                number=number,
                table=table,
                shard_key=target.owner_key,
                ledger_key=fenced.ledger_key,
                limit=ROWS_PER_PAGE,
            )
            yield from _erase_pages(order, "calls", table, page)
    if not target.is_whole_owner and target.directory_key is None:
        return  # without a name it has no entry, and those of its owner stay
    directory = EraseDirectory.of(target, number=number, limit=ROWS_PER_PAGE)
    yield from _erase_pages(order, "directory", "session_owner", directory)


def _erase_table(order: ErasureOrder, fenced: Fenced, table: str, column: str | None) -> Operation[None]:
    """``column`` has the key of the erased session; all rows of an owner go without it."""
    is_whole = order.target.is_whole_owner
    page = EraseRows(
        number=fenced.number,
        table=table,
        shard_key=order.target.owner_key,
        column=None if is_whole else column,
        key=order.target.session_key,
        limit=ROWS_PER_PAGE,
    )
    yield from _erase_pages(order, "rows", table, page)


def _erase_pages(
    order: ErasureOrder, step: Step, table: str, page: Query[_Page], until: int = ROWS_PER_PAGE
) -> Operation[None]:
    """Run the statement, each in a transaction of its own, until a page has fewer than ``until`` rows."""
    gone = 0
    while True:
        (done,) = yield from fetch(page)
        gone += done.rows
        order.on_progress(step, table, gone)
        if done.rows < until:
            return
