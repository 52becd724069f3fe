"""The digests of the audit trail: of an entry, of a Merkle tree over entries, and of the chain of seals.

The tree is that of RFC 6962: leaves and nodes have different prefixes, so that none passes for the other.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

from strandline.schemas.queries.audit.audit import ReadUnsealedRow, SealedEntriesRow

DIGEST_BYTES = 32
FIRST = bytes(DIGEST_BYTES)
"""The predecessor of a chain's first seal."""

_FORM = "strandline audit 1"
# Made once: json.dumps makes one for each entry, which takes as long as to encode it.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SealedEntry:
    """An entry as a seal covers it; the origin by its digest, so that erasure can take it away."""

    entry_id: UUID
    act: str
    actor: str | None
    origin_digest: bytes | None
    subject: UUID | None
    session: UUID | None
    seq: int | None
    count: int | None
    detail: str | None
    flags: tuple[str, ...]
    created_at: datetime

    @classmethod
    def of(cls, row: ReadUnsealedRow | SealedEntriesRow, origin_digest: bytes | None) -> SealedEntry:
        """A row of the trail as its seal covers it."""
        return cls(
            row.entry_id,
            row.act,
            row.actor,
            origin_digest,
            row.subject,
            row.session,
            row.seq,
            row.amount,
            row.detail,
            tuple(row.flags),
            row.created_at,
        )

    def leaf(self, chain_key: UUID) -> bytes:
        """The digest of the entry in a namespace's chain."""
        fields = [
            _FORM,
            str(chain_key),
            str(self.entry_id),
            self.act,
            self.actor,
            None if self.origin_digest is None else self.origin_digest.hex(),
            _text(self.subject),
            _text(self.session),
            self.seq,
            self.count,
            None if self.detail is None else json.loads(self.detail),
            list(self.flags),
            microseconds(self.created_at),
        ]
        return sha256(b"\x00" + _encode(fields).encode()).digest()


@dataclass(frozen=True, slots=True)
class Link:
    """The content of a seal's MAC."""

    chain_key: UUID
    number: int
    entries: int
    entries_before: int
    entry_ids: tuple[UUID, ...]
    root: bytes
    previous: bytes
    key_id: str
    sealed_at: datetime

    def mac(self, secret: bytes) -> bytes:
        """The MAC under a key; without a secret (``none``) anyone can make it."""
        fields = [
            _FORM,
            str(self.chain_key),
            self.number,
            self.entries,
            self.entries_before,
            sha256(b"".join(one.bytes for one in self.entry_ids)).hexdigest(),
            self.root.hex(),
            self.previous.hex(),
            self.key_id,
            microseconds(self.sealed_at),
        ]
        return hmac.digest(secret, _encode(fields).encode(), "sha256")


def origin_digest(salt: bytes, entry_id: UUID, origin: str) -> bytes:
    """The digest of an origin; the salt is the subject's secret, against guessing."""
    return sha256(b"origin" + len(salt).to_bytes(2, "big") + salt + entry_id.bytes + origin.encode()).digest()


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The root of the tree over leaves, of which there is at least one."""
    level = list(leaves)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
        level = above + level[len(level) - len(level) % 2 :]
    return level[0]


def split_leaves(leaves: bytes) -> list[bytes]:
    """Leaves as they are stored, one behind the other; of a length that fits none, the rest is left out."""
    whole = len(leaves) - len(leaves) % DIGEST_BYTES
    return [leaves[start : start + DIGEST_BYTES] for start in range(0, whole, DIGEST_BYTES)]


def microseconds(moment: datetime) -> int:
    """A moment as Postgres counts it, in whole microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def _text(key: UUID | None) -> str | None:
    return None if key is None else str(key)
