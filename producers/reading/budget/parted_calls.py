"""Tool calls split between two events: messages of a tail that cannot be shown without their counterpart.

A flush may record a turn that is too large for one event as several, cut between a call and its results.
While the pipelines have processed only one of them, the tail holds half a call, which a provider refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from strandline.schemas.values.message import Message


def parted_calls(messages: Sequence[Message], starts: Collection[int]) -> frozenset[int]:
    """The seqs of a tail's messages that belong to a tool call of which the tail lacks a part.

    Args:
        messages: the tail, in order.
        starts: the seqs at which events begin.
    """
    return frozenset(seq for run in _runs(messages, starts) for seq in _parted_seqs(run))


def _runs(messages: Sequence[Message], starts: Collection[int]) -> Iterator[Sequence[Message]]:
    """The tail split where other events lie between; a gap left by a popped message does not split it."""
    begin = 0
    for index in range(1, len(messages)):
        seq, before = messages[index].seq or 0, messages[index - 1].seq or 0
        if seq != before + 1 and seq in starts:
            yield messages[begin:index]
            begin = index
    if messages:
        yield messages[begin:]


def _parted_seqs(run: Sequence[Message]) -> Iterator[int]:
    """The seqs of results whose call is missing; and of calls that lack results, with the results present."""
    opened: dict[str, int] = {}
    results: dict[int, list[int]] = {}
    last_user = max((message.seq or 0 for message in run if message.role == "user"), default=0)
    for message in run:
        seq = message.seq or 0
        for call in message.tool_calls or ():
            opened[str(call.get("id"))] = seq
            results.setdefault(seq, [])
        if message.tool_call_id is not None:
            caller = opened.pop(message.tool_call_id, None)
            if caller is None:
                yield seq
            else:
                results[caller].append(seq)
    # A later user message ends the wait for a result that never came.
    for caller in {seq for seq in opened.values() if seq > last_user}:
        yield from (caller, *results[caller])
