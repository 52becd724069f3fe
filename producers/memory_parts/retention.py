"""The methods of a session's memory that say how long it is kept, sync and async."""

from __future__ import annotations

from functools import partial

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.upkeep.policies import (
    RetentionAct,
    RetentionLevel,
    list_acts,
    read_retention,
    record_retention,
)
from strandline.producers.arguments import check_count
from strandline.producers.execution import async_method, sync_method
from strandline.producers.memory_parts.search import MemorySearch
from strandline.producers.sessions import check_unowned
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.acts.retention import Retention


class MemoryRetention(MemorySearch):
    """The methods of ``SessionMemory`` on retention; ``strandline.retention`` has those of a namespace."""

    @sync_method
    def get_retention(self) -> Operation[Retention]:
        """What applies to this session now; what its own act leaves open, as the namespace's has it."""
        return read_retention(self._retention_level)

    aget_retention = async_method(get_retention)

    @sync_method
    def set_retention(self, retention: Retention, *, actor: str | None = None) -> Operation[int]:
        """Set how long this session is kept, as a numbered act; returns its number.

        An act is the whole choice of its level, and applies from the moment this returns: no read shows what
        is past its time, also before workers have removed it.  Setting what is set already records nothing.

        Raises:
            InvalidMessageError: a field cannot be used.
            ActRefusedError: the compliance hook refuses it.
            ConflictError: other callers kept recording acts of this session.
            OwnerError: the session belongs to another owner.
        """
        if not isinstance(retention, Retention):
            raise InvalidMessageError("retention", f"must be a Retention, not {type(retention).__name__}")
        yield from check_unowned(self._identity)
        retention.check(of_session=True)
        recording = partial(record_retention, self._retention_level, retention)
        return (yield from self._recorder.carry_out(Act.here("retention", actor=actor), recording))

    aset_retention = async_method(set_retention)

    @sync_method
    def retention_acts(self, *, limit: int = 100) -> Operation[list[RetentionAct]]:
        """The acts of this session alone, newest first."""
        return list_acts(self._retention_level, check_count("limit", limit))

    aretention_acts = async_method(retention_acts)

    @property
    def _retention_level(self) -> RetentionLevel:
        identity = self._identity
        return RetentionLevel(identity.namespace, identity)
