"""A session as its operations see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from strandline.pipelines.flush.flush import Flushed
from strandline.pipelines.redaction.hook import Redaction
from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.blocks.base import BaseMemoryBlock, InsertMethod
from strandline.producers.blocks.render import Renderer
from strandline.producers.execution import Resources
from strandline.producers.writing.validate import PutRules
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.policy import Policy

T = TypeVar("T")


@dataclass(slots=True)
class Session:
    """The names and limits of a session, and the resources of its process.

    Attributes:
        policy: stored at the first put; later puts use the stored one.
        own_token_limit: of its reads; None: the session's.
        named: values of the policy to report if the session has stored others.
        shared_key: key of the scope that ``scope="shared"`` searches.
        rules: of its puts; they count its reads as well.
    """

    resources: Resources
    identity: SessionIdentity
    policy: Policy
    blocks: tuple[BaseMemoryBlock, ...]
    insert_method: InsertMethod
    rules: PutRules
    render: Renderer
    shared_key: UUID | None
    own_token_limit: int | None
    named: Mapping[str, object]

    @property
    def redaction(self) -> Redaction | None:
        return self.rules.redaction

    @property
    def token_limit(self) -> int:
        return self.own_token_limit or self.policy.token_limit

    @property
    def recorder(self) -> Recorder:
        """Runs operations on this session with the compliance hook and the audit trail."""
        return Recorder(self.identity, self.resources.compliance, self.resources.audit_levels)

    def record_read(
        self, kind: str, operation: Operation[T], connection: object | None = None
    ) -> Operation[T]:
        """Run a read, and append it to the audit trail where reads are recorded."""
        return self.recorder.record_read(kind, operation, in_callers_transaction=connection is not None)

    def notify(self, flushed: Flushed | None, connection: object | None) -> list[UUID]:
        """Tell workers of a flush; returns the ids of its events.

        Before the commit of a caller's transaction a hint would find nothing; the sweep notifies after it.
        """
        if flushed is None:
            return []
        if connection is None:
            self.resources.ring(flushed.lanes)
        return list(flushed.event_ids)
