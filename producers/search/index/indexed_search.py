"""Searching a scope by its index in memory, if this process has one that is still true.

The statement that fetches the texts of the hits tells the version of the owner's pieces in its own snapshot.
Where that is not the index's version, nothing of the index is shown, and the database searches.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TypedDict
from uuid import UUID

from strandline.producers.search.index.index_cache import Beginning, IndexCache
from strandline.producers.search.index.scope_index import (
    IndexParts,
    IndexQuery,
    PieceKey,
    Ranks,
    ScopeIndex,
    ScopeKey,
    StoredPieces,
    Word,
)
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Operation, Run, fetch
from strandline.schemas.queries.conversation.search import (
    ChunkVersion,
    IndexedHits,
    IndexedHitsRow,
    IndexPieces,
    IndexPiecesRow,
    IndexWords,
    IndexWordsRow,
)

logger = logging.getLogger("strandline.producers")

# Each search of a scope without an index adds so many pieces to it, which takes a few hundredths of a second;
# a scope with more than so many in all is always searched by the database.
PIECES_AT_ONCE = 2_000
MAX_PIECES = 200_000


class _Part(TypedDict):
    """A part of a scope, as parameters of statements."""

    shard_key: UUID
    generation_id: int
    scope_key: UUID | None
    through_session: UUID
    through_seq: int
    through_piece: int
    at_once: int


def search_index(
    indexes: IndexCache, scope: ScopeKey, query: IndexQuery, beside: int
) -> Operation[tuple[Ranks, list[IndexedHitsRow]] | None]:
    """The hits, and their messages by place; None if the database has to search.

    Raises:
        StrandlineError: a statement failed.
    """
    index = indexes.find_index(scope)
    if index is None:
        index = yield from _try_to_make_index(indexes, scope)
        if index is None:
            return None
    # Off the event loop: of a large scope this takes some hundredths of a second.
    ranks: Ranks = yield Run(partial(index.rank, query))
    rows, version = yield from _fetch_messages(scope, ranks, beside)
    if version == index.version:
        return ranks, rows
    indexes.drop(scope, index)
    return None


def _try_to_make_index(indexes: IndexCache, scope: ScopeKey) -> Operation[ScopeIndex | None]:
    """As ``_make_index``; where that fails the database searches, and the next attempt comes later."""
    try:
        with indexes.make_alone(scope) as is_free:
            return (yield from _make_index(indexes, scope)) if is_free else None
    except StrandlineError as error:
        logger.warning("no index was made", extra={"action": "index_failed", "reason": str(error)})
        indexes.refuse(scope)
        return None


def _fetch_messages(
    scope: ScopeKey, ranks: Ranks, beside: int
) -> Operation[tuple[list[IndexedHitsRow], str | None]]:
    """The messages, and the version of the owner's pieces; None if none of the messages is there any more."""
    if not ranks.from_seqs:
        ((version,),) = yield from fetch(ChunkVersion(shard_key=scope.shard_key))
        return [], version
    rows = yield from fetch(
        IndexedHits(
            shard_key=scope.shard_key,
            sessions=ranks.sessions,
            numbers=ranks.numbers,
            from_seqs=ranks.from_seqs,
            through_seqs=ranks.through_seqs,
            beside=beside,
        )
    )
    return rows, rows[0].version if rows else None


def _make_index(indexes: IndexCache, scope: ScopeKey) -> Operation[ScopeIndex | None]:
    """Add a part to the index of the scope, if it is worth it; the index, if that was the last part."""
    if not indexes.note_search(scope):
        return None
    ((version,),) = yield from fetch(ChunkVersion(shard_key=scope.shard_key))
    if not indexes.note_version(scope, version):
        return None
    begun = indexes.take_beginning(scope, version)
    if begun is None:
        begun = Beginning(version, (yield Run(indexes.begin)))
    stored, words = yield from _next_part(scope, begun.through)
    if {stored.version, words[0].version} != {version}:
        return None
    parts = begun.parts
    yield Run(partial(_add, parts, stored, words))
    if len(stored.session_keys) < PIECES_AT_ONCE:
        index: ScopeIndex = yield Run(partial(parts.finish, version))
        indexes.keep(scope, index)
        return index
    if parts.pieces < MAX_PIECES:
        through = PieceKey(stored.session_keys[-1], stored.from_seqs[-1], stored.pieces[-1])
        indexes.keep_beginning(scope, Beginning(version, parts, through))
    else:
        indexes.refuse(scope)
    return None


def _next_part(scope: ScopeKey, through: PieceKey) -> Operation[tuple[IndexPiecesRow, list[IndexWordsRow]]]:
    """The pieces after ``through``, and their words."""
    which: _Part = {
        "shard_key": scope.shard_key,
        "generation_id": scope.generation_id,
        "scope_key": scope.scope_key,
        "through_session": through.session_key,
        "through_seq": through.from_seq,
        "through_piece": through.piece,
        "at_once": PIECES_AT_ONCE,
    }
    (stored,) = yield from fetch(IndexPieces(**which))
    words = yield from fetch(IndexWords(**which))
    return stored, words


def _add(parts: IndexParts, stored: IndexPiecesRow, words: Sequence[IndexWordsRow]) -> None:
    if not stored.session_keys:
        return
    pieces = StoredPieces(
        session_keys=stored.session_keys,
        from_seqs=stored.from_seqs,
        through_seqs=stored.through_seqs,
        lengths=stored.lengths,
        roles=stored.roles,
        speakers=stored.speakers,
        tones=stored.tones,
        said_on=stored.said_on,
        has_vector=stored.has_vector,
        vectors=bytes.fromhex(stored.vectors),
    )
    known = [Word(row.word, row.pieces or (), row.times or ()) for row in words if row.word is not None]
    parts.add(pieces, known)
