"""What is captured as facts, set and read for a namespace or an owner: the same methods for both."""

from __future__ import annotations

from functools import partial

from strandline.pipelines.audit.appending import Act
from strandline.producers.execution import async_method, sync_method
from strandline.producers.fact_parts.recorded import Recorded
from strandline.producers.facts.capturing import (
    CaptureAct,
    CaptureLevel,
    list_captures,
    read_capture,
    record_capture,
)
from strandline.producers.facts.listing import checked_limit
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.acts.capture import Capture


class CaptureSettings(Recorded):
    """Methods of a face that has a level of its own: a namespace, or an owner in it."""

    @property
    def _capture_level(self) -> CaptureLevel:
        raise NotImplementedError

    @sync_method
    def get_capture(self) -> Operation[Capture]:
        """What applies now; what an owner's act leaves open, as the namespace's has it.

        None in a field: it was never set.  All operations are then on, and the prompt says what to keep.
        """
        return read_capture(self._capture_level)

    aget_capture = async_method(get_capture)

    @sync_method
    def set_capture(self, capture: Capture, *, actor: str | None = None) -> Operation[int]:
        """Set what is captured from the next flush on, as a numbered act; returns its number.

        An act is the whole choice of its level; what ``capture`` leaves open is asked of the level above.
        What was flushed before keeps the act of its time, in every later replay as well.  Setting what is set
        already records nothing.  The instructions become part of the prompt: never put there what users said.

        Raises:
            InvalidMessageError: a field cannot be used.
            ConflictError: other callers kept recording acts of this namespace.
        """
        recording = partial(record_capture, self._capture_level, _check(capture))
        return self._recorder.carry_out(Act.here("capture", actor=actor), recording)

    aset_capture = async_method(set_capture)

    @sync_method
    def capture_acts(self, *, limit: int = 100) -> Operation[list[CaptureAct]]:
        """The acts of this level alone, newest first."""
        return list_captures(self._capture_level, checked_limit(limit))

    acapture_acts = async_method(capture_acts)


def _check(capture: object) -> Capture:
    if not isinstance(capture, Capture):
        raise InvalidMessageError("capture", f"must be a Capture, not {type(capture).__name__}")
    return capture.check()
