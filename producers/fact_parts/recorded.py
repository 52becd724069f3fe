"""What the faces of facts share: acts with the compliance hook and the audit trail."""

from __future__ import annotations

from typing import TypeVar

from strandline.pipelines.audit.appending import Act
from strandline.producers.audit.carrying_out import Recorder, count_results
from strandline.producers.execution import OperationRunner, Resources
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.identity import Owner

T = TypeVar("T")


class Recorded:
    """A face whose acts concern ``_whom``: an owner, or a namespace by its name."""

    _resources: Resources
    _runner: OperationRunner

    @property
    def _whom(self) -> Owner | str:
        raise NotImplementedError

    @property
    def _recorder(self) -> Recorder:
        """Carries out acts with the compliance hook and the audit trail."""
        return Recorder(self._whom, self._resources.compliance, self._resources.audit_levels)

    def _record_read(self, kind: str, operation: Operation[T]) -> Operation[T]:
        """Carry out a read, and append it to the audit trail where reads are recorded."""
        return self._recorder.read(Act.here(kind), operation, count_results)
