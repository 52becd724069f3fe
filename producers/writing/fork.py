"""Forks a session: another one of the same user, with its messages and what was derived from them."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.producers.sessions import check_unowned, claim_session
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, ConflictError, NotFoundError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.sessions import (
    ForkSession,
    ForkSessionRow,
    LabelledMessages,
    LastNumber,
)
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.labels import label_array

MESSAGES_PER_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Fork:
    """A session that began as a copy of another.

    Attributes:
        session_id: the new session.
        through_seq: the last number that it took over; the next message has the one behind.
        messages: how many messages it took over.
    """

    session_id: str
    through_seq: int
    messages: int


def fork(identity: SessionIdentity, new: SessionIdentity, through_seq: int | None) -> Operation[Fork]:
    """Copy a session's messages up to ``through_seq`` (None: all), and what was derived from them.

    Raises:
        ConfigurationError: the session has no user: its fork would be another owner's.
        NotFoundError: the session has no such message.
        ConflictError: the new session was put to already.
        OwnerError: one of the two belongs to another owner.
    """
    if identity.user_id is None:
        raise ConfigurationError(
            f"Session {quote(identity.session_id)} has no user, so it owns its memory alone, and a fork of it"
            " would belong to another owner. Give sessions that are to be forked a user_id at the first put."
        )
    yield from claim_session(new)
    row = yield from _fork_through(identity, new, through_seq)
    if row is None:
        yield from check_unowned(identity)
    status = row.status if row else "missing"
    if status == "taken":
        raise ConflictError(
            f"Session {quote(new.session_id)} exists already; nothing was copied. Fork to a new session_id."
        )
    if row is None or status == "missing":
        what = "no messages" if through_seq is None else f"no message {through_seq}"
        raise NotFoundError(f"Session {quote(identity.session_id)} has {what}; nothing was copied.")
    return Fork(new.session_id, row.through_seq, row.messages)


def _fork_through(
    identity: SessionIdentity, new: SessionIdentity, through_seq: int | None
) -> Operation[ForkSessionRow | None]:
    """None if there is no such session.

    What the labels are made of is read before: metadata never changes, and no message comes below a number
    that was given.
    """
    if through_seq is None:
        numbers = yield from fetch(LastNumber(**identity.keys))
        if not numbers:
            return None
        through_seq = numbers[0].seq
    labels = yield from _relabel(identity, new, through_seq)
    rows = yield from fetch(
        ForkSession(
            **identity.keys,
            new_key=new.session_key,
            session_id=new.session_id,
            through_seq=through_seq,
            label_seqs=list(labels),
            labels=list(labels.values()),
        )
    )
    return rows[0] if rows else None


def _relabel(identity: SessionIdentity, new: SessionIdentity, through_seq: int) -> Operation[dict[int, str]]:
    """The labels in the new session, by the number of the message, as arrays of Postgres."""
    labels: dict[int, str] = {}
    after_seq = 0
    while True:
        asked = LabelledMessages(
            **identity.keys, after_seq=after_seq, through_seq=through_seq, limit=MESSAGES_PER_PAGE
        )
        rows = yield from fetch(asked)
        labels |= {row.seq: label_array(new.session_key, row.metadata) or "{}" for row in rows}
        if len(rows) < MESSAGES_PER_PAGE:
            return labels
        after_seq = rows[-1].seq
