"""Operations on the capture of facts, for a namespace or an owner."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from strandline.pipelines.audit.appending import Act
from strandline.producers.audit.carrying_out import Recorder
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


class Capturing(Protocol):
    """A namespace, or an owner in it."""

    @property
    def capture_level(self) -> CaptureLevel: ...

    @property
    def recorder(self) -> Recorder: ...


def get_capture(of: Capturing) -> Operation[Capture]:
    """The capture that applies now; an owner's open options come from the namespace's.

    None in a field: never set.  All operations are then on, and the prompt decides.
    """
    return read_capture(of.capture_level)


def set_capture(of: Capturing, capture: Capture, *, actor: str | None = None) -> Operation[int]:
    """Set the capture from the next flush on, as a numbered act; returns its number.

    An act is the whole choice of its level; open options of ``capture`` come from the level above.
    Earlier flushes keep the act of their time, in every later replay as well.  Repeating the present choice
    records nothing.  The instructions become part of the prompt: never put users' words there.

    Raises:
        InvalidMessageError: a field cannot be used.
        ConflictError: other callers kept recording acts of this namespace.
    """
    recording = partial(record_capture, of.capture_level, _check(capture))
    return of.recorder.carry_out(Act.here("capture", actor=actor), recording)


def capture_acts(of: Capturing, *, limit: int = 100) -> Operation[list[CaptureAct]]:
    """The acts of this level alone, newest first."""
    return list_captures(of.capture_level, checked_limit(limit))


def _check(capture: object) -> Capture:
    if not isinstance(capture, Capture):
        raise InvalidMessageError("capture", f"must be a Capture, not {type(capture).__name__}")
    return capture.check()
