"""Searching a scope by what this process keeps in memory of it, if that is still true.

The caller's own statement told the versions of the owner's pieces and facts.  Where an index has another one,
nothing of it is shown.  If it lacks only added pieces, one statement brings them; otherwise the database
searches, and that search brings the next part of an index along.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from uuid import UUID

from strandline.producers.search.hits import HitFact, Place, Utterance
from strandline.producers.search.index.index_cache import Beginning, IndexCache
from strandline.producers.search.index.scope_index import (
    NO_RANKS,
    FactIndex,
    IndexQuery,
    PieceKey,
    RankedFact,
    Ranks,
    ScopeIndex,
    ScopeKey,
    StoredPieces,
    Word,
)
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Compute, Operation, fetch
from strandline.schemas.queries.conversation.search import AddedHits, IndexedHits
from strandline.schemas.values.message import is_unchangeable, read_rows
from strandline.schemas.values.policy import DEFAULT_WINDOW_BYTES

logger = logging.getLogger("strandline.producers")

# Each search of a scope without an index adds so many pieces to it, which takes a few hundredths of a second;
# a scope with more than so many in all is always searched by the database.
PIECES_AT_ONCE = 2_000
MAX_PIECES = 200_000
# Of so many added pieces the messages come with them.
ADDED_AT_ONCE = 100
# An owner with at most so many flushed messages is indexed by its first search.
FEW_MESSAGES = 200
# The facts of an owner with more of them are always searched by the database.
MAX_FACTS = 2_000

NOTHING_KNOWN: Mapping[Place, Sequence[Utterance]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Standing:
    """An owner's state from the caller's own statement.

    Attributes:
        pieces: the version of its pieces.
        facts: the version of its facts, if requested.
        is_bounded: whether messages may have expired, so that each hit is looked up again.
        is_alone: whether it has no other session.
        flushed: how many messages of the session were flushed; None: unknown.
    """

    pieces: str
    facts: str | None = None
    is_bounded: bool = True
    is_alone: bool = False
    flushed: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether one statement may return all pieces."""
        return self.is_alone and self.flushed is not None and self.flushed <= FEW_MESSAGES


@dataclass(frozen=True, slots=True)
class IndexedSearch:
    """A search of a process's index.

    Attributes:
        scope: of the messages.
        beside: how many messages before and after a hit are returned with it.
        facts_generation_id: the generation whose facts are searched as well, each by itself; None: none.
        top_facts: how many of them.
    """

    scope: ScopeKey
    query: IndexQuery
    beside: int = 0
    facts_generation_id: int | None = None
    top_facts: int = 0

    @property
    def kept_scope(self) -> ScopeKey:
        """The scope whose index is kept: the owner's where facts are ranked, by all of the owner's pieces."""
        return self.scope if self.facts_generation_id is None else self.scope._replace(scope_key=None)

    @property
    def facts_scope(self) -> ScopeKey | None:
        number = self.facts_generation_id
        return None if number is None else ScopeKey(self.scope.shard_key, number, None)


class Recalled(NamedTuple):
    """Ranks of messages, the messages of each by its session and first seq, and facts, best first."""

    ranks: Ranks
    messages: Mapping[Place, Sequence[Utterance]]
    facts: Sequence[RankedFact]


def search_index(
    indexes: IndexCache,
    standing: Standing,
    asked: IndexedSearch,
    known: Mapping[Place, Sequence[Utterance]] = NOTHING_KNOWN,
) -> Operation[Recalled | None]:
    """The hits found in memory, with a statement for missing messages; None: the database has to search.

    Args:
        known: messages that a statement of this search has read.

    Raises:
        StrandlineError: the statement failed.
    """
    index = cast("ScopeIndex | None", indexes.find_index(asked.kept_scope, standing.pieces))
    facts, facts_scope = None, asked.facts_scope
    if facts_scope is not None:
        facts = cast("FactIndex | None", indexes.find_index(facts_scope, standing.facts))
        if indexes.is_refused(facts_scope) if facts is None else not facts.is_whole:
            return None
    if index is None:
        return None
    ranks = yield from _rank(indexes, standing, asked, index)
    keeps = not (standing.is_bounded or asked.beside)
    messages, missing = _at_hand(index if keeps else None, ranks, known)
    if missing or (facts is None and facts_scope is not None):
        fetched = yield from _fetch(asked, ranks, missing, with_facts=facts is None)
        if fetched.version != index.version:
            indexes.drop(asked.kept_scope, index)
            return None
        messages.update(fetched.messages)
        if facts is None and facts_scope is not None:
            facts = fetched.facts
            indexes.keep(facts_scope, facts)
    if keeps and (known or missing):
        _keep_utterances(index, messages)
    if facts is None or facts_scope is None:
        return Recalled(ranks, messages, ())
    if not facts.is_whole:
        return None
    rank_facts = partial(index.rank_facts, facts, asked.query, asked.top_facts)
    ranked: list[RankedFact] = rank_facts() if index.is_quick else (yield Compute(rank_facts))
    return Recalled(ranks, messages, ranked)


def extend_index(
    indexes: IndexCache, standing: Standing, asked: IndexedSearch, begun: Beginning
) -> Operation[Recalled | None]:
    """Search an index that lacks added pieces, or all of a few: one statement brings them and their messages.

    Returns:
        The hits, as ``search_index`` finds them; a second statement fetches a message that only the extended
        index ranks so well. None: the database has to search.

    Raises:
        StrandlineError: the statement failed.
    """
    index, facts_scope = begun.onto, asked.facts_scope
    if facts_scope is not None and indexes.is_refused(facts_scope):
        return None
    ranks = NO_RANKS if index is None else (yield from _rank(indexes, standing, asked, index))
    keeps = not (standing.is_bounded or asked.beside)
    _messages, missing = _at_hand(index if keeps else None, ranks)
    with_facts = facts_scope is not None and indexes.find_index(facts_scope, standing.facts) is None
    fetched = yield from _fetch(asked, ranks, missing, with_facts=with_facts, begun=begun)
    if fetched.version != begun.version:
        return None
    if facts_scope is not None and with_facts:
        indexes.keep(facts_scope, fetched.facts)
    yield from add_part(indexes, asked.kept_scope, begun, fetched.part)
    return (yield from search_index(indexes, standing, asked, fetched.messages))


def _rank(
    indexes: IndexCache, standing: Standing, asked: IndexedSearch, index: ScopeIndex
) -> Operation[Ranks]:
    """The ranks of the pieces that are searched: those of one session are taken from the owner's index."""
    if not asked.query.limit:
        return NO_RANKS
    if asked.scope != asked.kept_scope and not standing.is_alone:
        index = yield from _narrow(indexes, asked.scope, index)
    rank = partial(index.rank, asked.query)
    # Off the event loop: of a large scope this takes some hundredths of a second.
    ranks: Ranks = rank() if index.is_quick else (yield Compute(rank))
    return ranks


def _narrow(indexes: IndexCache, scope: ScopeKey, owner: ScopeIndex) -> Operation[ScopeIndex]:
    """The kept index of a session, or a new one taken from its owner's."""
    kept = cast("ScopeIndex | None", indexes.find_index(scope, owner.version))
    if kept is None:
        kept = yield Compute(partial(owner.narrow, cast("UUID", scope.scope_key)))
        indexes.keep(scope, kept)
    return kept


def _at_hand(
    index: ScopeIndex | None, ranks: Ranks, known: Mapping[Place, Sequence[Utterance]] = NOTHING_KNOWN
) -> tuple[dict[Place, Sequence[Utterance]], list[int]]:
    """The messages known or kept by an index, and the numbers of ranked ones that are missing."""
    messages, missing = dict(known), []
    kept = {} if index is None else index.utterances
    for number, key in enumerate(ranks.places):
        if (utterance := kept.get(key)) is not None:
            messages[key] = [utterance]
        elif key not in known:
            missing.append(number)
    return messages, missing


def _keep_utterances(index: ScopeIndex, messages: Mapping[Place, Sequence[Utterance]]) -> None:
    for key, utterances in messages.items():
        if key not in index.utterances and len(utterances) == 1 and is_unchangeable(utterances[0].message):
            index.keep_utterance(utterances[0])


class _Fetched(NamedTuple):
    version: str
    messages: dict[Place, list[Utterance]]
    facts: FactIndex
    part: str


def _fetch(
    asked: IndexedSearch,
    ranks: Ranks,
    missing: Sequence[int],
    *,
    with_facts: bool,
    begun: Beginning | None = None,
) -> Operation[_Fetched]:
    from_seqs = [ranks.from_seqs[place] for place in missing]
    statement = IndexedHits(
        shard_key=asked.scope.shard_key,
        sessions=ranks.sessions,
        numbers=[ranks.numbers[place] for place in missing],
        from_seqs=from_seqs,
        through_seqs=[ranks.through_seqs[place] for place in missing],
        beside=asked.beside,
        facts_generation_id=asked.facts_generation_id if with_facts else None,
        max_facts=MAX_FACTS + 1,
        page_bytes=DEFAULT_WINDOW_BYTES,
    )
    if begun is None:
        rows = yield from fetch(statement)
    else:
        rows = yield from fetch(
            AddedHits(
                **statement.params,
                generation_id=asked.kept_scope.generation_id,
                scope_key=asked.kept_scope.scope_key,
                pieces_since=begun.pieces_since,
                at_once=PIECES_AT_ONCE,
                shown_in=asked.scope.scope_key,
                shown=ADDED_AT_ONCE if asked.query.limit else 0,
            )
        )
    head: dict[str, Any] = json.loads(rows[0].envelope)
    added = head["added"] or {}
    sessions = [ranks.sessions[ranks.numbers[place] - 1] for place in missing]
    sessions += [UUID(key) for key in added.get("session_keys") or ()]
    from_seqs += added.get("from_seqs") or ()
    messages: dict[Place, list[Utterance]] = {}
    read = zip(rows[1:], read_rows(rows[1:]), strict=True)
    for place, pairs in groupby(read, key=lambda pair: pair[0].place - 1):
        session_key = sessions[place]
        utterances = [Utterance(session_key, message) for _, message in pairs]
        # Twice where the index has an added piece: what was written while it was made may be in it or not.
        messages.setdefault((session_key.int, from_seqs[place]), utterances)
    facts = _fact_index(head["facts_version"] or "", head["facts"] or ())
    return _Fetched(head["version"], messages, facts, rows[0].id)


def _fact_index(version: str, facts: Sequence[Mapping[str, Any]]) -> FactIndex:
    if len(facts) > MAX_FACTS:
        return FactIndex(version, (), {}, (), is_whole=False)
    words: dict[str, list[int]] = {}
    for number, fact in enumerate(facts):
        for lexeme in fact["lexemes"]:
            words.setdefault(lexeme, []).append(number)
    read = [HitFact.read_json(fact) for fact in facts]
    return FactIndex(version, read, words, [len(fact["lexemes"]) for fact in facts])


def add_part(indexes: IndexCache, scope: ScopeKey, begun: Beginning, part: str) -> Operation[None]:
    """Add the next part, as ``index_part_v1`` gives it; a scope where that fails gets none for minutes."""
    try:
        yield Compute(partial(_add, indexes, scope, begun, part))
    except StrandlineError as error:
        logger.warning("no index was made", extra={"action": "index_failed", "reason": str(error)})
        indexes.refuse(scope)


def keep_empty(indexes: IndexCache, scope: ScopeKey, begun: Beginning) -> Operation[None]:
    """Keep the index of a scope without vectors, and so without pieces: facts are ranked by it."""
    # Off the event loop: the first index loads numpy.
    yield Compute(lambda: indexes.keep(scope, indexes.begin().finish(begun.version, 0)))


def _add(indexes: IndexCache, scope: ScopeKey, begun: Beginning, part: str) -> None:
    stored: dict[str, Any] = json.loads(part)
    if stored["version"] != begun.version:
        return
    parts = begun.parts or indexes.begin()
    keys = {key: UUID(key) for key in dict.fromkeys(stored["session_keys"] or ())}
    session_keys = [keys[key] for key in stored["session_keys"] or ()]
    if session_keys:
        columns = ("from_seqs", "through_seqs", "lengths", "roles", "speakers", "tones")
        days = [None if day is None else date.fromisoformat(day) for day in stored["said_on"]]
        vectors = bytes.fromhex(stored["vectors"] or "")
        read = (*(stored[column] for column in columns), days, stored["has_vector"], vectors)
        pieces = StoredPieces(session_keys, *read)
        parts.add(pieces, [Word(word, *held) for word, held in (stored["words"] or {}).items()])
    if len(session_keys) < PIECES_AT_ONCE:
        indexes.keep(scope, parts.finish(begun.version, stored["begins_at"], begun.onto))
    elif begun.onto is not None:
        indexes.drop(scope, begun.onto)  # too many to add at once
    elif parts.pieces < MAX_PIECES:
        through = PieceKey(session_keys[-1], stored["from_seqs"][-1], stored["last_piece"])
        indexes.keep_beginning(scope, replace(begun, parts=parts, through=through, is_small=False))
    else:
        indexes.refuse(scope)
