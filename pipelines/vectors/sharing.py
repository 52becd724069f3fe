"""Sharing: copies of a session's flushed messages, for the shared scope that the session has opted in to.

The copies lie under the scope's own key, so a separate transaction writes them, before the one that writes
receipts.  Their keys follow from the messages: written twice, nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from strandline.pipelines.engine.stage import Batch
from strandline.schemas.postgres.database import Database, Transaction
from strandline.schemas.postgres.operations import Row
from strandline.schemas.values.flush_event import FlushEvent


def share(database: Database, batch: Batch, chunk_rows: Mapping[str, Any]) -> None:
    """Copy a batch's messages and chunks to the scope that their session shares with, if it does.

    A life of a session that was forgotten is not shared: the look and the copies are one transaction.

    Args:
        chunk_rows: the parameters of ``insert_chunks``.
    """
    event = batch.events[0]
    session = {"shard_key": event.shard_key, "session_key": event.session_key}
    for shared_key, session_id in database.fetch("shared_scope_of", session):
        messages = [_messages(database, one) for one in batch.events]
        with database.transaction() as tx:
            if not all(_hold(tx, shared_key, one, session_id) for one in batch.events):
                return
            for one, rows in zip(batch.events, messages, strict=True):
                tx.fetch("share_messages", _message_rows(shared_key, one, rows))
            tx.fetch("share_chunks", {**chunk_rows, "shard_key": shared_key})


def _hold(tx: Transaction, shared_key: UUID, event: FlushEvent, session_id: str) -> bool:
    """Hold this life of the session in the scope; False if it was forgotten."""
    ((gone,),) = tx.fetch(
        "hold_shared_session",
        {
            "shard_key": shared_key,
            "session_key": event.session_key,
            "incarnation": event.incarnation,
            "owner_key": event.shard_key,
            "session_id": session_id,
        },
    )
    return not gone


def _messages(database: Database, event: FlushEvent) -> Sequence[Row]:
    return database.fetch(
        "range_messages",
        {
            "shard_key": event.shard_key,
            "session_key": event.session_key,
            "from_seq": event.from_seq,
            "through_seq": event.through_seq,
        },
    )


def _message_rows(shared_key: UUID, event: FlushEvent, rows: Sequence[Row]) -> dict[str, Any]:
    columns = ("seqs", "ids", "roles", "tokens", "created_at", "envelopes", "metadata")
    return {
        "shard_key": shared_key,
        "session_key": event.session_key,
        "incarnation": event.incarnation,
        **{name: [row[at] for row in rows] for at, name in enumerate(columns)},
    }
