"""Admission: whether anything may be written for an owner, or for a session, that may have been erased."""

from __future__ import annotations

from uuid import UUID

from strandline.schemas.errors import ErasedError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.upkeep.erasures import LookAtFence


def admit(shard_key: UUID, session_key: UUID | None = None) -> Operation[None]:
    """Check that no fence stands; first of all in a writing transaction, as none is set until it ends.

    Locks on a session's row or a lane's need no check: an erasure deletes these rows, and waits for their
    holders.

    Raises:
        ErasedError: the owner, or the session, was erased.
    """
    (fence,) = yield from fetch(LookAtFence(shard_key=shard_key, scope_key=session_key or shard_key))
    refuse_if_erased(fence.erasure)


def refuse_if_erased(erasure: int | None) -> None:
    """Raise ErasedError if a statement found an erasure that keeps its owner away."""
    if erasure is not None:
        raise ErasedError(erasure)
