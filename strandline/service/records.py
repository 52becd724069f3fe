"""The policies of sessions, cached for a few seconds, so that a read needs no further statement.

A session that is not cached is looked up under the caller's own owner: for a missing one, and for another
user's, the same statement finds nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from time import monotonic
from uuid import UUID

from strandline.pipelines.custom.loading import load_blocks
from strandline.producers.blocks.base import BaseMemoryBlock, InsertMethod
from strandline.producers.blocks.resolve import (
    BlockSource,
    declare_blocks,
    default_blocks,
    pipelines_of,
    stored_blocks,
)
from strandline.producers.execution import Resources
from strandline.producers.memory import SessionMemory
from strandline.producers.tokens import DEFAULT_ENCODING
from strandline.schemas.queries.conversation.sessions import SessionRows
from strandline.schemas.values.identity import SessionIdentity, shared_scope_key
from strandline.schemas.values.policy import Policy, make_policy, stored_policy
from strandline.service.gate.problems import NOT_FOUND, ProblemError

TRUSTED_SECONDS = 5.0
MAX_REMEMBERED = 8_192


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The stored policy of a session, and the memory blocks that show what its pipelines derive."""

    policy: Policy
    blocks: tuple[BaseMemoryBlock, ...]
    found_at: float


class SessionRecords:
    """The sessions that this process has opened lately."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._records: OrderedDict[SessionIdentity, SessionRecord] = OrderedDict()
        self._default = default_policy()

    async def open(
        self,
        identity: SessionIdentity,
        *,
        token_limit: int | None = None,
        insert_method: InsertMethod = InsertMethod.SYSTEM,
    ) -> SessionMemory:
        """The memory of a session that exists, with its stored policy; ``token_limit``: of its reads."""
        record = await self.find(identity)
        return self.begin(
            identity, record.policy, record.blocks, token_limit=token_limit, insert_method=insert_method
        )

    def begin(
        self,
        identity: SessionIdentity,
        policy: Policy | None = None,
        blocks: tuple[BaseMemoryBlock, ...] | None = None,
        *,
        token_limit: int | None = None,
        insert_method: InsertMethod = InsertMethod.SYSTEM,
    ) -> SessionMemory:
        """The memory of a session that may not exist yet; the policy is stored if this begins it.

        ``token_limit`` and ``insert_method`` are for its reads, as for ``open``.
        """
        policy = policy or self._default
        scope = policy.shared_scope
        return SessionMemory(
            self._resources,
            identity,
            policy,
            blocks=default_blocks() if blocks is None else blocks,
            insert_method=insert_method,
            token_limit=token_limit,
            shared_key=None if scope is None else shared_scope_key(identity.namespace, scope),
        )

    async def find(self, identity: SessionIdentity) -> SessionRecord:
        """The record of a session; raises a problem if the caller has none of that name."""
        known = self._records.get(identity)
        if known is not None and monotonic() - known.found_at < TRUSTED_SECONDS:
            return known
        database = await self._resources.async_database()
        rows = await database.fetch(
            SessionRows(shard_keys=[identity.shard_key], session_keys=[identity.session_key])
        )
        if not rows:
            self._records.pop(identity, None)
            raise ProblemError(NOT_FOUND)
        row = rows[0]
        blocks = self.declare_stored(stored_blocks(row.pipelines, row.max_facts))
        record = SessionRecord(stored_policy(row), blocks, monotonic())
        self._records[identity] = record
        self._records.move_to_end(identity)
        if len(self._records) > MAX_REMEMBERED:
            self._records.popitem(last=False)
        return record

    def forget(self, identity: SessionIdentity) -> None:
        """Look the session up again at its next use: its policy was changed here."""
        self._records.pop(identity, None)

    def forget_owner(self, owner_key: UUID) -> None:
        """Look all sessions of an owner up again: they were erased here."""
        for identity in [one for one in self._records if one.shard_key == owner_key]:
            del self._records[identity]

    def declare(self, names: list[str] | None, max_facts: int | None) -> tuple[BaseMemoryBlock, ...]:
        """Memory blocks by the names of their pipelines; ConfigurationError: two have the same name."""
        blocks = declare_blocks(names, partial(load_blocks, self._resources.settings.blocks))
        if max_facts is None:
            return blocks
        return self.declare_stored(stored_blocks(pipelines_of(blocks), max_facts))

    def declare_stored(self, sources: list[BlockSource]) -> tuple[BaseMemoryBlock, ...]:
        """Memory blocks as ``stored_blocks`` names them."""
        return declare_blocks(sources, partial(load_blocks, self._resources.settings.blocks))


def default_policy() -> Policy:
    """The policy of a session whose first put names none: that of ``Memory.from_defaults``."""
    return make_policy(tokenizer=DEFAULT_ENCODING, pipelines=("facts", "summary", "vectors"))
