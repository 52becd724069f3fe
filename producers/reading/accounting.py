"""Accounts for what a read shows of memory: which facts and messages these are, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

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
from strandline.producers.reading.budget.pieces import FactPiece, MessagePiece, Place, place_of
from strandline.producers.reading.budget.recent_counts import recent_counts
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
from strandline.producers.reading.searching.gather import fact_pieces, matching_facts, message_pieces
from strandline.producers.reading.snapshot import Snapshot
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.search import SessionNames
from strandline.schemas.queries.conversation.sharing import SharedSessionNames
from strandline.schemas.values.lanes import FACTS

# By the session's key, as a place has it.
Names = Mapping[int, str]


def account_for(
    request: ReadRequest, snapshot: Snapshot, material: Material, fitted: Fitted
) -> Operation[Given]:
    """What the prompt holds of memory, each piece with its source.

    Of a block that shows a number of pieces and was cut, those count whose lines are left.
    """
    messages = [piece for name in material.hits for piece in _messages(name, material, fitted)]
    facts = [*fitted.filled.chosen.facts, *(yield from _counted_facts(request, snapshot, material, fitted))]
    names = yield from _session_names(request, messages, facts)
    matching = _matching_places(material)
    return Given(
        facts=tuple(_given_fact(fact, names) for fact in facts),
        hits=tuple(
            _given_message(piece, names, is_beside=piece.place not in matching)
            for piece in messages
            if piece.session_key.int in names
        ),
        summary=_summary(request, snapshot, fitted),
        sections=tuple(GivenSection(one.block.name, _kind(one.block), one.text) for one in fitted.kept),
    )


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
) -> Operation[list[FactPiece]]:
    """The facts of blocks that show a number of them, and of searches that were asked for facts."""
    blocks = [
        block.name
        for block in request.blocks
        if isinstance(block, (FactExtractionMemoryBlock, VectorMemoryBlock)) and not block.is_filler
    ]
    text = "\n".join(_text_of(name, fitted.kept) for name in blocks)
    newest = dict(zip(snapshot.fact_ids, ((fact, 0.0) for fact in snapshot.facts), strict=True))
    matching = {
        fact_id: one for name in blocks for fact_id, one in matching_facts(material.hits.get(name, ()))
    }
    shown = {fact_id: one for fact_id, one in (newest | matching).items() if fact_line(one[0]) in text}
    pieces = yield from fact_pieces(
        request.identity.shard_key, snapshot.generation_of(FACTS), shown, request.count_text
    )
    return list(pieces.values())


def _text_of(name: str, kept: Sequence[Contribution]) -> str:
    return next((one.text for one in kept if one.block.name == name), "")


def _session_names(
    request: ReadRequest, messages: Sequence[MessagePiece], facts: Sequence[FactPiece]
) -> Operation[Names]:
    """Names of the sessions that the pieces come from; one that was deleted meanwhile has none."""
    identity = request.identity
    own = {identity.session_key.int: identity.session_id}
    keys = {piece.session_key.int for piece in messages} | {key for fact in facts for key, _ in fact.sources}
    others = [UUID(int=key) for key in sorted(keys - own.keys())]
    if not others:
        return own
    rows = yield from fetch(SessionNames(shard_key=identity.shard_key, session_keys=others))
    names = own | {row.session_key.int: row.session_id for row in rows}
    left = [key for key in others if key.int not in names]
    if left and request.shared_key is not None:
        shared = yield from fetch(SharedSessionNames(shard_key=request.shared_key, session_keys=left))
        names |= {row.session_key.int: row.session_id for row in shared}
    return names


def _given_fact(fact: FactPiece, names: Names) -> GivenFact:
    known: list[tuple[str, int]] = [(names[key], seq) for key, seq in fact.sources if key in names]
    return GivenFact(fact.fact_id, fact.text, fact.said_at, sources_of_places(known), fact.score, fact.tokens)


def _matching_places(material: Material) -> frozenset[Place]:
    """The messages that match themselves, not only one beside them."""
    return frozenset(
        place_of(hit.session_key, message.seq)
        for hits in material.hits.values()
        for hit in hits
        for message in hit.messages
        if hit.session_key is not None and message.seq not in hit.beside_seqs
    )


def _given_message(piece: MessagePiece, names: Names, *, is_beside: bool) -> GivenMessage:
    return GivenMessage(
        piece.message,
        names[piece.session_key.int],
        piece.score,
        piece.similarity,
        piece.tokens,
        is_beside,
    )


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
