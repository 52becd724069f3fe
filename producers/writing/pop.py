"""Popping: remove the newest message from a session's log.

A popped message's number is not used again, and is recorded, so that ``verify`` can tell an intended gap
from a lost message.  If the message was delivered, facts, summary and vectors may have been derived from it
by then: so it is taken back as by a rewind.
"""

from __future__ import annotations

from uuid import uuid4

from strandline.pipelines.audit.appending import Act
from strandline.producers.sessions import history_page
from strandline.producers.writing.correct import take_back
from strandline.schemas.errors import ConflictError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.messages import NewestMessage, Pop
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message, read_rows

# Each lost race means that another caller put or popped in between.
MAX_ATTEMPTS = 20


def pop(identity: SessionIdentity, act: Act) -> Operation[Message | None]:
    """Remove the newest message and return it, or None if the session is empty.

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
        taken = yield from fetch(Pop(**identity.keys, seq=rows[0].seq, pop_id=uuid4(), act=act.as_json()))
        status = taken[0].status
        if status == "ok":
            return message
        if status == "delivered" and (yield from take_back(identity, rows[0].seq, uuid4(), act)):
            return message
    raise ConflictError(
        f"Session {identity.session_id!r} changed {MAX_ATTEMPTS} times while its newest message was being"
        " popped; nothing was removed. Try again when no other caller is putting to it."
    )
