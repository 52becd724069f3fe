"""The target of an erasure: a user, a session of a user, or a session without a user, which is its own
owner.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import NotFoundError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.sessions import FindOwner
from strandline.schemas.queries.upkeep.erasures import ErasedOwnerNames, FindErased, FindFence
from strandline.schemas.values.identity import SessionIdentity, identify_session, identify_user

ErasureKind = Literal["user", "session"]


@dataclass(frozen=True, slots=True)
class ErasureTarget:
    """The target of an erasure, by keys and known names.

    Attributes:
        kind: ``session`` only if the session has a user, whose other sessions stay, or is its own owner.
        scope_key: the owner's key again, if all of the owner goes; else the session's.
        user_id, session_id: None if absent, or where an erasure is repeated by its keys alone.
    """

    kind: ErasureKind
    namespace: str
    owner_key: UUID
    scope_key: UUID
    user_id: str | None = None
    session_id: str | None = None
    directory_key: UUID | None = None

    @property
    def is_whole_owner(self) -> bool:
        return self.scope_key == self.owner_key

    @property
    def session_key(self) -> UUID | None:
        """The one session that is erased of an owner; None if all of the owner is."""
        return None if self.is_whole_owner else self.scope_key


def user_target(namespace: str, user_id: str) -> ErasureTarget:
    """A user with everything; raises InvalidMessageError if a name is not valid."""
    key = identify_user(namespace, user_id).shard_key
    return ErasureTarget("user", namespace, key, key, user_id=user_id)


def session_target(namespace: str, session_id: str) -> Operation[ErasureTarget]:
    """A session by its name: its owner is as the directory says, or the fence, if it was erased.

    An erasure that is not finished goes first: once its directory entry is gone, another may use the name.

    Raises:
        InvalidMessageError: a name is not valid.
        NotFoundError: neither knows it.
    """
    identity = identify_session(namespace, session_id, None)
    scopes = [identity.session_key, identity.shard_key]
    fences = yield from fetch(FindErased(scope_keys=scopes))
    for row in (yield from fetch(FindOwner(directory_key=identity.directory_key))):
        target = _session_target(identify_session(namespace, session_id, row.user_id))
        if all(fence.shard_key == target.owner_key or not fence.is_unfinished for fence in fences):
            return target
    for fence in fences:
        return ErasureTarget(
            "session",
            namespace,
            fence.shard_key,
            fence.scope_key,
            session_id=session_id,
            directory_key=identity.directory_key,
        )
    raise NotFoundError(
        f"Session {quote(session_id)} does not exist in namespace {quote(namespace)}; nothing has"
        " been put to it yet, or a name is misspelt."
    )


def own_session_target(identity: SessionIdentity) -> Operation[ErasureTarget]:
    """A session of this owner: there, or erased by itself.

    Of another's as of an unknown one the same is asked, and nothing found.

    Raises:
        NotFoundError: the owner has no such session.
    """
    target = _session_target(identity)
    rows = yield from fetch(FindOwner(directory_key=identity.directory_key))
    fences = yield from fetch(FindFence(shard_key=target.owner_key, scope_key=target.scope_key))
    is_there = any(row.owner_key == target.owner_key for row in rows)
    if not is_there and all(fence.scope_key != target.scope_key for fence in fences):
        raise NotFoundError(f"The owner has no session {quote(identity.session_id)}.")
    return target


def _session_target(identity: SessionIdentity) -> ErasureTarget:
    scope_key = identity.shard_key if identity.user_id is None else identity.session_key
    return ErasureTarget(
        "session",
        identity.namespace,
        identity.shard_key,
        scope_key,
        user_id=identity.user_id,
        session_id=identity.session_id,
        directory_key=identity.directory_key,
    )


def with_names(target: ErasureTarget) -> Operation[ErasureTarget]:
    """The target with the names that the directory still has of an owner or a session known by key alone."""
    if target.user_id is not None or target.session_id is not None:
        return target
    is_whole = target.is_whole_owner
    for row in (
        yield from fetch(ErasedOwnerNames(owner_key=target.owner_key, limit=1 if is_whole else None))
    ):
        if is_whole and row.user_id is not None:
            return replace(target, user_id=row.user_id)
        if row.session_id:
            session = _session_target(identify_session(row.namespace, row.session_id, row.user_id))
            if session.scope_key == target.scope_key:
                return session
    return target
