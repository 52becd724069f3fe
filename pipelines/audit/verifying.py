"""Verifies a namespace's audit trail: each seal follows the one before, and covers entries that are there.

What does not fit is named: the seal, the place in it and the entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.pipelines.audit.anchors import Anchor
from strandline.pipelines.audit.hashing import (
    FIRST,
    Link,
    SealedEntry,
    merkle_root,
    origin_digest,
    split_leaves,
)
from strandline.pipelines.audit.keys import UNKEYED, SealKeys
from strandline.pipelines.audit.listing import audited_namespaces
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.audit.audit import (
    ChainEnds,
    ChainOf,
    ChainOfRow,
    ChainsOfName,
    KeysOfTrails,
    RecordedPrunings,
    SealedEntries,
    SealedEntriesRow,
    SealsAfter,
    SealsAfterRow,
    StraySealed,
    StraySealedRow,
    UnsealedNamespaces,
    UnsealedOf,
)
from strandline.schemas.queries.conversation.sessions import KnownNamespaces
from strandline.schemas.values.identity import audit_chain_key
from strandline.schemas.values.same_named import make_from

MAX_FINDINGS = 1_000

Problem = Literal[
    "changed", "removed", "inserted", "reordered", "seal_changed", "seal_removed", "seal_unverified",
    "seal_unkeyed", "pruned_unrecorded", "anchor", "name",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Finding:
    """An inconsistency: its kind, a sentence for people, and where in which seal it is."""

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
        namespace: the trail's.
        seals, entries: how many were checked.
        pruned_seals: how many were pruned before.
        unsealed: entries that no seal covers yet; they prove nothing.
        unkeyed_seals: seals without a key, which any writer of the tables can make; where keys are given each
            is a finding, unless an anchor vouches for it.
        first_seal_at, last_seal_at: the times of the first and the last seal.
        anchors: how many given anchors were found in the chain as they are.
        pruned_anchors: how many of them are of seals that are gone, so that they prove nothing.
        findings: at most 1,000.
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
    """A chain whose key does not follow from the name it gives."""
    sentence = f"The chain under the key {chain_key} gives {namespace!r} as its namespace, which has another"
    return Finding("name", f"{sentence} key: the chain was renamed, or moved.")


SEALS_PER_PAGE = 50
# Of a chain whose seals are large, entries are read for some of a page's seals at a time.
MAX_ENTRIES_AT_ONCE = 10_000
MAX_ATTEMPTS = 3


@dataclass(slots=True)
class UnkeyedSeals:
    """The numbers of such seals, as ranges; a chain may have millions of them."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def note(self, number: int) -> None:
        """Keep a number; they come in order."""
        if self.ranges and self.ranges[-1][1] == number - 1:
            self.ranges[-1] = (self.ranges[-1][0], number)
        else:
            self.ranges.append((number, number))

    def sentences_after(self, vouched: int) -> Iterator[tuple[int, str]]:
        """The expected state after the last seal that an anchor vouches for: the first seal, and a
        sentence.
        """
        for begin, last in self.ranges:
            first = max(begin, vouched + 1)
            if first > last:
                continue
            which = f"Seal {first} has" if first == last else f"Seals {first} to {last} have"
            yield first, f"{which} no key: anyone who may write to the tables can have made this part."


@dataclass(slots=True)
class _Chain:
    keys: SealKeys
    chain_key: UUID
    number: int
    mac: bytes | None
    entries: int
    macs: dict[int, str] = field(default_factory=dict)
    unkeyed: UnkeyedSeals = field(default_factory=UnkeyedSeals)


def verify_trail(
    namespace: str, keys: SealKeys, anchors: Sequence[Anchor] = ()
) -> Operation[TrailVerification]:
    """Verify the trail of a namespace, from where it was pruned to its end.

    Args:
        anchors: anchors of this namespace that were kept elsewhere; the chain has to hold each of them.
    """
    for _attempt in range(MAX_ATTEMPTS):
        before = yield from _chain_of(namespace)
        result = yield from _verify_once(namespace, keys, anchors, before)
        if (yield from _chain_of(namespace)).pruned_seals == before.pruned_seals:
            break  # else its beginning went while it was read
    return result


def _chain_of(namespace: str) -> Operation[ChainOfRow]:
    rows = yield from fetch(ChainOf(shard_key=audit_chain_key(namespace)))
    return rows[0] if rows else ChainOfRow(0, 0, 0)


def _verify_once(
    namespace: str, keys: SealKeys, anchors: Sequence[Anchor], row: ChainOfRow
) -> Operation[TrailVerification]:
    result, chain_key = TrailVerification(namespace), audit_chain_key(namespace)
    result.unsealed = (yield from fetch(UnsealedOf(namespace=namespace)))[0].entries
    result.pruned_seals = row.pruned_seals
    for named in (yield from fetch(ChainsOfName(shard_key=chain_key, namespace=namespace))):
        if (named.shard_key, named.namespace) != (chain_key, namespace):
            result.add([name_finding(named.shard_key, named.namespace)])
    chain = _Chain(keys, chain_key, row.pruned_seals, None if row.pruned_seals else FIRST, 0)
    yield from _follow(chain, result, {row.pruned_seals, *(anchor.seal for anchor in anchors)})
    # Seals may have been added since the number was read.
    result.add(_end_findings(chain, row.seals, (yield from _chain_of(namespace)).seals))
    stray = yield from fetch(
        StraySealed(shard_key=chain_key, pruned_seals=row.pruned_seals, limit=MAX_FINDINGS)
    )
    result.add(_stray_finding(one, row.pruned_seals) for one in stray)
    result.add((yield from _pruning_findings(chain, row.pruned_seals)))
    result.add(_anchor_findings(chain, row, anchors, result))
    result.add(_unkeyed_findings(chain, anchors))
    return result


def _stray_finding(row: StraySealedRow, pruned: int) -> Finding:
    what = "was pruned" if row.seal <= pruned else "does not exist"
    sentence = f"Entry {row.entry_id} stands under seal {row.seal}, which {what}."
    return Finding("inserted", sentence, row.seal, row.place, row.entry_id)


def _follow(chain: _Chain, result: TrailVerification, anchored: Set[int]) -> Operation[None]:
    after = max(0, chain.number - 1)
    while page := (
        yield from fetch(SealsAfter(shard_key=chain.chain_key, after=after, limit=SEALS_PER_PAGE))
    ):
        for seals in _in_parts(page):
            yield from _look_at_seals(chain, result, seals, anchored)
        after = page[-1].number


def _in_parts(page: Sequence[SealsAfterRow]) -> Iterator[list[SealsAfterRow]]:
    part: list[SealsAfterRow] = []
    entries = 0
    for seal in page:
        if part and entries + seal.entries > MAX_ENTRIES_AT_ONCE:
            yield part
            part, entries = [], 0
        part.append(seal)
        entries += seal.entries
    yield part


def _look_at_seals(
    chain: _Chain, result: TrailVerification, seals: Sequence[SealsAfterRow], anchored: Set[int]
) -> Operation[None]:
    rows = yield from fetch(
        SealedEntries(shard_key=chain.chain_key, from_seal=seals[0].number, through_seal=seals[-1].number)
    )
    by_seal: dict[int, list[SealedEntriesRow]] = {}
    for row in rows:
        by_seal.setdefault(row.seal, []).append(row)
    for seal in seals:
        if seal.number in anchored:
            chain.macs[seal.number] = seal.mac.hex()
        _look_at(chain, result, seal, by_seal.get(seal.number, []))


def _look_at(
    chain: _Chain,
    result: TrailVerification,
    seal: SealsAfterRow,
    rows: Sequence[SealedEntriesRow],
) -> None:
    is_carried = seal.number == result.pruned_seals
    result.add(_seal_findings(chain, seal))
    if not is_carried:
        result.add(_entry_findings(chain.chain_key, seal, rows))
        result.seals += 1
        result.entries += len(rows)
        if seal.key_id == UNKEYED:
            result.unkeyed_seals += 1
            chain.unkeyed.note(seal.number)
        result.first_seal_at = result.first_seal_at or seal.sealed_at
        result.last_seal_at = seal.sealed_at
    chain.number, chain.mac = seal.number, seal.mac
    chain.entries = seal.entries_before + seal.entries


def _seal_findings(chain: _Chain, seal: SealsAfterRow) -> Iterator[Finding]:
    number = seal.number
    # The seal that pruning has kept comes first, under the number up to which it went.
    first_missing = chain.number + 1 if chain.mac is not None else chain.number
    for missing in range(first_missing, number):
        yield Finding("seal_removed", f"Seal {missing} was removed.", missing)
    if chain.mac is not None and number == chain.number + 1 and seal.previous != chain.mac:
        yield Finding(
            "seal_changed",
            f"Seal {number} does not follow seal {chain.number}: one of them was replaced.",
            number,
        )
    if chain.mac is not None and seal.entries_before != chain.entries and number == chain.number + 1:
        yield Finding(
            "seal_changed", f"Seal {number} counts other entries before it than there were.", number
        )
    leaves = split_leaves(seal.leaves)
    if len(leaves) * 32 != len(seal.leaves) or not leaves or merkle_root(leaves) != seal.root:
        yield Finding(
            "seal_changed", f"Seal {number} was changed: its digests of entries have another root.", number
        )
    secret = chain.keys.secret_of(seal.key_id)
    if secret is None:
        yield Finding(
            "seal_unverified",
            f"Seal {number} was made with the key {seal.key_id!r}; {chain.keys.how_to_add}.",
            number,
        )
    elif _link(chain.chain_key, seal).mac(secret) != seal.mac:
        yield Finding("seal_changed", f"Seal {number} was changed: its MAC does not fit.", number)


def _link(chain_key: UUID, seal: SealsAfterRow) -> Link:
    return make_from(Link, seal, chain_key=chain_key, entry_ids=tuple(seal.entry_ids))


def _entry_findings(
    chain_key: UUID,
    seal: SealsAfterRow,
    rows: Sequence[SealedEntriesRow],
) -> Iterator[Finding]:
    leaves, number = split_leaves(seal.leaves), seal.number
    places = {entry_id: place for place, entry_id in enumerate(seal.entry_ids, 1)}
    present = {row.place: row for row in rows}
    stored = {row.entry_id for row in rows}
    for place, entry_id in enumerate(seal.entry_ids, 1):
        row = present.get(place)
        if entry_id not in stored:
            yield Finding("removed", f"Entry {entry_id} was removed.", number, place, entry_id)
        if row is None or place > len(leaves):
            continue
        if row.entry_id == entry_id:
            yield from _content_findings(chain_key, row, leaves[place - 1])
    for row in rows:
        right = places.get(row.entry_id)
        if right is None:
            yield Finding("inserted", f"Entry {row.entry_id} was inserted.", number, row.place, row.entry_id)
        elif right != row.place:
            yield Finding(
                "reordered",
                f"Entry {row.entry_id} stands at place {row.place} and belongs at place {right}.",
                number,
                row.place,
                row.entry_id,
            )


def _content_findings(chain_key: UUID, row: SealedEntriesRow, leaf: bytes) -> Iterator[Finding]:
    where = (row.seal, row.place, row.entry_id)
    if SealedEntry.of(row, row.origin_digest).leaf(chain_key) != leaf:
        yield Finding("changed", f"Entry {row.entry_id} was changed.", *where)
        return
    is_erased = row.subject is not None and row.salt is None
    if row.origin_digest is None:
        problem = None if row.origin is None else "has an origin that was sealed without one"
    elif row.origin is None:
        problem = None if is_erased else "has lost its origin, and its user was not erased"
    elif is_erased:
        problem = "has an origin that cannot be checked: its user's pseudonym is gone"
    else:
        fits = origin_digest(row.salt or b"", row.entry_id, row.origin) == row.origin_digest
        problem = None if fits else "was changed: it has another origin"
    if problem is not None:
        yield Finding("changed", f"Entry {row.entry_id} {problem}.", *where)


def _end_findings(chain: _Chain, recorded_before: int, recorded_after: int) -> Iterator[Finding]:
    for missing in range(chain.number + 1, min(recorded_before, chain.number + MAX_FINDINGS) + 1):
        yield Finding("seal_removed", f"Seal {missing} was removed.", missing)
    if chain.number > recorded_after:
        sentence = f"The chain has {chain.number} seals, and {recorded_after} are recorded for it."
        yield Finding("seal_changed", sentence, chain.number)


def _pruning_findings(chain: _Chain, pruned: int) -> Operation[list[Finding]]:
    if not pruned:
        return []
    recorded = yield from fetch(RecordedPrunings(shard_key=chain.chain_key, through_seal=pruned))
    fitting = [act for act in recorded if act.mac == chain.macs.get(pruned)]
    if any(act.seal is not None for act in fitting):
        return []
    if fitting:
        why = "the act that says that they were pruned is not sealed yet, so it proves nothing"
    elif recorded:
        why = "the act that says that they were pruned names another seal than the present one"
    else:
        why = "no act in the trail says that they were pruned"
    return [Finding("pruned_unrecorded", f"The seals up to {pruned} are gone, and {why}.", pruned)]


def _unkeyed_findings(chain: _Chain, anchors: Sequence[Anchor]) -> Iterator[Finding]:
    """Seals without a key, where there are keys.

    An anchor that fits vouches for its seal and all before it, since each seal covers the one before.
    """
    if not chain.keys.secrets:
        return
    vouched = max((one.seal for one in anchors if chain.macs.get(one.seal) == one.mac), default=0)
    for seal, sentence in chain.unkeyed.sentences_after(vouched):
        yield Finding("seal_unkeyed", sentence, seal)


def _anchor_findings(
    chain: _Chain, row: ChainOfRow, anchors: Sequence[Anchor], result: TrailVerification
) -> Iterator[Finding]:
    for anchor in anchors:
        mac = chain.macs.get(anchor.seal)
        if mac == anchor.mac:
            result.anchors += 1
        elif mac is not None:
            yield Finding("anchor", f"Seal {anchor.seal} is not the one that was anchored.", anchor.seal)
        elif anchor.seal <= row.pruned_seals:
            result.pruned_anchors += 1
        else:
            yield Finding("anchor", f"Seal {anchor.seal} was anchored, and is not in the chain.", anchor.seal)


# More namespaces than a database holds.
_ALL = 10_000_000


def verify_trails(
    keys: SealKeys, anchors: Sequence[Anchor] = (), namespace: str | None = None
) -> Operation[list[TrailVerification]]:
    """Verify the trail of one namespace, or of all; then each key of a trail that belongs to no namespace.

    Args:
        anchors: anchors that were kept elsewhere; of a namespace whose whole chain is gone, only they tell.
    """
    names, unknown = yield from find_trails(anchor.namespace for anchor in anchors)
    chosen = sorted(names) if namespace is None else [namespace]
    results = []
    for name in chosen:
        mine = [anchor for anchor in anchors if anchor.namespace == name]
        results.append((yield from verify_trail(name, keys, mine)))
    for key in sorted(unknown.difference(map(audit_chain_key, chosen))):
        sentence = f"Seals or entries stand under the key {key}, which is that of no namespace known here."
        results.append(TrailVerification(str(key), findings=[Finding("name", sentence)]))
    return results


def find_trails(also: Iterable[str] = ()) -> Operation[tuple[set[str], set[UUID]]]:
    """Namespaces that may have a trail, and ``also``; and the keys of trails that are of none of them."""
    stored = {row.shard_key for row in (yield from fetch(KeysOfTrails()))}
    names = {*also, *(row.namespace for row in (yield from audited_namespaces()))}
    names |= {row.namespace for row in (yield from fetch(UnsealedNamespaces(limit=_ALL)))}
    known = {row.namespace for row in (yield from fetch(KnownNamespaces(limit=_ALL)))}
    names |= {name for name in known if audit_chain_key(name) in stored}
    return names, stored.difference(map(audit_chain_key, names))


def anchor_trails(namespaces: Iterable[str]) -> Operation[list[Anchor]]:
    """The present ends of the chains of these namespaces, found by their keys; of each that has a seal."""
    names = {audit_chain_key(name): name for name in namespaces}
    return [
        Anchor(names[row.shard_key], row.seals, row.entries, row.mac.hex(), row.sealed_at)
        for row in (yield from fetch(ChainEnds(shard_keys=list(names))))
        if row.mac is not None and row.sealed_at is not None
    ]
