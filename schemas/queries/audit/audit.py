"""The statements of ``schemas/sql/audit.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from strandline.schemas.postgres.query import Query


class AppendActRow(NamedTuple):
    done: str


class AppendAct(Query[AppendActRow]):
    """Append an act to the trail, in this transaction, if the namespace's level has it recorded
    (append_act_v1).
    """

    __slots__ = ()
    name = "append_act"
    row = AppendActRow

    def __init__(
        self,
        *,
        shard_key: UUID,
        has_owner: bool,
        namespace: str,
        user_id: str | None,
        session_key: UUID | None,
        act: str,
        lazily: bool,
    ) -> None:
        self.values = (shard_key, has_owner, namespace, user_id, session_key, act, lazily)
