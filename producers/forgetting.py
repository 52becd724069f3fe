"""Resetting a session's log, and forgetting what was derived from it, also where it was shared."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from strandline.producers.reading import history_page
from strandline.schemas.identity import SessionIdentity
from strandline.schemas.operations import Fetch, Operation, Row


def reset(identity: SessionIdentity, *, derived: bool) -> Operation[None]:
    """Begin the log anew; with ``derived``, forget what was derived from it as well.

    What was shared goes first, under the scope's own key and so in a transaction of its own: should the rest
    fail, nothing of the session is found by others any more, and the reset can be repeated.

    Raises:
        OwnerError: the session belongs to another owner.
        StrandlineError: the database failed.
    """
    keys = {"session_key": identity.session_key, "owner_key": identity.shard_key}
    shared: list[Row] = []
    if derived:
        shared = yield Fetch("shared_lives", keys)
    for shared_key, incarnations in shared:
        yield from _forget(keys, shared_key, incarnations)
    rows: list[Row] = yield Fetch(
        "reset",
        {"shard_key": identity.shard_key, "session_key": identity.session_key, "derived": derived},
    )
    if not rows:
        # No such session, or somebody else's: reading it tells which.
        yield from history_page(identity, 0, 1)
        return
    for shared_key, incarnations in shared:
        # Another reset may have come between, and the life that it began have shared already.
        yield from _forget(keys, shared_key, set(rows[0][1]) - set(incarnations))


def _forget(keys: dict[str, UUID], shared_key: UUID, incarnations: Collection[UUID]) -> Operation[None]:
    if incarnations:
        gone = {"shard_key": shared_key, "incarnations": sorted(incarnations)}
        yield Fetch("forget_shared", keys | gone)
