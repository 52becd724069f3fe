"""Seals the audit trail to its end."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.pipelines.audit.anchors import Anchor
from strandline.pipelines.audit.keys import SealKeys
from strandline.pipelines.audit.sealing import seal_once
from strandline.schemas.postgres.operations import Operation


def seal_all(keys: SealKeys) -> Operation[Sequence[Anchor]]:
    """Seal pass after pass until one finds nothing to do; returns the newest end of each chain."""
    newest: dict[str, Anchor] = {}
    while (done := (yield from seal_once(keys))).entries:
        newest.update({anchor.namespace: anchor for anchor in done.anchors})
    return tuple(newest.values())
