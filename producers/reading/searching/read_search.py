"""What a read finds for its blocks: hits, facts that match, and all that may fill its room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from strandline.pipelines.custom.contract import BlockReading
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    Material,
    SummaryMemoryBlock,
)
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.budget.choice import FACTS_SHARE
from strandline.producers.reading.budget.filling import SUMMARY_SHARE, Filling
from strandline.producers.reading.budget.fitting import reserved_tail
from strandline.producers.reading.budget.pieces import Candidates, FactPiece
from strandline.producers.reading.context import Omission
from strandline.producers.reading.rendering import is_quick, render_blocks
from strandline.producers.reading.request import ReadRequest
from strandline.producers.reading.searching.block_search import (
    Shown,
    query_text,
    search_for_block,
    sources_of,
)
from strandline.producers.reading.searching.gather import (
    MAX_MATCHING_FACTS,
    NEWEST_FACTS,
    fact_piece,
    matching_facts,
    message_pieces,
    without_noise,
)
from strandline.producers.reading.snapshot import Snapshot
from strandline.producers.search.hits import MESSAGES_ALONE, Hit, HitFact, Place
from strandline.producers.search.query import prepare_query
from strandline.producers.search.ranking import FactsAlone, SearchQuery, Target, Vectors, rank_hits
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Operation, Run
from strandline.schemas.values.lanes import FACTS, VECTORS
from strandline.schemas.values.message import Message

# Of the window, what facts are looked for if nothing is asked: as many as a vector block looks for.
LATEST_MESSAGES = 5


def search_for_read(
    request: ReadRequest, snapshot: Snapshot
) -> Operation[tuple[dict[str, tuple[Hit, ...]], list[Hit], list[Omission]]]:
    """The hits of each vector block, and the facts that match; a search that fails is among the omissions."""
    hits: dict[str, tuple[Hit, ...]] = {}
    facts: list[Hit] = []
    omissions: list[Omission] = []
    room = max(0, request.token_limit - snapshot.fixed_tokens)
    searching = [block for block in request.blocks if _searches(block, snapshot)]
    if snapshot.facts and _have_room(snapshot.facts, room, request):
        searching = [block for block in searching if not isinstance(block, FactExtractionMemoryBlock)]
    if not searching:
        return hits, facts, omissions
    shown = yield from _shown_anyway(request, snapshot)
    prepared: dict[tuple[str, int | None], SearchQuery] = {}
    own_facts = next((block for block in searching if isinstance(block, FactExtractionMemoryBlock)), None)
    beside = None if own_facts is None else _searched_beside(searching, request)
    for block in searching:
        text = _query_of(block, request, snapshot)
        if not text or (block is own_facts and beside is not None):
            continue
        try:
            if not isinstance(block, VectorMemoryBlock):
                facts = yield from _matching_facts(text, request, snapshot, prepared)
                continue
            sources = yield from sources_of(block, snapshot, request.identity, request.shared_key)
            if sources is None:
                continue
            query = yield from _prepare(text, sources.vectors, request, prepared)
            hits[block.name], found_facts, of_block = yield from search_for_block(
                block,
                query,
                sources,
                shown,
                room,
                request.indexes,
                snapshot.standing,
                _facts_alone(snapshot) if block is beside else None,
            )
            if block is beside:
                facts = without_noise(found_facts)
        except StrandlineError as error:
            if request.in_callers_transaction:
                raise
            of_block = [Omission("search_failed", block.name, f"The search failed: {error}")]
            if block is beside and own_facts is not None:
                of_block.append(replace(of_block[0], name=own_facts.name))
        omissions += of_block
    return hits, facts, omissions


def _query_of(block: BaseMemoryBlock, request: ReadRequest, snapshot: Snapshot) -> str:
    latest = block.retrieval_context_window if isinstance(block, VectorMemoryBlock) else LATEST_MESSAGES
    return query_text(request.query, request.messages, snapshot.window, latest)


def _searched_beside(searching: Sequence[BaseMemoryBlock], request: ReadRequest) -> VectorMemoryBlock | None:
    """The first block whose search can look for facts in the same statement: by the same query."""
    for block in searching:
        if not isinstance(block, VectorMemoryBlock) or block.scope == "shared":
            continue
        is_same = request.query is not None or block.retrieval_context_window == LATEST_MESSAGES
        if is_same and block.kinds == MESSAGES_ALONE:
            return block
    return None


def _facts_alone(snapshot: Snapshot) -> FactsAlone:
    return FactsAlone(snapshot.serving[FACTS]["generation_id"], MAX_MATCHING_FACTS)


def _prepare(
    text: str,
    vectors: Vectors | None,
    request: ReadRequest,
    prepared: dict[tuple[str, int | None], SearchQuery],
) -> Operation[SearchQuery]:
    """The query in the form of the search; each text is embedded once per generation."""
    asked = text, None if vectors is None else vectors.generation_id
    if asked not in prepared:
        vectors = None if vectors is None else replace(vectors, time_zone=request.time_zone)
        prepared[asked] = yield from prepare_query(text, vectors, request.embed_query)
    return prepared[asked]


def _matching_facts(
    text: str,
    request: ReadRequest,
    snapshot: Snapshot,
    prepared: dict[tuple[str, int | None], SearchQuery],
) -> Operation[list[Hit]]:
    serving = snapshot.serving.get(VECTORS)
    vectors = None if serving is None else Vectors(serving["generation_id"], serving["config"])
    query = yield from _prepare(text, vectors, request, prepared)
    if query.is_empty:
        return []
    target = Target(request.identity, "owner", MESSAGES_ALONE, None)
    hits = yield from rank_hits(
        query,
        vectors,
        target,
        limit=0,
        similarity_cutoff=0.0,
        indexes=request.indexes,
        standing=snapshot.standing,
        facts=_facts_alone(snapshot),
    )
    return without_noise(hits)


def _searches(block: BaseMemoryBlock, snapshot: Snapshot) -> bool:
    if isinstance(block, VectorMemoryBlock):
        return VECTORS in snapshot.serving and _may_find(block, snapshot)
    return isinstance(block, FactExtractionMemoryBlock) and block.is_filler and bool(snapshot.facts)


def _have_room(newest_facts: Sequence[HitFact], room: int, request: ReadRequest) -> bool:
    """Whether the newest facts are all that there are and have room, so that none has to be preferred."""
    if len(newest_facts) >= NEWEST_FACTS:
        return False
    tokens = sum(fact_piece(fact, 0.0, request.count_text).tokens for fact in newest_facts)
    return tokens <= room * (1 - SUMMARY_SHARE) * FACTS_SHARE


def _may_find(block: VectorMemoryBlock, snapshot: Snapshot) -> bool:
    return block.scope != "session" or snapshot.has_flushed


def _shown_anyway(request: ReadRequest, snapshot: Snapshot) -> Operation[Shown]:
    """The window, the facts, and the reserved part of the tail: the read shows these in any case."""
    seqs = frozenset([snapshot.question, *(one.seq or 0 for one in snapshot.pinned)])
    if not snapshot.tail.messages:
        return Shown(request.identity, snapshot.window_from, seqs, snapshot.facts)
    always = [block for block in request.blocks if block.priority == 0]
    contributions, _ = yield from render_blocks(
        always, Material(snapshot.fact_texts, snapshot.states, reading=reading_of(request, snapshot))
    )
    reserve = partial(
        reserved_tail,
        room=request.token_limit - snapshot.fixed_tokens,
        contributions=contributions,
        tail=snapshot.tail,
        measure=request.measure,
    )
    reserved: tuple[Message, ...]
    if is_quick(contributions):
        reserved = reserve()
    else:
        reserved = yield Run(reserve)
    seqs |= {message.seq for message in reserved if message.seq is not None}
    visible_from = snapshot.window_from
    while visible_from - 1 in seqs:
        visible_from -= 1
    return Shown(request.identity, visible_from, seqs, snapshot.facts)


def gather_filling(
    request: ReadRequest, snapshot: Snapshot, material: Material, fact_hits: Sequence[Hit]
) -> Filling:
    """What may fill the room, for the blocks that share it out."""
    blocks = tuple(block for block in request.blocks if block.is_filler)
    newest: list[FactPiece] = []
    matching: list[FactPiece] = []
    if any(isinstance(block, FactExtractionMemoryBlock) for block in blocks):
        matching = [fact_piece(fact, score, request.count_text) for fact, score in matching_facts(fact_hits)]
        known = {piece.fact_id: piece for piece in matching}
        newest = [
            known.get(fact.fact_id) or fact_piece(fact, 0.0, request.count_text)
            for fact in snapshot.facts[: -NEWEST_FACTS - 1 : -1]
        ]
    window = snapshot.known.window
    is_behind_head = snapshot.note is None and snapshot.prompt is None
    is_whole = window.messages is snapshot.window and is_behind_head
    return Filling(
        blocks=blocks,
        candidates=Candidates(
            newest_facts=newest,
            facts=matching,
            messages={
                block.name: message_pieces(material.hits.get(block.name, ()))
                for block in blocks
                if isinstance(block, VectorMemoryBlock)
            },
        ),
        summaries={
            block.name: str(text)
            for block in blocks
            if isinstance(block, SummaryMemoryBlock) and (text := block.render(material))
        },
        shown=window.by_place(request.identity.session_key.int)
        if is_whole
        else by_place(request, (*snapshot.pinned, *snapshot.window)),
        shown_texts=window.texts if is_whole and any(material.hits.values()) else None,
        time_zone=request.time_zone,
    )


def by_place(request: ReadRequest, messages: Sequence[Message]) -> dict[Place, Message]:
    session = request.identity.session_key.int
    return {(session, message.seq or 0): message for message in messages}


def reading_of(request: ReadRequest, snapshot: Snapshot) -> BlockReading:
    """What custom blocks are told of the read."""
    query = request.query
    if query is None and request.messages:
        query = request.messages[-1]
    return BlockReading(
        session_id=request.identity.session_id,
        query=query,
        messages=(*snapshot.pinned, *snapshot.window),
        arguments=request.block_arguments,
    )
