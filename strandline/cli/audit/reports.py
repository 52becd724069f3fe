"""What ``strandline audit`` prints under ``--json``."""

from __future__ import annotations

from typing import Any

from strandline.pipelines.audit.anchors import Anchor
from strandline.pipelines.audit.findings import TrailVerification
from strandline.pipelines.audit.listing import AuditedAct
from strandline.schemas.wire.report import Report


class ActReport(Report):
    """An act of the trail.

    ``subject`` is the pseudonym of the user concerned, and ``user_id`` the user that it leads to, null after
    an erasure; ``session`` is a pseudonym as well.  ``seal`` and ``place`` are null while no seal covers it.
    """

    entry_id: str
    at: str
    kind: str
    actor: str | None
    origin: str | None
    subject: str | None
    user_id: str | None
    session: str | None
    seq: int | None
    count: int | None
    detail: dict[str, Any]
    flags: list[str]
    seal: int | None
    place: int | None


class ActsReport(Report):
    """A page of acts, newest first; ``next_before`` leads to the next one."""

    namespace: str
    next_before: str | None
    acts: list[ActReport]


class LevelReport(Report):
    """The level of a namespace's trail, and how long its chain is."""

    namespace: str
    level: str
    seals: int
    pruned_seals: int
    entries: int


class LevelsReport(Report):
    """Levels of namespaces."""

    namespaces: list[LevelReport]


class AnchorReport(Report):
    """An anchor: the end of a chain, to be kept outside of the database."""

    namespace: str
    seal: int
    entries: int
    mac: str
    sealed_at: str


class FindingReport(Report):
    """Something that does not fit; ``seal``, ``place`` and ``entry_id`` say where."""

    problem: str
    sentence: str
    seal: int | None
    place: int | None
    entry_id: str | None


class TrailReport(Report):
    """The result of verifying a namespace's trail."""

    namespace: str
    is_sound: bool
    seals: int
    entries: int
    pruned_seals: int
    unsealed: int
    unkeyed_seals: int
    anchors: int
    pruned_anchors: int
    first_seal_at: str | None
    last_seal_at: str | None
    findings: list[FindingReport]


class TrailsReport(Report):
    """The results for several namespaces."""

    trails: list[TrailReport]


class PruningReport(Report):
    """What was pruned, or with ``dry_run`` would be; ``through_seal`` is the last seal whose entries go."""

    namespace: str
    entries: int
    through_seal: int
    dry_run: bool


def report_act(act: AuditedAct) -> ActReport:
    """An act as it is printed."""
    return ActReport.of(
        act,
        entry_id=str(act.entry_id),
        at=act.at.isoformat(),
        subject=None if act.subject is None else str(act.subject),
        session=None if act.session is None else str(act.session),
        detail=dict(act.detail),
        flags=list(act.flags),
    )


def report_anchor(anchor: Anchor) -> AnchorReport:
    """An anchor as it is printed."""
    return AnchorReport(
        namespace=anchor.namespace,
        seal=anchor.seal,
        entries=anchor.entries,
        mac=anchor.mac,
        sealed_at=anchor.sealed_at.isoformat(),
    )


def report_trail(result: TrailVerification) -> TrailReport:
    """A verification as it is printed."""
    first, last = result.first_seal_at, result.last_seal_at
    return TrailReport.of(
        result,
        first_seal_at=None if first is None else first.isoformat(),
        last_seal_at=None if last is None else last.isoformat(),
        findings=[
            FindingReport.of(one, entry_id=None if one.entry_id is None else str(one.entry_id))
            for one in result.findings
        ],
    )
