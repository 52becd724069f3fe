"""Seals existing rows under their owners' newest data keys, in pages, during normal use.

An owner is *settled* when a pass over all of its tables finds nothing to seal, some time after it got the
key: by then no process seals with earlier knowledge.  A killed pass resumes, since sealed rows are not found
again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from strandline.pipelines.older_transactions import older_have_ended
from strandline.schemas.errors import KeyUnavailableError, SealedContentError, StrandlineError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.paging import pages, query_with
from strandline.schemas.queries.application.sealing import (
    OwnersWithOldKeys,
    RetireDataKeys,
    SettleOwner,
    UnsettledOwners,
    UnsettledOwnersRow,
)
from strandline.schemas.queries.derived.facts_edit import LockFactLanes
from strandline.schemas.queries.resealed import RESEALED
from strandline.schemas.sealed.content import UNSEALED_SECONDS, SealedContent
from strandline.schemas.sealed.values import (
    keyed_label,
    keyed_tsvector,
    keyed_word,
    reseal_within,
    seal_traces,
)
from strandline.schemas.sealing.marks import Resealed, SealedColumn
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.sealing.tokens import is_token
from strandline.schemas.settings import MAX_KEY_CACHE_SECONDS
from strandline.schemas.values.labels import as_array
from strandline.schemas.values.lanes import MERGE_STAGE

logger = logging.getLogger("strandline.sealing")
PAGE_ROWS = 200
PAGE_OWNERS = 100
FIRST_OWNER = UUID(int=0)
# After an owner got its first keys, until its words are keyed: by then every process looks for both forms.
START_SECONDS = 1.0
# Beyond what another process may have kept: for a statement that it had begun.
GRACE_SECONDS = 10.0
# How long a pass waits for open transactions; those after it look again.
QUIET_SECONDS = 2.0
# After it is settled, and longer than any process may keep keys.
RETIRE_AFTER_SECONDS = 2.0 * MAX_KEY_CACHE_SECONDS
# An owner's facts are compared by their words: they are sealed together, when the owner gets its keys.
FACT_TABLES = ("fact", "fact_revision", "fact_candidate", "fact_event")


def reseal_rows(fetcher: Fetcher, keys: OwnerKeys, table: Resealed, page: int) -> Iterator[int]:
    """Seal an owner's rows of a table; yields how many were found, page by page.

    A row that is changed between the two statements stays as it is, and the next pass finds it again.

    Raises:
        SealedContentError: one does not open.
    """
    values = {"shard_key": keys.shard_key, "prefix": keys.prefix, "has_vectors": keys.has_vectors}
    for rows in pages(fetcher, table.read, **values, limit=page):
        stored: dict[str, object] = {
            name: [getattr(row, name) for row in rows] for name in (*table.key, "version")
        }
        for column in table.columns:
            stored[column.name] = [_reseal_value(keys, column, row) for row in rows]
        fetcher.fetch(query_with(table.store, values | stored))
        yield len(rows)


def _reseal_value(keys: OwnerKeys, column: SealedColumn, row: Any) -> Any:
    value = getattr(row, column.name)
    if value is None:
        return None
    if column.form == "label":
        return as_array(_labels(keys, row))
    bound = getattr(row, column.bound) if column.bound else ""
    if isinstance(value, list):
        return _literal(_reseal_item(keys, column, item, bound) for item in value)
    return _reseal_item(keys, column, value, bound)


def _reseal_item(keys: OwnerKeys, column: SealedColumn, value: Any, bound: str) -> Any:
    match column.form:
        case "text":
            return keys.reseal(value, column.kind, bound)
        case "json":
            return keys.reseal_json(value, column.kind, bound)
        case "bytes":
            return keys.reseal_bytes(value, column.kind)
        case "name":
            return keys.reseal_name(value, column.kind)
        case "word":
            return keyed_word(keys, value)
        case "tsvector":
            return keyed_tsvector(keys, value)
        case "digest":
            return keys.digest(value)
        case "references":
            return json.dumps([keys.reference(name) for name in json.loads(value)])
        case "within":
            return reseal_within(keys, value, column.kind)
        case "traces":
            return seal_traces(keys, value)
        case _:
            raise ValueError(f"a column cannot be sealed as {column.form!r}")


def _labels(keys: OwnerKeys, row: Any) -> list[int]:
    labels: list[int] = row.labels
    if row.metadata is None or is_token(row.metadata):
        return labels
    return [keyed_label(keys, row.session_key, label) for label in labels]


def _literal(items: Iterable[str | bytes]) -> str:
    texts = (f"\\x{item.hex()}" if isinstance(item, bytes) else item for item in items)
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


@dataclass(slots=True)
class Progress:
    """A pass's progress; ``waiting`` owners are settled later, ``position`` is where the next one resumes."""

    owners: int = 0
    rows: int = 0
    settled: int = 0
    waiting: int = 0
    wait_seconds: float = 0.0
    failed: int = 0
    retired: int = 0
    position: UUID | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a pass may go: rows a second at most (None: no bound), and what may stop it."""

    rows_per_second: float | None = None
    is_stopping: Callable[[], bool] = lambda: False
    pause: Callable[[float], object] = field(default=time.sleep)

    def wait_after(self, rows: int) -> None:
        if self.rows_per_second is not None:
            self.pause(rows / self.rows_per_second)


def reseal_namespace(
    database: Database,
    content: SealedContent,
    namespace: str,
    *,
    cache_seconds: float,
    pace: Pace,
    after_owner: UUID = FIRST_OWNER,
) -> Iterator[Progress]:
    """Seal the rows not sealed under the newest keys of a namespace's owners; yields after each page of rows.

    An owner of whom a row or a key does not open is counted, logged and passed over: the others are sealed.
    ``cache_seconds`` is how long processes keep keys; ``after_owner`` is where another pass was stopped.
    """
    progress = Progress(position=after_owner)
    owner = after_owner
    begun_at = time.monotonic()
    is_quiet: bool | None = None
    while rows := database.fetch(
        UnsettledOwners(namespace=namespace, after_shard_key=owner, limit=PAGE_OWNERS)
    ):
        for row in rows:
            if pace.is_stopping():
                return
            owner = row.shard_key
            kept_seconds = UNSEALED_SECONDS if row.number == 1 else cache_seconds
            remaining_seconds = kept_seconds + GRACE_SECONDS - row.age_seconds
            progress.wait_seconds = max(progress.wait_seconds, remaining_seconds)
            if row.number == 1 and row.age_seconds <= UNSEALED_SECONDS + START_SECONDS:
                progress.waiting += 1
            else:
                may_settle = remaining_seconds + time.monotonic() - begun_at < 0
                # A transaction from before that time may still commit what this pass does not find.
                if may_settle and is_quiet is None:
                    is_quiet = older_have_ended(database, QUIET_SECONDS)
                try:
                    yield from _seal_owner(
                        database, content, row, pace, progress, may_settle=may_settle and is_quiet is True
                    )
                except (SealedContentError, KeyUnavailableError) as error:
                    progress.failed += 1
                    _log_failed(owner, namespace, error)
                progress.owners += 1
                if pace.is_stopping():
                    return  # perhaps in the middle of this owner, with which the next pass begins
            progress.position = owner
            yield progress
    progress.position = None
    yield progress


def _seal_owner(
    database: Database,
    content: SealedContent,
    row: UnsettledOwnersRow,
    pace: Pace,
    progress: Progress,
    *,
    may_settle: bool,
) -> Iterator[Progress]:
    owner = row.shard_key
    keys = database.run(content.renew_keys(owner))
    rows = 0 if keys is None else seal_facts(database, keys)
    progress.rows += rows
    for page in () if keys is None else reseal_owner(database, keys, pace):
        rows += page
        progress.rows += page
        yield progress
    if rows == 0 and may_settle and not pace.is_stopping():
        database.fetch(SettleOwner(shard_key=owner, number=row.number))
        content.cache.forget(owner)
        progress.settled += 1
    else:
        progress.waiting += 1


def _log_failed(owner: UUID, namespace: str, error: StrandlineError) -> None:
    logger.warning(
        "the content of an owner cannot be sealed again",
        extra={
            "action": "reseal_owner_failed",
            "namespace": namespace,
            "owner_key": str(owner),
            "error": type(error).__name__,
            "reason": str(error),
        },
    )


def seal_facts(database: Database, keys: OwnerKeys) -> int:
    """Seal all of an owner's facts in one transaction, since they are compared by their words.

    Merges and people's edits of the owner wait for it.  Returns how many rows were found.
    """
    with database.transaction() as transaction:
        transaction.fetch(LockFactLanes(shard_key=keys.shard_key, stage=MERGE_STAGE))
        return sum(
            count
            for name in FACT_TABLES
            for count in reseal_rows(transaction, keys, RESEALED[name], PAGE_ROWS)
        )


def reseal_owner(database: Database, keys: OwnerKeys, pace: Pace) -> Iterator[int]:
    """Seal an owner's rows under its newest data key; yields how many were found, page by page."""
    for table in RESEALED.values():
        for count in reseal_rows(database, keys, table, PAGE_ROWS):
            yield count
            if pace.is_stopping():
                return
            pace.wait_after(count)


def retire_old_keys(
    database: Database,
    content: SealedContent,
    namespace: str,
    *,
    pace: Pace,
    after_seconds: float = RETIRE_AFTER_SECONDS,
) -> int:
    """Delete data keys that seal no row; returns how many.

    Each owner is looked at once more before.
    """
    retired = 0
    is_quiet = False
    asked = {"namespace": namespace, "settled_seconds": after_seconds, "limit": PAGE_OWNERS}
    for rows in pages(database, OwnersWithOldKeys, **asked):
        for row in rows:
            owner = row.shard_key
            # No row is sealed with them now, but a transaction from before may still commit such rows.
            is_quiet = is_quiet or older_have_ended(database, QUIET_SECONDS)
            if pace.is_stopping() or not is_quiet:
                return retired
            try:
                keys = database.run(content.renew_keys(owner))
                is_sealed = keys is not None and not any(reseal_owner(database, keys, pace))
            except (SealedContentError, KeyUnavailableError) as error:
                _log_failed(owner, namespace, error)
                continue
            if is_sealed:
                retired += len(database.fetch(RetireDataKeys(shard_key=owner, number=row.number)))
                content.cache.forget(owner)
    return retired
