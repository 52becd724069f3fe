"""Resets a session's log, and forgets the memory derived from it, including shared copies."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.facts.edits import take_away_again
from strandline.producers.sessions import history_page
from strandline.schemas.errors import ErasedError
from strandline.schemas.postgres.operations import Atomic, Operation, fetch
from strandline.schemas.queries.conversation.messages import Reset
from strandline.schemas.queries.conversation.sharing import ForgetShared, SharedLives, SharedLivesRow
from strandline.schemas.queries.upkeep.erasures import UnfinishedErasure
from strandline.schemas.values.identity import SessionIdentity


def reset(identity: SessionIdentity, act: Act | None, *, derived: bool) -> Operation[None]:
    """Start the log over; with ``derived``, also forget the memory derived from it.

    ``act`` goes into the audit trail; None if the enclosing act is recorded.

    Shared copies go first, under the scope's own key and so in a separate transaction: if the rest fails,
    other sessions no longer find the session's messages, and the reset can be repeated.

    Raises:
        OwnerError: the session belongs to another owner.
        ErasedError: with ``derived``, an erasure of the owner is not finished, and memory is left.
        StrandlineError: the database failed.
    """
    shared: list[SharedLivesRow] = []
    if derived:
        shared = yield from fetch(SharedLives(owner_key=identity.shard_key, session_key=identity.session_key))
    for lives in shared:
        yield from _forget(identity, lives.shared_key, lives.incarnations)
    beginning = partial(_begin_anew, identity, act, derived)
    ended: list[UUID] | None = (yield Atomic(beginning)) if derived else (yield from beginning())
    if ended is None:
        if derived:
            yield from _refuse_remains(identity)
        # No such session, or another owner's: reading it tells which.
        yield from history_page(identity, 0, 1)
        return
    for lives in shared:
        # Another reset may have come between, and the life that it began have shared already.
        yield from _forget(identity, lives.shared_key, set(ended) - set(lives.incarnations))


def _begin_anew(identity: SessionIdentity, act: Act | None, derived: bool) -> Operation[list[UUID] | None]:
    """Returns the incarnations that ended, or None if there is no such session."""
    rows = yield from fetch(
        Reset(**identity.keys, derived=derived, act=None if act is None else act.as_json())
    )
    if not rows:
        return None
    (done,) = rows
    yield from take_away_again(identity.shard_key, done.touched or ())
    return done.ended or []


def _refuse_remains(identity: SessionIdentity) -> Operation[None]:
    """Behind the fence, a session's derived memory cannot be forgotten, until it is erased."""
    owner = identity.shard_key
    for unfinished in (yield from fetch(UnfinishedErasure(owner_key=owner, session_key=owner))):
        raise ErasedError(unfinished.number)


def _forget(identity: SessionIdentity, shared_key: UUID, incarnations: Collection[UUID]) -> Operation[None]:
    if incarnations:
        yield from fetch(
            ForgetShared(
                shard_key=shared_key,
                session_key=identity.session_key,
                owner_key=identity.shard_key,
                incarnations=sorted(incarnations),
            )
        )
