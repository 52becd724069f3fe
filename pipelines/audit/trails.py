"""Verifies all audit trails: listed by the keys that rows stand under, since names can be changed."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pipelines.audit.anchors import Anchor
from strandline.pipelines.audit.findings import Finding, TrailVerification
from strandline.pipelines.audit.keys import SealKeys
from strandline.pipelines.audit.listing import audited_namespaces
from strandline.pipelines.audit.verifying import verify_trail
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.audit.audit import KeysOfTrails, UnsealedNamespaces
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
    stored = {row.shard_key for row in (yield from fetch(KeysOfTrails()))}
    names = {anchor.namespace for anchor in anchors}
    names |= {row.namespace for row in (yield from audited_namespaces())}
    names |= {row.namespace for row in (yield from fetch(UnsealedNamespaces(limit=_ALL)))}
    known = {row.namespace for row in (yield from fetch(KnownNamespaces(limit=_ALL)))}
    names |= {name for name in known if audit_chain_key(name) in stored}
    chosen = sorted(names) if namespace is None else [namespace]
    results = []
    for name in chosen:
        mine = [anchor for anchor in anchors if anchor.namespace == name]
        results.append((yield from verify_trail(name, keys, mine)))
    for key in sorted(stored - set(map(audit_chain_key, names.union(chosen)))):
        sentence = f"Seals or entries stand under the key {key}, which is that of no namespace known here."
        results.append(TrailVerification(str(key), findings=[Finding("name", sentence)]))
    return results
