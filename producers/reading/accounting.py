"""Accounts for what a read shows of memory: which facts and messages these are, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from strandline.pipelines.transcript import full_text
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    Material,
    SummaryMemoryBlock,
)
from strandline.producers.blocks.render import fact_line, message_line
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.budget.contributions import Contribution
from strandline.producers.reading.budget.fitting import Fitted
from strandline.producers.reading.budget.pieces import FactPiece, MessagePiece
from strandline.producers.reading.budget.recent_counts import recent_counts
from strandline.producers.reading.context import Omission
from strandline.producers.reading.given import (
    Given,
    GivenFact,
    GivenMessage,
    GivenSection,
    GivenSummary,
    SectionKind,
    sources_of_places,
)
from strandline.producers.reading.request import ReadRequest
from strandline.producers.reading.searching.gather import fact_piece, matching_facts, message_pieces
from strandline.producers.reading.snapshot import Snapshot
from strandline.producers.search.hits import Place
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.search import SessionNames
from strandline.schemas.queries.conversation.sharing import SharedSessionNames

# By the session's key, as a place has it.
Names = Mapping[int, str]


def account_for(
    request: ReadRequest, snapshot: Snapshot, material: Material, fitted: Fitted
) -> Operation[Given]:
    """What the prompt holds of memory, each piece with its source.

    Of a block that shows a number of pieces and was cut, those count whose lines are left.
    """
    messages = [piece for name in material.hits for piece in _messages(name, material, fitted)]
    facts = [*fitted.filled.chosen.facts, *_counted_facts(request, snapshot, material, fitted)]
    names = yield from _session_names(request, messages)
    beside = _places_beside(material)
    return Given(
        facts=tuple([_given_fact(fact) for fact in facts]),
        hits=tuple(
            [
                GivenMessage(
                    piece.message,
                    names[piece.place[0]],
                    piece.score,
                    piece.similarity,
                    piece.tokens,
                    piece.place in beside,
                )
                for piece in messages
                if piece.place[0] in names
            ]
        ),
        summary=_summary(request, snapshot, fitted),
        sections=tuple(GivenSection(one.block.name, _kind(one.block), one.text) for one in fitted.kept),
    )


def searched_in_part(memory: Given, indexed_characters: int) -> Iterator[Omission]:
    """The messages found whose end no search finds."""
    for hit in memory.hits:
        if len(full_text(hit.message)) > indexed_characters:
            reason = (
                f"Of message {hit.message.seq} of session {hit.session_id} only the first"
                f" {indexed_characters:,} characters are searched."
            )
            yield Omission("search_cut", "search", reason)


def _kind(block: BaseMemoryBlock) -> SectionKind:
    if isinstance(block, FactExtractionMemoryBlock):
        return "facts"
    if isinstance(block, SummaryMemoryBlock):
        return "summary"
    return "messages" if isinstance(block, VectorMemoryBlock) else "other"


def _messages(name: str, material: Material, fitted: Fitted) -> Sequence[MessagePiece]:
    chosen = fitted.filled.chosen.messages.get(name)
    if chosen is not None:
        return chosen
    text = _text_of(name, fitted.kept)
    return [piece for piece in message_pieces(material.hits[name]) if message_line(piece.message) in text]


def _counted_facts(
    request: ReadRequest, snapshot: Snapshot, material: Material, fitted: Fitted
) -> list[FactPiece]:
    """The facts of blocks that show a number of them, and of searches that were asked for facts."""
    blocks = [
        block.name
        for block in request.blocks
        if isinstance(block, (FactExtractionMemoryBlock, VectorMemoryBlock)) and not block.is_filler
    ]
    if not blocks:
        return []
    text = "\n".join(_text_of(name, fitted.kept) for name in blocks)
    facts = {fact.fact_id: (fact, 0.0) for fact in snapshot.facts} | {
        fact.fact_id: (fact, score)
        for name in blocks
        for fact, score in matching_facts(material.hits.get(name, ()))
    }
    return [fact_piece(*one, request.count_text) for one in facts.values() if fact_line(one[0].text) in text]


def _text_of(name: str, kept: Sequence[Contribution]) -> str:
    return next((one.text for one in kept if one.block.name == name), "")


def _session_names(request: ReadRequest, messages: Sequence[MessagePiece]) -> Operation[Names]:
    """Names of the sessions that the messages come from; one that was deleted meanwhile has none."""
    identity = request.identity
    own = {identity.session_key.int: identity.session_id}
    others = [UUID(int=key) for key in sorted({piece.place[0] for piece in messages} - own.keys())]
    if not others:
        return own
    rows = yield from fetch(SessionNames(shard_key=identity.shard_key, session_keys=others))
    names = own | {row.session_key.int: row.session_id for row in rows}
    left = [key for key in others if key.int not in names]
    if left and request.shared_key is not None:
        shared = yield from fetch(SharedSessionNames(shard_key=request.shared_key, session_keys=left))
        names |= {row.session_key.int: row.session_id for row in shared}
    return names


def _given_fact(fact: FactPiece) -> GivenFact:
    places = [(name, seq) for (_, seq), name in fact.sources.items() if name is not None]
    sources = sources_of_places(places) if places else ()
    return GivenFact(fact.fact_id, fact.text, fact.said_at, sources, fact.score, fact.tokens)


def _places_beside(material: Material) -> frozenset[Place]:
    """The messages that only stand beside one that matches."""
    hits = [hit for of_block in material.hits.values() for hit in of_block if hit.session_key is not None]
    if not any(hit.beside_seqs for hit in hits):
        return frozenset()
    places = [
        ((hit.session_key.int, message.seq or 0), message.seq in hit.beside_seqs)
        for hit in hits
        if hit.session_key is not None
        for message in hit.messages
    ]
    return frozenset(place for place, _ in places) - {place for place, is_beside in places if not is_beside}


def _summary(request: ReadRequest, snapshot: Snapshot, fitted: Fitted) -> GivenSummary | None:
    block = next((one for one in request.blocks if isinstance(one, SummaryMemoryBlock)), None)
    text = _text_of(block.name, fitted.kept) if block is not None else ""
    if block is None or not text:
        return None
    pipeline = block.pipeline or ""
    through = snapshot.covered_through((pipeline,))[pipeline]
    is_cut = any(one.name == block.name for one in fitted.omitted)
    return GivenSummary(_unescaped(text), through, is_cut, recent_counts.count(request.count_text, text))


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
