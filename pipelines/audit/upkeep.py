"""Upkeep of the audit trail: set its level, prune it, and take a user's name out of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid4

from strandline.pipelines.audit.appending import Act, append_act
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.operations import Operation, atomic, fetch
from strandline.schemas.queries.audit.audit import (
    ForgetSealedOrigins,
    ForgetUnsealedOrigins,
    LevelOfNamespace,
    LockChain,
    MarkPruned,
    Prunable,
    PrunableThrough,
    PruneEntries,
    PruneSeals,
    SetAuditLevel,
    SubjectOf,
)
from strandline.schemas.queries.upkeep.erasures import EraseRows
from strandline.schemas.values.acts.kinds import check_level
from strandline.schemas.values.identity import audit_chain_key

# Most deletions of one transaction; puts wait for no lock of it, sealers of this chain do.
SEALS_PER_STEP = 200
ACTS_PER_STEP = 10_000
ORIGINS_PER_STEP = 1_000


@dataclass(frozen=True, slots=True)
class Pruning:
    """The number of entries pruned, up to this seal; ``through_seal`` is 0 if nothing ever was."""

    entries: int
    through_seal: int


@atomic
def set_level(namespace: str, level: str, act: Act) -> Operation[bool]:
    """Set the level of a namespace's trail; False if it has it already.

    The act is in the trail at any level: at the old one before the change, or at the new one.
    """
    check_level(level)
    (before,) = yield from fetch(LevelOfNamespace(namespace=namespace))
    if before.level == level:
        return False
    act = replace(act, detail={"from": before.level, "to": level})
    if before.level != "off":
        yield from append_act(namespace, act)
    yield from fetch(SetAuditLevel(namespace=namespace, level=level))
    if before.level == "off":
        yield from append_act(namespace, act)
    return True


def prune_trail(namespace: str, before: datetime, act: Act) -> Operation[Pruning]:
    """Delete the entries of all seals that were made before a time, in whole seals from the beginning.

    The last of these seals stays, without its entries, so that the next one can be seen to follow it; the
    newest seal of all is never pruned.  Each step is a transaction, and an act in the trail at every level
    that says up to which seal it went, with the MAC of that seal.

    Raises:
        ConfigurationError: ``before`` has no time zone.
    """
    if before.tzinfo is None:
        raise ConfigurationError("before has no time zone; write one, as in 2026-11-25T10:00+00:00.")
    entries, through = 0, 0
    while True:
        step = yield from _prune(namespace, before, act)
        if step is None:
            return Pruning(entries, through)
        entries, through = entries + step.entries, step.through_seal
        if not step.entries:
            return Pruning(entries, through)


def plan_pruning(namespace: str, before: datetime) -> Operation[Pruning]:
    """Counts the rows that ``prune_trail`` would delete now, and names the last seal; changes nothing."""
    (row,) = yield from fetch(Prunable(shard_key=audit_chain_key(namespace), before=before))
    return Pruning(row.entries, row.through_seal or 0)


@atomic
def _prune(namespace: str, before: datetime, act: Act) -> Operation[Pruning | None]:
    chain_key = audit_chain_key(namespace)
    for chain in (yield from fetch(LockChain(shard_key=chain_key))):
        rows = yield from fetch(
            PrunableThrough(
                shard_key=chain_key,
                before=before,
                pruned_seals=chain.pruned_seals,
                max_acts=ACTS_PER_STEP,
                limit=SEALS_PER_STEP,
            )
        )
        if not rows:
            return Pruning(0, chain.pruned_seals)
        through = rows[0].number
        (gone,) = yield from fetch(PruneEntries(shard_key=chain_key, through_seal=through))
        yield from fetch(PruneSeals(shard_key=chain_key, through_seal=through))
        yield from fetch(MarkPruned(shard_key=chain_key, through_seal=through))
        detail = {"through_seal": through, "mac": rows[0].mac.hex()}
        described = replace(act, entry_id=uuid4(), count=gone.entries, detail=detail)
        yield from append_act(namespace, described)
        return Pruning(gone.entries, through)
    return None


def forget_pseudonym(namespace: str, shard_key: UUID, erasure: int) -> Operation[int]:
    """Take an owner's name out of the trail; returns how many entries lost their origin.

    ``erasure``: the number of the erasure with which the row of the mapping is counted.

    The pseudonym's mapping is destroyed, so that no entry leads to a person, together with their origins, of
    which the seals cover digests: the chain stays valid.
    """
    rows = yield from fetch(SubjectOf(shard_key=shard_key))
    if not rows:
        return 0
    chain_key, subject, forgotten = audit_chain_key(namespace), rows[0].subject, 0
    while page := len((yield from fetch(_sealed_origins(chain_key, subject)))):
        forgotten += page
    return forgotten + (yield from _forget_pseudonym(chain_key, shard_key, subject, erasure))


@atomic
def _forget_pseudonym(chain_key: UUID, shard_key: UUID, subject: UUID, erasure: int) -> Operation[int]:
    # A sealer that has read the secret commits before this; a later one finds none, and seals no origin.
    yield from fetch(LockChain(shard_key=chain_key))
    erased = yield from fetch(
        EraseRows(number=erasure, table="audit_subject", shard_key=shard_key, column=None, key=None, limit=1)
    )
    if not erased[0].rows:
        return 0  # another process has, and the owner may have been readmitted since
    unsealed = yield from fetch(ForgetUnsealedOrigins(shard_key=shard_key, subject=subject))
    forgotten = len(unsealed)
    while page := len((yield from fetch(_sealed_origins(chain_key, subject)))):
        forgotten += page
    return forgotten


def _sealed_origins(chain_key: UUID, subject: UUID) -> ForgetSealedOrigins:
    return ForgetSealedOrigins(chain_key=chain_key, subject=subject, limit=ORIGINS_PER_STEP)
