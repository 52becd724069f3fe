"""Seals the audit trail: visible unsealed entries join the next seal of their chain.

Entries are taken by state and never by time or number: late commits join a later seal, and none is passed
over.  A pass is one transaction, under the locks of the chains that it extends: it moves entries from
``audit_entry`` under the chain's key.  Puts only insert there, so none waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from uuid import UUID

from strandline.pipelines.audit.anchors import Anchor
from strandline.pipelines.audit.hashing import FIRST, Link, SealedEntry, merkle_root, origin_digest
from strandline.pipelines.audit.keys import SealKeys
from strandline.schemas.errors import DatabaseError
from strandline.schemas.postgres.operations import Operation, atomic, fetch
from strandline.schemas.queries.audit.audit import (
    AddSeals,
    AdvanceChains,
    ChainEnds,
    CommitDurably,
    LockChains,
    MoveSealed,
    OpenChains,
    ReadUnsealed,
    ReadUnsealedRow,
    SubjectSalts,
    UnsealedNamespaces,
)
from strandline.schemas.values.identity import audit_chain_key

MAX_ENTRIES_PER_PASS = 4_096
MAX_NAMESPACES_PER_PASS = 500


@dataclass(frozen=True, slots=True)
class SealingPass:
    """One pass: how many entries it sealed, the chains' new ends, and whether it took as many as allowed."""

    entries: int
    anchors: tuple[Anchor, ...]
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class _End:
    seals: int
    entries: int
    mac: bytes


@dataclass(frozen=True, slots=True)
class _Seal:
    namespace: str
    link: Link
    leaves: tuple[bytes, ...]
    mac: bytes
    rows: tuple[ReadUnsealedRow, ...]
    digests: tuple[bytes | None, ...]


def seal_once(
    keys: SealKeys, *, limit: int = MAX_ENTRIES_PER_PASS, now: datetime | None = None
) -> Operation[SealingPass]:
    """Seal up to ``limit`` entries, in one transaction; chains that another sealer has are left out."""
    rows = yield from fetch(UnsealedNamespaces(limit=MAX_NAMESPACES_PER_PASS))
    if not rows:
        return SealingPass(0, ())
    namespaces = sorted(row.namespace for row in rows)
    chain_keys = [audit_chain_key(namespace) for namespace in namespaces]
    yield from fetch(OpenChains(shard_keys=chain_keys, namespaces=namespaces))
    chains = dict(zip(chain_keys, namespaces, strict=True))
    sealed = yield from _seal(keys, chains, limit, now or datetime.now(UTC))
    is_full = sealed.entries >= limit or len(rows) >= MAX_NAMESPACES_PER_PASS
    return replace(sealed, is_full=sealed.entries > 0 and is_full)


@atomic
def _seal(keys: SealKeys, chains: Mapping[UUID, str], limit: int, now: datetime) -> Operation[SealingPass]:
    """Seal in one transaction; ``chains`` are the namespaces by the keys of their chains."""
    # An anchor that is kept elsewhere must not name a seal that a crash of Postgres takes back.
    yield from fetch(CommitDurably())
    locked = yield from fetch(LockChains(shard_keys=list(chains)))
    if not locked:
        return SealingPass(0, ())
    # After the locks, so that what another sealer has committed is seen.
    mine = [row.shard_key for row in locked]
    ends = {
        chains[row.shard_key]: _End(row.seals, row.entries, row.mac or FIRST)
        for row in (yield from fetch(ChainEnds(shard_keys=mine)))
    }
    taken = yield from fetch(ReadUnsealed(namespaces=sorted(ends), limit=limit))
    if not taken:
        return SealingPass(0, ())
    subjects = sorted({row.subject for row in taken if row.subject is not None and row.origin is not None})
    salts: dict[UUID, bytes] = {}
    if subjects:
        salts = {row.subject: row.salt for row in (yield from fetch(SubjectSalts(subjects=subjects)))}
    seals = list(_make_seals(keys, ends, taken, salts, now))
    yield from fetch(AddSeals(seals=json.dumps([_seal_record(seal) for seal in seals])))
    (moved,) = yield from fetch(_move(seals))
    if moved.entries != len(taken):
        raise DatabaseError("Entries of the audit trail went while they were sealed; nothing was sealed.")
    yield from fetch(
        AdvanceChains(
            shard_keys=[seal.link.chain_key for seal in seals],
            seals=[seal.link.number for seal in seals],
            entries=[seal.link.entries_before + seal.link.entries for seal in seals],
        )
    )
    return SealingPass(len(taken), tuple(map(_anchor, seals)))


def _make_seals(
    keys: SealKeys,
    ends: Mapping[str, _End],
    taken: Iterable[ReadUnsealedRow],
    salts: Mapping[UUID, bytes],
    now: datetime,
) -> Iterator[_Seal]:
    ordered = sorted(taken, key=lambda row: (row.namespace, row.created_at, row.entry_id))
    for namespace, of_namespace in groupby(ordered, key=lambda row: row.namespace):
        chain_key, end, rows = audit_chain_key(namespace), ends[namespace], tuple(of_namespace)
        digests = tuple(_origin_digest(row, salts) for row in rows)
        leaves = tuple(
            SealedEntry.of(row, digest).leaf(chain_key) for row, digest in zip(rows, digests, strict=True)
        )
        link = Link(
            chain_key=chain_key,
            number=end.seals + 1,
            entries=len(rows),
            entries_before=end.entries,
            entry_ids=tuple(row.entry_id for row in rows),
            root=merkle_root(leaves),
            previous=end.mac,
            key_id=keys.current,
            sealed_at=now,
        )
        mac = link.mac(keys.secret_of(keys.current) or b"")
        yield _Seal(namespace, link, leaves, mac, rows, digests)


def _origin_digest(row: ReadUnsealedRow, salts: Mapping[UUID, bytes]) -> bytes | None:
    salt = b"" if row.subject is None else salts.get(row.subject)
    if row.origin is None or salt is None:
        return None
    return origin_digest(salt, row.entry_id, row.origin)


def _seal_record(seal: _Seal) -> dict[str, object]:
    link = seal.link
    return {
        "shard_key": str(link.chain_key),
        "number": link.number,
        "entries": link.entries,
        "entries_before": link.entries_before,
        "entry_ids": [str(one) for one in link.entry_ids],
        "leaves": _bytea(b"".join(seal.leaves)),
        "root": _bytea(link.root),
        "previous": _bytea(link.previous),
        "key_id": link.key_id,
        "mac": _bytea(seal.mac),
        "sealed_at": link.sealed_at.isoformat(),
    }


def _move(seals: Sequence[_Seal]) -> MoveSealed:
    places = [
        (row, seal.link, place, digest)
        for seal in seals
        for place, (row, digest) in enumerate(zip(seal.rows, seal.digests, strict=True), 1)
    ]
    return MoveSealed(
        shard_keys=[row.shard_key for row, _link, _place, _digest in places],
        entry_ids=[row.entry_id for row, _link, _place, _digest in places],
        chain_keys=[link.chain_key for _row, link, _place, _digest in places],
        seals=[link.number for _row, link, _place, _digest in places],
        places=[place for _row, _link, place, _digest in places],
        digests=[digest for _row, _link, _place, digest in places],
    )


def _anchor(seal: _Seal) -> Anchor:
    link = seal.link
    total = link.entries_before + link.entries
    return Anchor(seal.namespace, link.number, total, seal.mac.hex(), link.sealed_at)


def _bytea(value: bytes) -> str:
    return f"\\x{value.hex()}"
