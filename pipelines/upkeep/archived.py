"""Archived messages of an owner or a session: listed, read, restored, and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID, uuid5

from strandline.pipelines.admission import admit, refuse_if_erased
from strandline.pipelines.audit.appending import Act, append_act
from strandline.pipelines.upkeep.archive import archived_messages, decode
from strandline.pipelines.upkeep.policies import RetentionLevel, record_retention
from strandline.pipelines.upkeep.removal import OpenArchive
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ArchiveError, ConflictError, NotFoundError
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.postgres.operations import Operation, fetch, find_owner_keys
from strandline.schemas.queries.conversation.retention import (
    ArchivedObjects,
    ArchivedObjectsRow,
    InsertArchivedInput,
    RestoreRange,
)
from strandline.schemas.queries.conversation.sessions import ClaimSession, SessionPolicy
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Message

Rows = list[dict[str, Any]]
"""Messages as an archive holds them, with all columns."""

# A restored session is for looking at: it ends by itself, unless another time is asked for.
RESTORED_TTL_SECONDS = 7 * 86_400


@dataclass(frozen=True, slots=True)
class ArchivedRange:
    """A range of a session's messages that left its log, or is on its way.

    Attributes:
        archive: the archive that the act named; None: it was removed without.
        object_name: the object in it; None: a handler has the messages.
        messages: how many were archived; ``removed`` of them left the log, and ``kept_seqs``, the important
            ones, stayed.
        state: ``planned``, ``archived``, ``read_back`` or ``removed``.
    """

    session_key: UUID
    session_id: str
    from_seq: int
    through_seq: int
    step_id: UUID
    cause: str
    state: str
    archive: str | None
    object_name: str | None
    object_digest: str | None
    messages: int
    removed: int
    kept_seqs: tuple[int, ...]
    last_error: str | None
    planned_at: datetime
    removed_at: datetime | None

    @classmethod
    def of(cls, row: ArchivedObjectsRow) -> ArchivedRange:
        values: dict[str, Any] = row._asdict()
        return cls(**{**values, "kept_seqs": tuple(row.kept_seqs)})

    @property
    def is_readable(self) -> bool:
        """Whether its messages can be read from here."""
        return self.object_name is not None and self.object_digest is not None and self.archive is not None


def archived_ranges(shard_key: UUID, session_key: UUID | None = None) -> Operation[list[ArchivedRange]]:
    """All that an owner, or one of its sessions, may have in archives, in order, in any state."""
    rows = yield from fetch(ArchivedObjects(shard_key=shard_key, session_key=session_key))
    return [ArchivedRange.of(row) for row in rows]


def read_archived(
    database: Database, open_archive: OpenArchive, identity: SessionIdentity
) -> Iterator[Message]:
    """A session's archived messages in order, each object checked by its digest; raises ArchiveError."""
    database.run(append_act(identity, Act.here("reveal", detail={"from": "archive"})))
    for one in _removed_ranges(database, identity):
        yield from archived_messages(database, identity.shard_key, _content(open_archive, one))


def _removed_ranges(database: Database, identity: SessionIdentity) -> list[ArchivedRange]:
    ranges = database.run(archived_ranges(identity.shard_key, identity.session_key))
    return [one for one in ranges if one.state == "removed" and one.archive is not None]


@dataclass(frozen=True, slots=True)
class Restored:
    """A session that archived messages were brought back to."""

    session_id: str
    messages: int
    ranges: int
    ttl_seconds: int


def restore(
    database: Database,
    open_archive: OpenArchive,
    identity: SessionIdentity,
    new: SessionIdentity,
    ttl_seconds: int = RESTORED_TTL_SECONDS,
) -> Restored:
    """Bring a session's archived messages back, into another session of the same user.

    They keep numbers, ids, times and content, and are not derived again: their derived memory was kept.  The
    new session has no bound by age or number, and ends ``ttl_seconds`` after this (0: never).  An interrupted
    restore resumes when it is called again.

    Raises:
        NotFoundError: nothing of the session is in an archive, or the session is unknown.
        ConflictError: the new session is in use, or belongs to another owner; nothing was changed.
        ArchiveError: an object cannot be read.
    """
    _refuse_sealed(database, identity, new)
    ranges = _removed_ranges(database, identity)
    if not ranges:
        raise NotFoundError(
            f"Nothing of session {quote(identity.session_id)} is in an archive:"
            " `strandline retention archived` lists those in archives."
        )
    policy = _policy(database, identity, new)
    first_rows = _read(open_archive, ranges[0])

    def begin() -> Operation[int]:
        rows = yield from fetch(ClaimSession.of(new, kind="chat"))
        refuse_if_erased(rows[0].erasure)
        if rows[0].owner_key != new.shard_key:
            raise ConflictError(
                f"Session {quote(new.session_id)} belongs to another owner. Restore to a new session."
            )
        restored = yield from _restore_range(identity.session_key, new, policy, ranges[0], None, first_rows)
        kept = Retention(ttl_seconds=ttl_seconds, max_age_seconds=0, max_messages=0, archive="")
        yield from record_retention(RetentionLevel(new.namespace, new), kept, Act.here("retention"))
        yield from append_act(new, Act.here("restore", count=sum(one.messages for one in ranges)))
        return restored

    messages = database.run_atomically(begin)
    for before, one in pairwise(ranges):
        rows = _read(open_archive, one)
        messages += database.run(_restore_range(identity.session_key, new, policy, one, before, rows))
    return Restored(new.session_id, messages, len(ranges), ttl_seconds)


def _read(open_archive: OpenArchive, one: ArchivedRange) -> Rows:
    _header, rows = decode(_content(open_archive, one))
    return rows


def _refuse_sealed(database: Database, identity: SessionIdentity, new: SessionIdentity) -> None:
    """Content sealed under one owner's key opens under no other's; sessions without a user own themselves."""
    if new.shard_key != identity.shard_key and database.run(find_owner_keys(identity.shard_key)) is not None:
        raise ArchiveError(
            f"Session {quote(identity.session_id)} has no user and is encrypted under its own key, so its"
            " messages cannot be brought back to another session. Read them instead:"
            " strandline retention archived --messages."
        )


def _restore_range(
    old_key: UUID,
    new: SessionIdentity,
    policy: str,
    one: ArchivedRange,
    before: ArchivedRange | None,
    rows: Rows,
) -> Operation[int]:
    (outcome,) = yield from fetch(
        RestoreRange(
            **new.keys,
            old_key=old_key,
            policy=policy,
            event_id=_event_id(new, one),
            before_id=None if before is None else _event_id(new, before),
            from_seq=one.from_seq,
            through_seq=one.through_seq,
            messages=json.dumps(rows),
        )
    )
    if outcome.status == "erased":
        yield from admit(new.shard_key, new.session_key)
    if outcome.status == "taken":
        raise ConflictError(
            f"Session {quote(new.session_id)} is in use; messages {one.from_seq} to {one.through_seq} were"
            " not restored. Restore to a new session."
        )
    return len(rows)


def _event_id(new: SessionIdentity, one: ArchivedRange) -> UUID:
    return uuid5(new.session_key, str(one.step_id))


def _policy(database: Database, identity: SessionIdentity, new: SessionIdentity) -> str:
    names = {"namespace": new.namespace, "session_id": new.session_id, "user_id": new.user_id}
    for row in database.fetch(SessionPolicy(**identity.keys)):
        return json.dumps(row._asdict() | names)
    raise NotFoundError(f"Session {quote(identity.session_id)} no longer exists.")


def provide_input(fetcher: Fetcher, open_archive: OpenArchive, shard_key: UUID, generation_id: int) -> int:
    """Give a derivation an owner's archived messages to be made of; returns how many.

    Raises:
        ArchiveError: an object cannot be read, or messages were removed without an archive.
    """
    count = 0
    for row in fetcher.fetch(ArchivedObjects(shard_key=shard_key, session_key=None)):
        one = ArchivedRange.of(row)
        if one.state != "removed" or not one.removed:
            continue
        _header, rows = decode(_content(open_archive, one))
        fetcher.fetch(
            InsertArchivedInput(
                shard_key=shard_key,
                session_key=one.session_key,
                generation_id=generation_id,
                messages=json.dumps(rows),
            )
        )
        count += len(rows)
    return count


def _content(open_archive: OpenArchive, one: ArchivedRange) -> bytes:
    if one.archive is None or one.object_name is None or one.object_digest is None:
        where = "without an archive" if one.archive is None else f"to {one.archive}"
        raise ArchiveError(
            f"Messages {one.from_seq} to {one.through_seq} of session {quote(one.session_id)} went {where},"
            " so they cannot be read back here."
        )
    return open_archive(one.archive).read(one.object_name, one.object_digest)
