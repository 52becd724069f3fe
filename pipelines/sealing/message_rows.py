"""The log's rows in their sealed form: messages, copies in shared scopes, digests of corrections and runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.application.resealing import (
    ResealArchivedInputs,
    ResealCorrections,
    ResealMessages,
    ResealRun,
    ResealSharedMessages,
    UnsealedArchivedInputs,
    UnsealedCorrections,
    UnsealedMessages,
    UnsealedMessagesRow,
    UnsealedRuns,
    UnsealedSharedMessages,
)
from strandline.schemas.sealed.values import keyed_label
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.sealing.tokens import is_token
from strandline.schemas.values.labels import as_array

ENVELOPE, METADATA = "message", "metadata"
_NO_SESSION = UUID(int=0)


def reseal_messages(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal an owner's messages; yields how many were found, page by page.

    Raises:
        SealedContentError: one does not open.
    """
    session, seq = _NO_SESSION, 0
    while rows := fetcher.fetch(
        UnsealedMessages(
            shard_key=keys.shard_key,
            prefix=keys.json_prefix,
            after_session=session,
            after_seq=seq,
            limit=page,
        )
    ):
        session, seq = rows[-1].session_key, rows[-1].seq
        fetcher.fetch(
            ResealMessages(
                shard_key=keys.shard_key,
                session_keys=[row.session_key for row in rows],
                seqs=[row.seq for row in rows],
                versions=[row.version for row in rows],
                digests=[keys.digest(row.digest) for row in rows],
                envelopes=[keys.reseal_json(row.envelope, ENVELOPE, row.id) for row in rows],
                metadata=[_metadata(keys, row.metadata, row.id) for row in rows],
                calls=[_calls(keys, row.calls) for row in rows],
                answers=[_calls(keys, row.answers) for row in rows],
                labels=[as_array(_labels(keys, row)) for row in rows],
            )
        )
        yield len(rows)


def _metadata(keys: OwnerKeys, stored: str | None, message_id: str) -> str | None:
    return None if stored is None else keys.reseal_json(stored, METADATA, message_id)


def _calls(keys: OwnerKeys, stored: str | None) -> str | None:
    return None if stored is None else json.dumps([keys.reference(call) for call in json.loads(stored)])


def _labels(keys: OwnerKeys, row: UnsealedMessagesRow) -> list[int] | None:
    """They are keyed if the metadata that they come from is sealed."""
    if row.labels is None or row.metadata is None or is_token(row.metadata):
        return row.labels
    return [keyed_label(keys, row.session_key, label) for label in row.labels]


def reseal_shared_messages(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """The same of what a shared scope holds."""
    session, seq = _NO_SESSION, 0
    while rows := fetcher.fetch(
        UnsealedSharedMessages(
            shard_key=keys.shard_key,
            prefix=keys.json_prefix,
            after_session=session,
            after_seq=seq,
            limit=page,
        )
    ):
        session, seq = rows[-1].session_key, rows[-1].seq
        fetcher.fetch(
            ResealSharedMessages(
                shard_key=keys.shard_key,
                session_keys=[row.session_key for row in rows],
                seqs=[row.seq for row in rows],
                versions=[row.version for row in rows],
                envelopes=[keys.reseal_json(row.envelope, ENVELOPE, row.id) for row in rows],
                metadata=[_metadata(keys, row.metadata, row.id) for row in rows],
            )
        )
        yield len(rows)


def reseal_corrections(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Key the digests by which repeated corrections are known."""
    session, number = _NO_SESSION, 0
    while rows := fetcher.fetch(
        UnsealedCorrections(shard_key=keys.shard_key, after_session=session, after_number=number, limit=page)
    ):
        session, number = rows[-1].session_key, rows[-1].number
        fetcher.fetch(
            ResealCorrections(
                shard_key=keys.shard_key,
                session_keys=[row.session_key for row in rows],
                numbers=[row.number for row in rows],
                digests=[keys.digest(row.digest) for row in rows],
            )
        )
        yield len(rows)


def reseal_archived_inputs(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Seal messages that came back from an archive for a derivation."""
    session, seq, generation = _NO_SESSION, 0, -1
    while rows := fetcher.fetch(
        UnsealedArchivedInputs(
            shard_key=keys.shard_key,
            prefix=keys.json_prefix,
            after_session=session,
            after_seq=seq,
            after_generation=generation,
            limit=page,
        )
    ):
        session, seq, generation = rows[-1].session_key, rows[-1].seq, rows[-1].generation_id
        fetcher.fetch(
            ResealArchivedInputs(
                shard_key=keys.shard_key,
                session_keys=[row.session_key for row in rows],
                seqs=[row.seq for row in rows],
                generation_ids=[row.generation_id for row in rows],
                versions=[row.version for row in rows],
                envelopes=[keys.reseal_json(row.envelope, ENVELOPE, row.id) for row in rows],
                metadata=[_metadata(keys, row.metadata, row.id) for row in rows],
            )
        )
        yield len(rows)


def reseal_runs(fetcher: Fetcher, keys: OwnerKeys, page: int) -> Iterator[int]:
    """Key the digests by which a run knows what it was given."""
    session, run = _NO_SESSION, ""
    while rows := fetcher.fetch(
        UnsealedRuns(shard_key=keys.shard_key, after_session=session, after_run=run, limit=page)
    ):
        session, run = rows[-1].session_key, rows[-1].run_id
        for row in rows:
            fetcher.fetch(
                ResealRun(
                    shard_key=keys.shard_key,
                    session_key=row.session_key,
                    run_id=row.run_id,
                    known=row.digests,
                    digests=[keys.digest(digest) for digest in row.digests],
                )
            )
        yield len(rows)
