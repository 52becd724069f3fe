"""Narrows a read to blocks that can be shown, and to messages for which the caller left room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from strandline.producers.blocks.base import BaseMemoryBlock, CustomMemoryBlock
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.context import Omission, sum_tokens
from strandline.producers.reading.request import ReadRequest
from strandline.producers.reading.snapshot import Snapshot, Tail, newest_that_fit
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.message import Message, shown_with

# So much of a question is shown whatever else there is: its beginning and its end.
MIN_QUESTION_TOKENS = 64


def narrow(request: ReadRequest, snapshot: Snapshot) -> tuple[ReadRequest, Snapshot]:
    """The read without blocks that cannot be shown, and messages for which the caller left no room.

    The snapshot names these omissions.
    """
    blocks, omissions = _readable_blocks(request.blocks, snapshot, request.shared_key)
    own = request.token_limit if snapshot.token_limit is None else snapshot.token_limit
    limit = (own if request.within_own else request.token_limit) - request.initial_token_count
    request = replace(request, blocks=blocks, token_limit=max(0, limit), time_zone=snapshot.time_zone)
    if limit < own:
        snapshot, cut = shorter_window(snapshot, request.token_limit)
        omissions += cut
    if request.latest_tokens is not None:
        snapshot = _latest_alone(snapshot, request.latest_tokens)
    elif snapshot.ahead and snapshot.fixed_tokens > request.token_limit:
        snapshot, cut = _shorter_question(snapshot, request.token_limit)
        omissions += cut
    if omissions:
        snapshot = replace(snapshot, omitted=(*omissions, *snapshot.omitted))
    return request, snapshot


def _readable_blocks(
    blocks: Sequence[BaseMemoryBlock], snapshot: Snapshot, shared_key: UUID | None
) -> tuple[tuple[BaseMemoryBlock, ...], list[Omission]]:
    readable, omissions = [], []
    for block in blocks:
        if (reason := _unreadable(block, snapshot)) is not None:
            omissions.append(Omission("block_failed", block.name, reason))
            continue
        readable.append(block)
        if (reason := _not_fed(block, snapshot)) is not None:
            omissions.append(Omission("not_fed", block.name, reason))
        elif _searches_shared(block) and snapshot.exists and snapshot.shared_key != shared_key:
            reason = (
                "The session began without this shared scope, so its messages are not shared with the scope."
            )
            omissions.append(Omission("not_shared", block.name, reason))
    return tuple(readable), omissions


def shorter_window(snapshot: Snapshot, token_limit: int) -> tuple[Snapshot, list[Omission]]:
    """The snapshot with the newest window messages that fit with the pinned head, or the last turn."""
    pinned_tokens = sum_tokens(snapshot.pinned)
    if pinned_tokens + sum_tokens(snapshot.window) <= token_limit:
        return snapshot, []
    kept = newest_that_fit(Tail(snapshot.window), token_limit - pinned_tokens)
    first = max(len(snapshot.window) - len(kept), 0)
    first = min(first, _last_turn(snapshot.window))
    if first == 0:
        return snapshot, []
    cut, kept = snapshot.window[:first], tuple(snapshot.window[first:])
    reason = "The tokens of this read leave no room for it."
    omission = Omission("window", "window", reason, cut[0].seq, cut[-1].seq)
    shorter = replace(
        snapshot,
        window=kept,
        window_from=kept[0].seq or snapshot.window_from,
        fixed_tokens=pinned_tokens + sum_tokens(kept),
        ahead=(),
    )
    return shorter, [omission]


def _shorter_question(snapshot: Snapshot, token_limit: int) -> tuple[Snapshot, list[Omission]]:
    """The snapshot without the middle of its question's texts, the oldest first, so that the rest fits."""
    window, fixed = list(snapshot.window), snapshot.fixed_tokens
    omitted = []
    for at, question in enumerate(window):
        text, size = question.content, question.tokens or 1
        room = max(MIN_QUESTION_TOKENS, size - max(0, fixed - token_limit))
        if (
            question.seq not in snapshot.ahead
            or question.role != "user"
            or not isinstance(text, str)
            or room >= size
        ):
            continue
        half = len(text) * room // (2 * size)
        window[at] = shown_with(question, content=f"{text[:half]}\n[…]\n{text[-half:]}", tokens=room)
        fixed += room - size
        reason = f"Of the question {quantity(room, 'token')} of {size} are shown, to fit the limit."
        omitted.append(Omission("question_cut", "window", reason, question.seq, question.seq))
    return replace(snapshot, window=tuple(window), fixed_tokens=fixed), omitted


def _latest_alone(snapshot: Snapshot, tokens: int) -> Snapshot:
    kept = newest_that_fit(Tail(snapshot.window), tokens)
    window_from = kept[0].seq if kept else snapshot.last_seq + 1
    return replace(
        snapshot,
        pinned=(),
        note=None,
        window=kept,
        window_from=max(snapshot.window_from, window_from or 0),
        fixed_tokens=sum_tokens(kept),
        ahead=() if len(kept) < len(snapshot.window) else snapshot.ahead,
    )


def _unreadable(block: BaseMemoryBlock, snapshot: Snapshot) -> str | None:
    serving = snapshot.serving.get(block.pipeline or "")
    if isinstance(block, CustomMemoryBlock) and serving is not None:
        folded_by, here = serving["version"], block.definition.version
        if folded_by != here:
            return (
                f"Its state was folded by version {folded_by!r} of the block;"
                f" the code here is version {here!r}."
            )
    if type(block) is BaseMemoryBlock and (block.pipeline or "") in snapshot.states:
        state = snapshot.states[block.pipeline or ""]
        if not isinstance(state, Mapping) or not isinstance(state.get("text"), str):
            return (
                "This process cannot render its state: name the block's class in"
                " STRANDLINE_BLOCKS, or pass an instance of it in memory_blocks."
            )
    return None


def _searches_shared(block: BaseMemoryBlock) -> bool:
    return isinstance(block, VectorMemoryBlock) and block.scope == "shared"


def _not_fed(block: BaseMemoryBlock, snapshot: Snapshot) -> str | None:
    """Why nothing is derived for the block from this session's messages; None if it is."""
    if block.pipeline is None:
        return None
    if block.pipeline not in snapshot.serving:
        return f"No worker has registered the pipeline {block.pipeline!r} in this database."
    if snapshot.exists and block.pipeline not in snapshot.fed:
        return f"The session does not feed {block.pipeline!r}, so the pipeline does not receive its messages."
    return None


def _last_turn(window: Sequence[Message]) -> int:
    places = (place for place in range(len(window) - 1, -1, -1) if window[place].is_new_turn)
    return next(places, 0)
