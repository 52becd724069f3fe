"""The common interface of archives, and the form of their objects.

An object holds one range of a session's messages as JSON lines: a header, then a message a line, with each
column as stored; a sealed envelope stays sealed.  Next to it lies a manifest with its digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol
from uuid import UUID

from strandline.schemas.errors import ArchiveError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.conversation.retention import LeavingMessagesRow, OpenArchived
from strandline.schemas.values.message import Message, read_rows

FORMAT = 1


@dataclass(frozen=True, slots=True)
class LeavingRange:
    """A range of a session's messages on its way out of the log.

    Attributes:
        step_id: names this attempt's content: the same id again is the same messages.
        cause: ``ttl``, ``age`` or ``number``.
        rows: the messages as they are stored, in order, important ones included.
        is_first: whether nothing was put into this archive before; only then is its folder made.
        database_mark: names the database that puts them there.
    """

    shard_key: UUID
    session_key: UUID
    namespace: str
    session_id: str
    user_id: str | None
    step_id: UUID
    from_seq: int
    through_seq: int
    cause: str
    rows: Sequence[LeavingMessagesRow]
    is_first: bool = True
    database_mark: str = ""

    @property
    def object_name(self) -> str:
        """Its place: by owner and session, so that an owner's objects are found together."""
        return (
            f"{self.shard_key}/{self.session_key}/{self.from_seq:020d}-{self.through_seq:020d}-{self.step_id}"
            f"-{self.rows[0].rows_digest[:8] if self.rows else ''}-{self.database_mark}.jsonl"
        )


ReadMessages = Callable[[], list[Message]]
"""Gives the messages of a range as values, opened if they are sealed."""


class Archive(Protocol):
    """A place that messages are put into before they are removed."""

    has_objects: bool
    """Whether it can be read back, by object."""

    def store(self, leaving: LeavingRange, messages: ReadMessages) -> str | None:
        """Put the messages there, durably; returns the digest of the object, if it has any.

        The same range again is the same object.  An object holds the rows as they are stored, sealed ones
        sealed; ``messages`` is for a handler.

        Raises:
            ArchiveError: it was not stored.
        """
        ...

    def check(self, name: str, digest: str) -> None:
        """Read an object back; raises ArchiveError if it is missing, or differs from the stored digest."""
        ...

    def read(self, name: str, digest: str) -> bytes:
        """An object, checked; raises ArchiveError if it cannot be read, or differs."""
        ...

    def delete(self, name: str) -> None:
        """Delete an object with its manifest, if it is there; raises ArchiveError if it stays."""
        ...

    def adopt(self, database_mark: str) -> None:
        """Have the database of this mark delete objects of others too; raises ArchiveError if it cannot."""
        ...

    def is_adopted_by(self, database_mark: str) -> bool:
        """Whether the database of this mark was the last to adopt it; raises ArchiveError if unknown."""
        ...


# Names from before databases had marks end otherwise.
_MARKED = re.compile(r"-[0-9a-f]{16}\.jsonl\Z")

IS_FOREIGN = (
    "Another database put the object there, and this one is a copy of it. Name another archive for the copy"
    " (`strandline retention set --archive`); if it replaces the other, run `strandline retention adopt`."
)


def delete_own(archive: Archive, name: str, database_mark: str) -> None:
    """Delete an object; raises ArchiveError if it stays, as one of a copy's original does."""
    is_own = name.endswith(f"-{database_mark}.jsonl") or not _MARKED.search(name)
    if not is_own and not archive.is_adopted_by(database_mark):
        raise ArchiveError(f"Object {name} is not deleted. {IS_FOREIGN}")
    archive.delete(name)


@dataclass(frozen=True, slots=True)
class ArchivedMessage:
    """A message as an archive holds it: each field is the column's text."""

    seq: int
    id: str
    role: str
    tokens: int
    created_at: datetime
    envelope: str
    metadata: str | None


def digest_of(content: bytes) -> str:
    """The digest that a manifest names."""
    return sha256(content).hexdigest()


def encode(leaving: LeavingRange) -> bytes:
    """The object's bytes."""
    header = {
        "format": FORMAT,
        "namespace": leaving.namespace,
        "session_id": leaving.session_id,
        "user_id": leaving.user_id,
        "shard_key": str(leaving.shard_key),
        "session_key": str(leaving.session_key),
        "step_id": str(leaving.step_id),
        "from_seq": leaving.from_seq,
        "through_seq": leaving.through_seq,
        "cause": leaving.cause,
        "messages": len(leaving.rows),
    }
    return "".join(f"{_line(one)}\n" for one in (header, *map(_values_of, leaving.rows))).encode()


def manifest(name: str, content: bytes, leaving: LeavingRange) -> bytes:
    """An object's manifest."""
    return _line(
        {
            "format": FORMAT,
            "object": name,
            "sha256": digest_of(content),
            "bytes": len(content),
            "messages": len(leaving.rows),
            "from_seq": leaving.from_seq,
            "through_seq": leaving.through_seq,
        }
    ).encode()


def decode(content: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header of an object, and its messages with all columns.

    Raises:
        ArchiveError: it has another form.
    """
    try:
        # Texts may hold any other end of a line.
        header, *rows = [json.loads(line) for line in content.decode().removesuffix("\n").split("\n")]
        if header["format"] != FORMAT or header["messages"] != len(rows):
            raise ArchiveError(
                f"An archived object has format {header['format']} and {len(rows)} of {header['messages']}"
                f" messages; this release reads format {FORMAT}, whole."
            )
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError("An archived object is not JSON lines with a header; it was changed.") from error
    return header, rows


def archived_messages(fetcher: Fetcher, shard_key: UUID, content: bytes) -> list[Message]:
    """The messages of an owner's object as values, opened if sealed.

    Raises:
        SealedContentError, KeyUnavailableError: it cannot be opened.
    """
    _header, rows = decode(content)
    stored = [_archived_message(row) for row in rows]
    opened = fetcher.fetch(
        OpenArchived(
            shard_key=shard_key,
            ids=[one.id for one in stored],
            envelopes=[one.envelope for one in stored],
            metadata=[one.metadata for one in stored],
        )
    )
    return read_rows(
        [
            replace(one, envelope=clear.envelope, metadata=clear.metadata)
            for one, clear in zip(stored, opened, strict=True)
        ]
    )


def _archived_message(row: Mapping[str, Any]) -> ArchivedMessage:
    return ArchivedMessage(
        seq=row["seq"],
        id=row["id"],
        role=row["role"],
        tokens=row["tokens"],
        created_at=datetime.fromisoformat(row["created_at"]),
        envelope=row["envelope"],
        metadata=row["metadata"],
    )


def _values_of(row: LeavingMessagesRow) -> dict[str, Any]:
    return {
        "seq": row.seq,
        "id": row.id,
        "role": row.role,
        "tokens": row.tokens,
        "bytes": row.byte_count,
        "created_at": row.created_at.isoformat(),
        "digest": row.digest.hex(),
        "envelope": row.envelope,
        "metadata": row.metadata,
        "calls": row.calls,
        "answers": row.answers,
        "labels": row.labels,
    }


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))
