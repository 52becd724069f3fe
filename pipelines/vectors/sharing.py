"""Sharing: copies of a session's flushed messages, for the session's shared scope.

The copies are stored under the scope's own key, so a separate transaction writes them, before the transaction
of the receipts.  Their keys follow from the messages, so writing them twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from strandline.pipelines.engine.stage import Batch
from strandline.schemas.postgres.database import Database, Fetcher, Transaction
from strandline.schemas.postgres.operations import Operation, claim_owner_keys, fetch
from strandline.schemas.postgres.paging import query_with
from strandline.schemas.queries.conversation.search import InsertChunks
from strandline.schemas.queries.conversation.sharing import (
    ClearShared,
    LockSharedSession,
    ShareChunks,
    SharedCopies,
    SharedScopeOf,
    ShareMessages,
)
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.queries.work.lanes import RangeMessages
from strandline.schemas.values.flush_event import FlushEvent


def share(
    database: Database, batch: Batch, chunk_rows: InsertChunks | None, check_lease: Callable[[Fetcher], None]
) -> None:
    """Copy a batch's messages and chunks to their session's shared scope, if it has one.

    A forgotten life of a session is not shared: the check and the copies are one transaction.  Nor are
    messages that a correction took back: it takes the lane away before it removes the copies, under this
    lock. Copies that a correction has made wrong, and did not remove, go here.

    Raises:
        LeaseLostError: ``check_lease`` raised it.
    """
    event = batch.events[0]
    asked = SharedScopeOf(shard_key=event.shard_key, session_key=event.session_key)
    for scope in database.fetch(asked):
        messages = [database.fetch(RangeMessages.of(one)) for one in batch.events]
        database.run(claim_owner_keys(scope.namespace, scope.shared_key))
        with database.transaction() as tx:
            if not all(_lock_session(tx, scope.shared_key, one, scope.session_id) for one in batch.events):
                return
            check_lease(tx)
            for one, rows in zip(batch.events, messages, strict=True):
                tx.run(clear_copies(scope.shared_key, one.session_key, one.from_seq, one.through_seq, rows))
                tx.fetch(
                    ShareMessages(
                        shard_key=scope.shared_key,
                        session_key=one.session_key,
                        incarnation=one.incarnation,
                        seqs=[row.seq for row in rows],
                        ids=[row.id for row in rows],
                        roles=[row.role for row in rows],
                        tokens=[row.tokens for row in rows],
                        created_at=[row.created_at for row in rows],
                        envelopes=[row.envelope for row in rows],
                        metadata=[row.metadata for row in rows],
                    )
                )
            if chunk_rows is not None:
                tx.fetch(query_with(ShareChunks, {**chunk_rows.params, "shard_key": scope.shared_key}))


def clear_copies(
    shared_key: UUID, session_key: UUID, from_seq: int, through_seq: int, rows: Sequence[MessageRow]
) -> Operation[None]:
    """Remove a range's copies that are not in the log; ``rows`` are all that the log holds of it."""
    logged = {(row.seq, row.envelope) for row in rows}
    asked = SharedCopies(
        shard_key=shared_key, session_key=session_key, from_seq=from_seq, through_seq=through_seq
    )
    copies = yield from fetch(asked)
    stale = [copy.seq for copy in copies if (copy.seq, copy.envelope) not in logged]
    if stale:
        yield from fetch(ClearShared(shard_key=shared_key, session_key=session_key, seqs=stale))


def _lock_session(tx: Transaction, shared_key: UUID, event: FlushEvent, session_id: str) -> bool:
    (scope,) = tx.fetch(
        LockSharedSession(
            shard_key=shared_key,
            session_key=event.session_key,
            incarnation=event.incarnation,
            owner_key=event.shard_key,
            session_id=session_id,
        )
    )
    return not scope.is_gone
