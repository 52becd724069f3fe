"""What is sealed in each table, from ``schemas/tables``.  Written by `make queries`."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.schemas.queries.application.resealing import (
    ResealAnswer,
    ResealArchivedInput,
    ResealBlockState,
    ResealCorrection,
    ResealFactCandidate,
    ResealFactEvent,
    ResealFactRevision,
    ResealFormerFact,
    ResealKeptResponse,
    ResealMessage,
    ResealSessionRun,
    ResealSharedMessage,
    ResealStoreItem,
    UnsealedAnswer,
    UnsealedArchivedInput,
    UnsealedBlockState,
    UnsealedChunk,
    UnsealedCorrection,
    UnsealedFact,
    UnsealedFactCandidate,
    UnsealedFactEvent,
    UnsealedFactRevision,
    UnsealedFormerFact,
    UnsealedKeptResponse,
    UnsealedMessage,
    UnsealedSessionRun,
    UnsealedSharedMessage,
    UnsealedStoreItem,
)
from strandline.schemas.queries.application.sealing import ResealChunk, ResealFact
from strandline.schemas.sealing.marks import Resealed, SealedColumn

RESEALED: Mapping[str, Resealed] = {
    "answer": Resealed(
        UnsealedAnswer, ResealAnswer, ("batch_id", "step"), (SealedColumn("body", "bytes", "answer"),)
    ),
    "archived_input": Resealed(
        UnsealedArchivedInput,
        ResealArchivedInput,
        ("session_key", "seq", "generation_id"),
        (
            SealedColumn("envelope", "json", "message", "id"),
            SealedColumn("metadata", "json", "metadata", "id"),
        ),
    ),
    "block_state": Resealed(
        UnsealedBlockState,
        ResealBlockState,
        ("scope_key", "generation_id", "ordinal"),
        (SealedColumn("state", "json", "state"),),
    ),
    "chunk": Resealed(
        UnsealedChunk,
        ResealChunk,
        ("generation_id", "session_key", "from_seq", "piece"),
        (
            SealedColumn("lexemes", "tsvector"),
            SealedColumn("speaker", "word"),
        ),
    ),
    "correction": Resealed(
        UnsealedCorrection, ResealCorrection, ("session_key", "number"), (SealedColumn("digest", "digest"),)
    ),
    "fact": Resealed(
        UnsealedFact,
        ResealFact,
        ("generation_id", "fact_id"),
        (
            SealedColumn("text", "text", "fact"),
            SealedColumn("fingerprint", "digest"),
            SealedColumn("lexemes", "word"),
            SealedColumn("topics", "name", "topic"),
            SealedColumn("said_by", "name", "said_by"),
            SealedColumn("input", "text", "input"),
            SealedColumn("feedback", "text", "feedback"),
        ),
    ),
    "fact_candidate": Resealed(
        UnsealedFactCandidate,
        ResealFactCandidate,
        ("generation_id", "event_id", "ordinal"),
        (
            SealedColumn("text", "text", "fact"),
            SealedColumn("fingerprint", "digest"),
            SealedColumn("topics", "name", "topic"),
            SealedColumn("said_by", "name", "said_by"),
        ),
    ),
    "fact_event": Resealed(
        UnsealedFactEvent,
        ResealFactEvent,
        ("number",),
        (
            SealedColumn(
                "payload",
                "within",
                "text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic",
            ),
            SealedColumn("traces", "traces"),
        ),
    ),
    "fact_revision": Resealed(
        UnsealedFactRevision,
        ResealFactRevision,
        ("generation_id", "fact_id", "revision"),
        (
            SealedColumn("text", "text", "fact"),
            SealedColumn("fingerprint", "digest"),
            SealedColumn("lexemes", "word"),
            SealedColumn("own_text", "text", "fact"),
            SealedColumn("own_fingerprint", "digest"),
            SealedColumn("own_lexemes", "word"),
        ),
    ),
    "former_fact": Resealed(
        UnsealedFormerFact,
        ResealFormerFact,
        ("session_key", "fact_id"),
        (SealedColumn("fingerprints", "digest"),),
    ),
    "kept_response": Resealed(
        UnsealedKeptResponse,
        ResealKeptResponse,
        ("request_key",),
        (SealedColumn("body", "json", "response"),),
    ),
    "message": Resealed(
        UnsealedMessage,
        ResealMessage,
        ("session_key", "seq"),
        (
            SealedColumn("digest", "digest"),
            SealedColumn("envelope", "json", "message", "id"),
            SealedColumn("metadata", "json", "metadata", "id"),
            SealedColumn("calls", "references"),
            SealedColumn("answers", "references"),
            SealedColumn("labels", "label"),
        ),
    ),
    "session_run": Resealed(
        UnsealedSessionRun, ResealSessionRun, ("session_key", "run_id"), (SealedColumn("digests", "digest"),)
    ),
    "shared_message": Resealed(
        UnsealedSharedMessage,
        ResealSharedMessage,
        ("session_key", "seq"),
        (
            SealedColumn("envelope", "json", "message", "id"),
            SealedColumn("metadata", "json", "metadata", "id"),
        ),
    ),
    "store_item": Resealed(
        UnsealedStoreItem, ResealStoreItem, ("path", "key"), (SealedColumn("value", "json", "item"),)
    ),
}
