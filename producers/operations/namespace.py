"""A namespace as its operations see it."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.producers.audit.carrying_out import Recorder
from strandline.producers.execution import Resources
from strandline.producers.facts.capturing import CaptureLevel


@dataclass(frozen=True, slots=True)
class Namespace:
    """A tenant by its name, and the resources of the process."""

    resources: Resources
    name: str

    @property
    def capture_level(self) -> CaptureLevel:
        return CaptureLevel(self.name)

    @property
    def recorder(self) -> Recorder:
        """Runs operations on the namespace with the compliance hook and the audit trail."""
        return Recorder(self.name, self.resources.compliance, self.resources.audit_levels)
