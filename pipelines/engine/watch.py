"""Notices of the engine's work, for the metrics of a process."""

from __future__ import annotations

from decimal import Decimal

from strandline.pipelines.engine.stage import Batch, RawAnswer


class Watch:
    """Drops everything; a process with metrics has another one."""

    def note_batch(self, batch: Batch) -> None:
        """A batch's effect is committed, and can be read."""

    def note_call(self, stage: str, answer: RawAnswer, seconds: float, cost_usd: Decimal | None) -> None:
        """A model answered a call, and the answer is stored."""

    def note_failure(self, stage: str, error: Exception) -> None:
        """A lane was given back after an error."""

    def note_dead_letter(self, batch: Batch) -> None:
        """The event of a batch became a dead letter."""
