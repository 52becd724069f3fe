"""The statements of ``schemas/sql/overflow.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query


class FlushedSessionsRow(NamedTuple):
    session_key: UUID
    namespace: str
    session_id: str
    user_id: str | None


class FlushedSessions(Query[FlushedSessionsRow], name="flushed_sessions", repeatable=True):
    """The names of sessions whose events are handed over."""

    shard_key: UUID
    session_keys: list[UUID]
