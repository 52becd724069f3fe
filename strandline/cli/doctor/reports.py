"""What ``doctor`` prints under ``--json``."""

from __future__ import annotations

from typing import Literal, Self

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

    @classmethod
    def of_checks(cls, checks: list[CheckReport]) -> Self:
        return cls(healthy=all(check.result != "problem" for check in checks), checks=checks)


def ok(name: str, finding: str) -> CheckReport:
    return CheckReport(name=name, result="ok", found=finding)


def warn(name: str, finding: str, advice: str | None = None) -> CheckReport:
    return CheckReport(name=name, result="warning", found=finding, advice=advice)


def problem(name: str, finding: str, advice: str | None = None) -> CheckReport:
    return CheckReport(name=name, result="problem", found=finding, advice=advice)
