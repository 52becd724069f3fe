"""Verifies and anchors all audit trails: by the keys that rows stand under, since names can be changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from strandline.pipelines.audit.anchors import Anchor
from strandline.pipelines.audit.findings import Finding, TrailVerification
from strandline.pipelines.audit.keys import SealKeys
from strandline.pipelines.audit.listing import audited_namespaces
from strandline.pipelines.audit.verifying import verify_trail
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.audit.audit import ChainEnds, KeysOfTrails, UnsealedNamespaces
from strandline.schemas.queries.conversation.sessions import KnownNamespaces
from strandline.schemas.values.identity import audit_chain_key

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
