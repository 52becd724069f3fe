"""What ``strandline audit`` prints under ``--json``."""

from __future__ import annotations

from typing import Any

from strandline.schemas.wire.report import Key, Report, Time


class ActReport(Report):
    """An act of the trail.

    ``subject`` is the pseudonym of the user concerned, and ``user_id`` the user that it leads to, null after
    an erasure; ``session`` is a pseudonym as well.  ``seal`` and ``place`` are null while no seal covers it.
    """

    entry_id: Key
    at: Time
    kind: str
    actor: str | None
    origin: str | None
    subject: Key | None
    user_id: str | None
    session: Key | None
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
    sealed_at: Time


class FindingReport(Report):
    """Something that does not fit; ``seal``, ``place`` and ``entry_id`` say where."""

    problem: str
    sentence: str
    seal: int | None
    place: int | None
    entry_id: Key | None


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
    first_seal_at: Time | None
    last_seal_at: Time | None
    findings: list[FindingReport]


class TrailsReport(Report):
    """The results for several namespaces."""

    trails: list[TrailReport]


class PruningReport(Report):
    """The pruned entries, or with ``dry_run`` those to prune; ``through_seal`` is the last seal concerned."""

    namespace: str
    entries: int
    through_seal: int
    dry_run: bool
