"""Forks a session: another one of the same user, with its messages and the memory derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from strandline.pipelines.admission import admit
from strandline.pipelines.audit.appending import Act
from strandline.producers.sessions import check_unowned, claim_session
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, ConflictError, NotFoundError
from strandline.schemas.postgres.operations import Atomic, Operation, fetch
from strandline.schemas.queries.conversation.messages import PartedCall
from strandline.schemas.queries.conversation.sessions import ForkSession
from strandline.schemas.values.identity import SessionIdentity


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


def fork(
    identity: SessionIdentity, new: SessionIdentity, through_seq: int | None, act: Act
) -> Operation[Fork]:
    """Copy a session's messages up to ``through_seq`` (None: all), and the memory derived from them.

    Results directly behind a tool call at the end are copied too.  Errors: ``operations.corrections.fork``.
    """
    if identity.user_id is None:
        raise ConfigurationError(
            f"Session {quote(identity.session_id)} has no user, so it owns its memory alone, and a fork of it"
            " would belong to another owner. Give sessions that are to be forked a user_id at the first put.",
            for_clients="This session has no user, so it owns its memory alone, and cannot be forked.",
        )
    copied: Fork = yield Atomic(partial(_fork_once, identity, new, through_seq, act))
    return copied


def _fork_once(
    identity: SessionIdentity, new: SessionIdentity, through_seq: int | None, act: Act
) -> Operation[Fork]:
    """Claim the new session and fill it, in one transaction: a refused fork claims nothing."""
    yield from claim_session(new)
    if through_seq is not None:
        # Results go with their call: a missing one could never come.
        for parted in (yield from fetch(PartedCall(**identity.keys, seq=through_seq + 1))):
            through_seq = parted.result_seq
    rows = yield from fetch(
        ForkSession(
            **identity.keys,
            new_key=new.session_key,
            session_id=new.session_id,
            through_seq=through_seq,
            act=act.as_json(),
        )
    )
    if not rows:
        yield from check_unowned(identity)
    status = rows[0].status if rows else "missing"
    if status == "taken":
        raise ConflictError(
            f"Session {quote(new.session_id)} exists already; nothing was copied. Fork to a new session_id.",
            for_clients="A session of this `session_id` exists; nothing was copied. Fork to a new one.",
        )
    if status == "erased":
        yield from admit(new.shard_key, new.session_key)
    if status == "missing":
        what = "no messages" if through_seq is None else f"no message {through_seq}"
        raise NotFoundError(f"Session {quote(identity.session_id)} has {what}; nothing was copied.")
    return Fork(new.session_id, rows[0].through_seq, rows[0].messages)
