"""The findings of a verification of audit trails."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

MAX_FINDINGS = 1_000

Problem = Literal[
    "changed", "removed", "inserted", "reordered", "seal_changed", "seal_removed", "seal_unverified",
    "seal_unkeyed", "pruned_unrecorded", "anchor", "name",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not fit.

    Attributes:
        problem: the kind.
        sentence: what was found, for people.
        seal: the seal's number.
        place: the place in it, from 1.
        entry_id: the entry, where one is meant.
    """

    problem: Problem
    sentence: str
    seal: int | None = None
    place: int | None = None
    entry_id: UUID | None = None

    def __str__(self) -> str:
        if self.seal is None:
            return self.sentence
        place = "" if self.place is None else f", place {self.place}"
        return f"seal {self.seal}{place}: {self.sentence}"


@dataclass(slots=True)
class TrailVerification:
    """The result of a verification.

    Attributes:
        namespace: whose trail.
        seals, entries: how many were looked at.
        pruned_seals: how many were pruned before.
        unsealed: entries that no seal covers yet; they prove nothing.
        unkeyed_seals: seals without a key, which anyone can make who may write to the tables; where keys are
            given each is a finding, unless an anchor vouches for it.
        first_seal_at, last_seal_at: the times of the first and the last seal.
        anchors: how many given anchors were found in the chain as they are.
        pruned_anchors: how many of them are of seals that are gone, so that they prove nothing any more.
        findings: what does not fit, at most 1,000.
    """

    namespace: str
    seals: int = 0
    entries: int = 0
    pruned_seals: int = 0
    unsealed: int = 0
    unkeyed_seals: int = 0
    first_seal_at: datetime | None = None
    last_seal_at: datetime | None = None
    anchors: int = 0
    pruned_anchors: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether everything fits."""
        return not self.findings

    def add(self, findings: Iterable[Finding]) -> None:
        """Keep findings, as many as fit."""
        for finding in findings:
            if len(self.findings) < MAX_FINDINGS:
                self.findings.append(finding)


def name_finding(chain_key: UUID, namespace: str) -> Finding:
    """A chain whose key is not the one that follows from the name it gives."""
    sentence = f"The chain under the key {chain_key} gives {namespace!r} as its namespace, which has another"
    return Finding("name", f"{sentence} key: the chain was renamed, or moved.")
