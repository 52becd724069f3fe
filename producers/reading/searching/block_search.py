"""The search of a vector block: its query, its sources and its hits.

``producers.search.ranking`` ranks; this module prepares the query, and drops hits that the read shows anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.context import Omission
from strandline.producers.reading.searching.gather import hits_for, without_noise
from strandline.producers.reading.searching.rerank import MAX_CANDIDATES, postprocess_hits
from strandline.producers.reading.snapshot import Snapshot
from strandline.producers.search.hits import Hit, HitFact, Place
from strandline.producers.search.index.index_cache import IndexCache
from strandline.producers.search.index.indexed_search import Standing
from strandline.producers.search.query import MAX_QUERY_CHARACTERS
from strandline.producers.search.ranking import (
    ALL_VISIBLE,
    FactsAlone,
    SearchQuery,
    Target,
    Vectors,
    facts_generation,
    rank_hits,
    serving_vectors,
)
from strandline.schemas.postgres.operations import Operation, Run
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import FACTS, VECTORS
from strandline.schemas.values.message import Message

# A hit is shown with the other half of its exchange: a question's answer, or what was answered.
MESSAGES_BESIDE = 1


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a search: the serving generations, and the shared scope, if there is one."""

    vectors: Vectors
    facts_generation_id: int | None
    shared_key: UUID | None


@dataclass(frozen=True, slots=True)
class Shown:
    """The facts and messages that the read shows anyway: of this session, ``seqs`` and all messages from
    ``visible_from`` on.
    """

    identity: SessionIdentity
    visible_from: int
    seqs: frozenset[int]
    facts: Sequence[HitFact] = ()

    def holds(self, seq: int) -> bool:
        """Whether the read shows this message of its session."""
        return seq >= self.visible_from or seq in self.seqs


def query_text(
    query: str | Message | None, messages: Sequence[Message] | None, window: Sequence[Message], latest: int
) -> str:
    """The text to search for: the query, else the ``latest`` of the messages passed, or of the window."""
    if query is not None:
        text = query if isinstance(query, str) else query.shown_text
    else:
        text = "\n".join(one.shown_text for one in (messages or window)[-latest:] if one.shown_text)
    return text[-MAX_QUERY_CHARACTERS:].strip()


def sources_of(
    block: VectorMemoryBlock, snapshot: Snapshot, identity: SessionIdentity, shared_key: UUID | None
) -> Operation[Sources | None]:
    """The sources of the block's search; None if nothing has been derived yet."""
    if block.scope == "shared" and shared_key is not None:
        vectors = yield from serving_vectors(shared_key)
        return None if vectors is None else Sources(vectors, None, shared_key)
    serving = snapshot.serving[VECTORS]
    facts = snapshot.serving.get(FACTS, {}).get("generation_id") if "fact" in block.kinds else None
    if facts is None:
        facts = yield from facts_generation(block.kinds, identity.shard_key)
    return Sources(Vectors(serving["generation_id"], serving["config"]), facts, shared_key)


def search_for_block(
    block: VectorMemoryBlock,
    query: SearchQuery,
    sources: Sources,
    shown: Shown,
    room: int,
    indexes: IndexCache | None,
    standing: Standing,
    facts: FactsAlone | None = None,
) -> Operation[tuple[tuple[Hit, ...], list[Hit], list[Omission]]]:
    """The best hits for one block, without those that are shown anyway; the facts that were asked for beside
    them; and the search's omissions.

    Args:
        room: tokens that the block's hits may fill, if it has no number of hits.
        indexes: the process's indexes of scopes, if they may be used.
        standing: the owner's, by which it is known whether these may be used.
        facts: facts to search for in the same statement.

    Raises:
        StrandlineError: the statement failed.
    """
    omissions = [] if query.problem is None else [Omission("search_text_only", block.name, query.problem)]
    if query.is_empty:
        return (), [], omissions
    target = Target(
        identity=shown.identity,
        scope=block.scope,
        kinds=block.kinds,
        shared_key=sources.shared_key,
        visible_from=ALL_VISIBLE if block.exclude_current else shown.visible_from,
        facts_generation_id=sources.facts_generation_id,
        facts_shown=[str(fact.fact_id) for fact in shown.facts],
        beside=0 if block.is_filler else MESSAGES_BESIDE,
    )
    top_k = hits_for(room) if block.similarity_top_k is None else block.similarity_top_k
    limit = MAX_CANDIDATES if block.steps else top_k
    ranked_hits = yield from rank_hits(
        query,
        sources.vectors,
        target,
        limit=limit,
        similarity_cutoff=block.similarity_cutoff,
        indexes=indexes,
        standing=standing,
        facts=facts,
    )
    found_facts: list[Hit] = []
    if facts is not None:
        found_facts = [hit for hit in ranked_hits if hit.fact is not None]
        ranked_hits = [hit for hit in ranked_hits if hit.fact is None]
    if block.is_filler:
        ranked_hits = without_noise(ranked_hits, query.aim)
    hits = without_shown(ranked_hits, shown)
    if block.steps and hits:
        hits, failures = yield Run(partial(postprocess_hits, block, query.text, hits))
        omissions += failures
    return hits[:top_k], found_facts, omissions


def without_shown(hits: Sequence[Hit], shown: Shown) -> tuple[Hit, ...]:
    """The hits without messages that the read shows anyway; a message stays in its best hit, facts stay."""
    own_session = shown.identity.session_key.int
    seen: set[Place] = set()
    remaining = []
    for hit in hits:
        if hit.utterance is not None:
            place = hit.utterance.place
            if place not in seen and not (place[0] == own_session and shown.holds(place[1])):
                seen.add(place)
                remaining.append(hit)
            continue
        if hit.session_key is None:
            remaining.append(hit)
            continue
        session = hit.session_key.int
        messages = []
        for message in hit.messages:
            place = session, message.seq or 0
            if place not in seen and not (session == own_session and shown.holds(place[1])):
                seen.add(place)
                messages.append(message)
        if messages:
            is_whole = len(messages) == len(hit.messages)
            remaining.append(hit if is_whole else replace(hit, messages=tuple(messages)))
    return tuple(remaining)
