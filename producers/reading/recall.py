"""The calls of results that came when these had left what a read shows."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.schemas.postgres.operations import Operation, fetch, find_owner_keys
from strandline.schemas.queries.conversation.read import CallsOfResults
from strandline.schemas.values.identity import SessionIdentity, call_reference
from strandline.schemas.values.message import Message, read_rows

# So far back the call of a late result is looked for, in numbers of messages.
RECALLED_WITHIN = 2_000


def recall(identity: SessionIdentity, lost: Mapping[str, int], before_seq: int) -> Operation[list[Message]]:
    """The messages before a number with these calls, and with other results of their calls.

    Args:
        lost: ids of calls, with the numbers of their first results.
    """
    calls = [call_reference(one) for one in lost]
    if keys := (yield from find_owner_keys(identity.shard_key)):
        calls += [keys.reference(one) for one in calls]
    statement = CallsOfResults(**identity.keys, calls=calls, within=RECALLED_WITHIN, before_seq=before_seq)
    messages = read_rows((yield from fetch(statement)))
    # A second result of a call brings nothing back.
    answered = {(call_id, one.seq or 0) for one in messages for call_id in one.answers}
    waiting = {one for one, at in lost.items() if not any(one == by and seq < at for by, seq in answered)}
    callers = [one for one in messages if not waiting.isdisjoint(one.calls)]
    ids = {call_id for one in callers for call_id in one.calls}
    return [one for one in messages if one in callers or not ids.isdisjoint(one.answers)]
