"""The facts of an owner, as people see them: what is known, and where each came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from uuid import UUID

from strandline.producers.resources import Resources
from strandline.schemas.operations import Fetch, Operation, Row


@dataclass(frozen=True, slots=True)
class FactRevision:
    """One thing that was done to a fact, and its provenance.

    ``operation`` is ``add``, ``update``, ``invalidate`` or ``duplicate`` (said again); ``message_ids`` and
    ``seqs`` name the messages, ``event_id`` the flush that delivered them.
    """

    operation: str
    text: str
    event_id: UUID
    message_ids: tuple[str, ...]
    seqs: tuple[int, ...]
    model: str
    prompt_hash: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Fact:
    """Something known of an owner; ``invalidated_at`` is set once it is no longer true."""

    fact_id: UUID
    text: str
    topics: tuple[str, ...]
    said_by: str | None
    about_date: date | None
    said_at: datetime
    invalidated_at: datetime | None
    invalidated_by: UUID | None
    created_at: datetime
    updated_at: datetime
    revisions: tuple[FactRevision, ...]

    @property
    def message_ids(self) -> tuple[str, ...]:
        """All messages that this fact comes from, in the order in which they were taken in."""
        return tuple(dict.fromkeys(i for revision in self.revisions for i in revision.message_ids))


class Facts:
    """Reads an owner's facts; get one from ``memory.facts``."""

    def __init__(self, resources: Resources, shard_key: UUID) -> None:
        self._resources = resources
        self._shard_key = shard_key

    def list(self, *, limit: int = 100, offset: int = 0, with_invalidated: bool = False) -> Sequence[Fact]:
        """The facts, most recently said first; ``with_invalidated`` adds those that are no longer true."""
        return self._resources.database().run(self._listing(limit, offset, with_invalidated))

    async def alist(
        self, *, limit: int = 100, offset: int = 0, with_invalidated: bool = False
    ) -> Sequence[Fact]:
        """Async twin of ``list``."""
        database = await self._resources.async_database()
        return await database.run(self._listing(limit, offset, with_invalidated))

    def _listing(self, limit: int, offset: int, with_invalidated: bool) -> Operation[Sequence[Fact]]:
        rows: Sequence[Row] = yield Fetch(
            "list_facts",
            {
                "shard_key": self._shard_key,
                "limit": limit,
                "offset": offset,
                "with_invalidated": with_invalidated,
            },
        )
        return [_fact(row) for row in rows]


def _fact(row: Row) -> Fact:
    (
        fact_id,
        text,
        topics,
        said_by,
        about_date,
        said_at,
        _live,
        ended_at,
        ended_by,
        created,
        updated,
        revisions,
    ) = row
    return Fact(
        fact_id=fact_id,
        text=text,
        topics=tuple(topics),
        said_by=said_by,
        about_date=about_date,
        said_at=said_at,
        invalidated_at=ended_at,
        invalidated_by=ended_by,
        created_at=created,
        updated_at=updated,
        revisions=tuple(_revision(item) for item in json.loads(revisions or "[]")),
    )


def _revision(item: dict[str, object]) -> FactRevision:
    return FactRevision(
        operation=str(item["operation"]),
        text=str(item["text"]),
        event_id=UUID(str(item["event_id"])),
        message_ids=tuple(item["message_ids"] or ()),  # type: ignore[arg-type]  # a JSON array of texts
        seqs=tuple(item["seqs"] or ()),  # type: ignore[arg-type]  # a JSON array of numbers
        model=str(item["model"]),
        prompt_hash=str(item["prompt_hash"]),
        created_at=datetime.fromisoformat(str(item["created_at"])),
    )
