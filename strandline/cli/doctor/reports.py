"""What ``doctor`` prints under ``--json``."""

from __future__ import annotations

from typing import Literal

from strandline.schemas.wire.report import Report


class CheckReport(Report):
    """One thing that doctor looked at; ``advice`` says what to do unless it is ok."""

    name: str
    result: Literal["ok", "warning", "problem"]
    found: str
    advice: str | None = None


class DoctorReport(Report):
    """``strandline doctor``; ``healthy`` without any problem."""

    healthy: bool
    checks: list[CheckReport]
