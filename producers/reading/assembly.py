"""Makes the result of a read: messages in order with the memory in them, and where each piece is from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from strandline.pipelines.transcript import full_text
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    InsertMethod,
    SummaryMemoryBlock,
)
from strandline.producers.blocks.render import SEPARATOR, fact_line, message_line
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.call_pairs import NOTE_TOKENS, begins_with_user, wants_user_first
from strandline.producers.reading.candidates import fact_piece, matching_facts, message_pieces
from strandline.producers.reading.choice import Choice
from strandline.producers.reading.context import (
    Given,
    GivenFact,
    GivenMessage,
    GivenSection,
    GivenSummary,
    MemoryContext,
    Omission,
    SectionKind,
)
from strandline.producers.reading.contributions import recent_counts
from strandline.producers.reading.pieces import Candidates, FactPiece, MessagePiece
from strandline.producers.reading.request import ReadRequest
from strandline.producers.reading.snapshot import Snapshot, insert_in_order
from strandline.producers.search.hits import Hit, Place
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.search import SessionNames
from strandline.schemas.queries.conversation.sharing import SharedSessionNames
from strandline.schemas.values.message import HEAD_ROLES, Content, Message
from strandline.schemas.values.undelivered import Undelivered

Parts = Sequence[Mapping[str, Any]]
# By name of the block.
Hits = Mapping[str, Sequence[Hit]]
# By the session's key, as a place has it.
Names = Mapping[int, str]


def make_context(
    request: ReadRequest,
    snapshot: Snapshot,
    candidates: Candidates,
    choice: Choice,
    pipelines: tuple[str, ...],
) -> Operation[MemoryContext]:
    """The result of a read: the messages in order with the memory in them, and an account of that memory.

    ``pipelines`` feed the blocks, hidden ones included.
    """
    memory = yield from _account_for(request, snapshot, candidates, choice)
    covered = snapshot.covered_through(pipelines)
    messages, added = _messages_in_order(request, snapshot, choice)
    tokens = choice.tokens + NOTE_TOKENS * len(added)
    return MemoryContext(
        messages=messages,
        covered_through=covered,
        caught_up=_caught_up(snapshot, covered, request.wait_for),
        omitted=(
            *snapshot.omitted,
            *candidates.omitted,
            *choice.omitted,
            *added,
            *_searched_in_part(memory, request.indexed_characters),
        ),
        tokens=tokens,
        over_budget=tokens > request.token_limit,
        session_id=request.identity.session_id,
        memory=memory,
        token_limit=request.token_limit,
        window_from=snapshot.window_from,
        pinned_through=snapshot.pinned_through,
        time_zone=snapshot.time_zone,
        prompt_seq=snapshot.prompt,
        waiting=Undelivered.read(snapshot.header["session"] or {}),
    )


def _messages_in_order(
    request: ReadRequest, snapshot: Snapshot, choice: Choice
) -> tuple[tuple[Message, ...], list[Omission]]:
    tail, window = snapshot.with_note(choice.tail), snapshot.window
    while tail and window and window[0].seq in snapshot.ahead:
        end = next((at for at, one in enumerate(window) if at and not one.answers), len(window))
        tail, window = insert_in_order(window[:end], tail), window[end:]
    messages = assemble_messages(
        pinned=snapshot.head,
        tail=tail,
        window=window,
        memory=choice.memory,
        parts=choice.parts,
        method=request.insert_method,
    )
    begun = begins_with_user(messages)
    if len(begun) == len(messages) or not wants_user_first(messages):
        return messages, []
    why = "The first message shown is not a user's, so a line stands before it."
    return begun, [Omission("user_added", "window", why)]


def _caught_up(snapshot: Snapshot, covered: Mapping[str, int], wait_for: int | None) -> bool:
    if wait_for is not None and wait_for > snapshot.last_seq:
        return False
    target = snapshot.flushed_through if wait_for is None else min(wait_for, snapshot.flushed_through)
    return all(through >= target for through in covered.values())


def assemble_messages(
    *,
    pinned: Sequence[Message],
    tail: Sequence[Message],
    window: Sequence[Message],
    memory: str,
    parts: Parts,
    method: InsertMethod,
) -> tuple[Message, ...]:
    """Pinned head, tail and window in order, with the memory in the message that ``method`` names.

    ``SYSTEM``: after the text of the first pinned system message, or as a separate system message at the
    front. ``USER``: before the text of the window's latest user message; without one, as for ``SYSTEM``.
    """
    if not memory and not parts:
        return (*pinned, *tail, *window)
    if method == InsertMethod.USER and (place := _latest_user(window)) is not None:
        asking = window[place]
        copy = replace(asking, content=_with_memory(asking.content, memory, parts, in_front=True))
        return (*pinned, *tail, *window[:place], copy, *window[place + 1 :])
    head = next((index for index, message in enumerate(pinned) if message.role in HEAD_ROLES), None)
    if head is None:
        return (Message("system", _with_memory(None, memory, parts)), *pinned, *tail, *window)
    copy = replace(pinned[head], content=_with_memory(pinned[head].content, memory, parts))
    return (*pinned[:head], copy, *pinned[head + 1 :], *tail, *window)


def _latest_user(window: Sequence[Message]) -> int | None:
    places = range(len(window) - 1, -1, -1)
    return next((place for place in places if window[place].is_new_turn), None)


def _with_memory(content: Content, memory: str, parts: Parts, *, in_front: bool = False) -> Content:
    if not parts and (content is None or isinstance(content, str)):
        texts = (memory, content) if in_front else (content, memory)
        return SEPARATOR.join(text for text in texts if text)
    own, added = _as_parts(content), [*_as_parts(memory), *parts]
    return [*added, *own] if in_front else [*own, *added]


def _as_parts(content: Content) -> Parts:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _account_for(
    request: ReadRequest, snapshot: Snapshot, candidates: Candidates, choice: Choice
) -> Operation[Given]:
    """An account of the prompt's memory, each piece with its source.

    Of a cut block with a number of pieces, those count whose lines are left.
    """
    hits = candidates.material.hits
    messages = [piece for name in hits for piece in _messages(name, hits[name], choice)]
    facts = [*choice.chosen.facts, *_counted_facts(request, snapshot, hits, choice)]
    names = yield from _session_names(request, messages)
    beside = _places_beside(hits)
    return Given(
        facts=tuple(
            [
                GivenFact(one.fact_id, one.text, one.said_at, one.named_sources, one.score, one.tokens)
                for one in facts
            ]
        ),
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
        summary=_summary(request, snapshot, choice),
        sections=tuple(GivenSection(one.block.name, _kind(one.block), one.text) for one in choice.kept),
    )


def _searched_in_part(memory: Given, indexed_characters: int) -> Iterator[Omission]:
    for hit in memory.hits:
        message = hit.message
        is_short = type(message.content) is str and len(message.content) <= indexed_characters
        if not (is_short and not message.tool_calls) and len(full_text(message)) > indexed_characters:
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


def _messages(name: str, hits: Sequence[Hit], choice: Choice) -> Sequence[MessagePiece]:
    chosen = choice.chosen.messages.get(name)
    if chosen is not None:
        return chosen
    text = _text_of(name, choice)
    return [piece for piece in message_pieces(hits) if message_line(piece.message) in text]


def _counted_facts(request: ReadRequest, snapshot: Snapshot, hits: Hits, choice: Choice) -> list[FactPiece]:
    blocks = [
        block.name
        for block in request.blocks
        if isinstance(block, (FactExtractionMemoryBlock, VectorMemoryBlock)) and not block.is_filler
    ]
    if not blocks:
        return []
    text = "\n".join(_text_of(name, choice) for name in blocks)
    facts = {fact.fact_id: (fact, 0.0) for fact in snapshot.facts} | {
        fact.fact_id: (fact, score) for name in blocks for fact, score in matching_facts(hits.get(name, ()))
    }
    shown_as = request.count_text, snapshot.time_zone
    return [fact_piece(*one, *shown_as) for one in facts.values() if fact_line(one[0].text) in text]


def _text_of(name: str, choice: Choice) -> str:
    return next((one.text for one in choice.kept if one.block.name == name), "")


def _session_names(request: ReadRequest, messages: Sequence[MessagePiece]) -> Operation[Names]:
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


def _places_beside(hits: Hits) -> frozenset[Place]:
    """The messages shown only as neighbours of a match."""
    all_hits = [hit for of_block in hits.values() for hit in of_block]
    if not any(hit.beside_seqs for hit in all_hits):
        return frozenset()
    places = [
        ((hit.session_key.int, message.seq or 0), message.seq in hit.beside_seqs)
        for hit in all_hits
        if hit.session_key is not None
        for message in hit.messages
    ]
    return frozenset(place for place, _ in places) - {place for place, is_beside in places if not is_beside}


def _summary(request: ReadRequest, snapshot: Snapshot, choice: Choice) -> GivenSummary | None:
    block = next((one for one in request.blocks if isinstance(one, SummaryMemoryBlock)), None)
    text = _text_of(block.name, choice) if block is not None else ""
    if block is None or not text:
        return None
    pipeline = block.pipeline or ""
    through = snapshot.covered_through((pipeline,))[pipeline]
    unescaped = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    is_cut = any(one.name == block.name for one in choice.omitted)
    return GivenSummary(unescaped, through, is_cut, recent_counts.count(request.count_text, text))
