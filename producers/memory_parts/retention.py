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
from strandline.producers.memory_parts.search import MemorySearch
from strandline.producers.sessions import check_unowned
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.acts.retention import Retention


class MemoryRetention(MemorySearch):
    """The methods of ``SessionMemory`` on retention; ``strandline.retention`` has those of a namespace."""

    def get_retention(self) -> Retention:
        """What applies to this session now; what its own act leaves open, as the namespace's has it."""
        return self._runner.run(read_retention(self._retention_level))

    async def aget_retention(self) -> Retention:
        """Async twin of ``get_retention``."""
        return await self._runner.arun(read_retention(self._retention_level))

    def set_retention(self, retention: Retention, *, actor: str | None = None) -> int:
        """Set how long this session is kept, as a numbered act; returns its number.

        An act is the whole choice of its level, and applies from the moment this returns: no read shows what
        is past its time, also before workers have removed it.  Setting what is set already records nothing.

        Raises:
            InvalidMessageError: a field cannot be used.
            ActRefusedError: the compliance hook refuses it.
            ConflictError: other callers kept recording acts of this session.
            OwnerError: the session belongs to another owner.
        """
        return self._runner.run(self._set_retention(retention, actor))

    async def aset_retention(self, retention: Retention, *, actor: str | None = None) -> int:
        """Async twin of ``set_retention``."""
        return await self._runner.arun(self._set_retention(retention, actor))

    def retention_acts(self, *, limit: int = 100) -> list[RetentionAct]:
        """The acts of this session alone, newest first."""
        return self._runner.run(list_acts(self._retention_level, check_count("limit", limit)))

    async def aretention_acts(self, *, limit: int = 100) -> list[RetentionAct]:
        """Async twin of ``retention_acts``."""
        return await self._runner.arun(list_acts(self._retention_level, check_count("limit", limit)))

    @property
    def _retention_level(self) -> RetentionLevel:
        identity = self._identity
        return RetentionLevel(identity.namespace, identity)

    def _set_retention(self, retention: object, actor: str | None) -> Operation[int]:
        if not isinstance(retention, Retention):
            raise InvalidMessageError("retention", f"must be a Retention, not {type(retention).__name__}")
        yield from check_unowned(self._identity)
        retention.check(of_session=True)
        recording = partial(record_retention, self._retention_level, retention)
        return (yield from self._recorder.carry_out(Act.here("retention", actor=actor), recording))
