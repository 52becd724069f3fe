"""Popping: remove the newest message from a session's log.

A popped message's number is not used again, and is recorded, so that ``verify`` can tell an intended gap
from a lost message.  If the message was delivered, facts, summary and vectors may have been derived from it
by then: so it is taken back as by a rewind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.flush.flush import Flushed
from strandline.producers.arguments import listed_messages
from strandline.producers.sessions import history_page
from strandline.producers.writing.correcting.correct import Correcting
from strandline.producers.writing.put import PutRequest, carry_out_put
from strandline.schemas.errors import ConflictError
from strandline.schemas.postgres.operations import Atomic, Operation, fetch
from strandline.schemas.queries.conversation.messages import NewestMessage, PartedCall, Pop
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message, read_rows

# Each lost race means that another caller put or popped in between.
MAX_ATTEMPTS = 20

# The fields of a popped message that are put again.
Keep = Callable[[Message], Sequence[object]]


@dataclass(frozen=True, slots=True)
class Popped:
    """The removed message, or None; and the flushes of the part put again."""

    message: Message | None
    flushed: Flushed | None = None


def pop(identity: SessionIdentity, act: Act, *, alone: bool = False) -> Operation[Message | None]:
    """Remove the newest message and return it, or None if the session is empty.

    With the result of a tool call its call goes too, and the call's other results, unless another message
    stands between, or ``alone`` is set.

    The message is read first and removed only if it is still the newest, so that no two callers get the same
    one, and a lost answer does no harm: the same attempt is repeated.

    Raises:
        OwnerError: the session belongs to another owner.
        ConflictError: other callers put so often that another message was always newer.
    """
    for _attempt in range(MAX_ATTEMPTS):
        rows = yield from fetch(NewestMessage(**identity.keys))
        if not rows:
            yield from history_page(identity, 0, 1)  # no such session, or another owner's
            return None
        (message,) = read_rows(rows)
        newest = from_seq = rows[0].seq
        if message.answers and not alone:
            for parted in (yield from fetch(PartedCall(**identity.keys, seq=newest))):
                from_seq = parted.call_seq
        status = "delivered"
        if from_seq == newest:
            taken = yield from fetch(Pop(**identity.keys, seq=newest, pop_id=uuid4(), act=act.as_json()))
            status = taken[0].status
        if status == "ok":
            return message
        if status == "delivered" and (
            yield from Correcting(identity, uuid4(), act).take_back(newest, from_seq)
        ):
            return message
    raise ConflictError(
        f"Session {identity.session_id!r} changed {MAX_ATTEMPTS} times while its newest message was being"
        " popped; nothing was removed. Try again when no other caller is putting to it.",
        for_clients="Other requests were putting to this session; nothing was removed. Try again.",
    )


def pop_part(
    identity: SessionIdentity, keep: Keep | None, check: Callable[[Sequence[object]], PutRequest], act: Act
) -> Operation[Popped]:
    """Remove the newest message and put again the part that ``keep`` returns (None: nothing), in one
    transaction.

    With ``keep`` only that message is removed: the caller takes it apart.

    If ``keep`` raises an exception, or its result cannot be put, the message stays.

    Raises: as ``pop``; InvalidMessageError: the part to put again cannot be stored.
    """
    if keep is None:
        return Popped((yield from pop(identity, act)))
    popped: Popped = yield Atomic(partial(_pop_part_once, identity, keep, check, act))
    return popped


def _pop_part_once(
    identity: SessionIdentity, keep: Keep, check: Callable[[Sequence[object]], PutRequest], act: Act
) -> Operation[Popped]:
    message = yield from pop(identity, act, alone=True)
    again = [] if message is None else listed_messages(keep(message))
    if not again:
        return Popped(message)
    result = yield from carry_out_put(check(again))
    return Popped(message, result.flushed)
