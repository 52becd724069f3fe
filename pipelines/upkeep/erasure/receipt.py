"""The receipt of an erasure: the deletions, their time, the final checks, and the exceptions.

It names the owner by the key alone.  The signature covers its bytes in one form (keys in order, no spaces),
after a line with the kind of document: no other signature by the same key can pass for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from strandline.schemas.errors import ConfigurationError
from strandline.schemas.wire.erasures import ReceiptReport

VERSION = 1
KINDS = ("user", "session", "readmission")
_HEADING = b"strandline erasure receipt v1\n"

# Out of an erasure's reach, in every receipt.
NOT_COVERED = (
    "Backups, dumps and base backups made before the fence; write-ahead log, archived or not, of before it;"
    " replicas that lag behind, until they have replayed it. Repeat the erasure after a restore:"
    " strandline erasures reapply.",
    "Freed space of the tables and indexes until Postgres uses it again; file systems and disks below it.",
    "Prompts that the providers of models and embeddings were sent, and have kept.",
    "Acts in the audit trail, sealed or not yet, in which this user, as an actor, changed the data of others,"
    " with the origins (addresses) of these acts.",
    "Logs of Postgres, of the application and of the operator, and files that commands were redirected to.",
    "Memory of running processes until their next read, or their end.",
)


class Signer(Protocol):
    """Signs receipts; ``pipelines.upkeep.erasure.signing`` has the one by Ed25519."""

    @property
    def key_id(self) -> str: ...

    def sign(self, message: bytes) -> str: ...


class Verifier(Protocol):
    """Verifies signatures by a public key."""

    @property
    def key_id(self) -> str: ...

    def verify(self, message: bytes, signature: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class ReaderCheck:
    """One reader's check of the target after the erasure.

    Attributes:
        reader: ``history``, ``get``, ``search``, ``explain``, ``facts``, ``export``, ``directory`` or
            ``catalog``; or the name of a place outside.
        looked_at: how many sessions, queries or tables were asked for.
        remaining: how much was still found; 0, or the erasure is not finished.
    """

    reader: str
    looked_at: int
    remaining: int


@dataclass(frozen=True, slots=True)
class ErasureReceipt:
    """An erasure, or a readmission (``kind``), as it is proved to others.

    Attributes:
        owner_key: the digest of namespace and user (or session), by which the owner is kept away.
        scope_key: the same again, or the digest of the one session.
        fence: where the fence stands: its table, and its key.
        counts: deleted rows, by table.
        kept: remaining data, with its keys.
        checks: the readers' checks afterwards.
        not_covered: data out of its reach.
        signature: of the rest, by the key ``key_id``; None where no key was given.
    """

    kind: str
    erasure_id: UUID
    number: int
    namespace: str
    owner_key: UUID
    scope_key: UUID
    requested_at: datetime
    finished_at: datetime
    release: str
    fence: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    checks: Sequence[ReaderCheck] = ()
    not_covered: Sequence[str] = NOT_COVERED
    version: int = VERSION
    key_id: str | None = None
    signature: str | None = None

    @property
    def is_signed(self) -> bool:
        return self.signature is not None

    def signed_bytes(self) -> bytes:
        """The signed bytes: everything but the signature."""
        fields = {name: value for name, value in _plain(self).items() if name != "signature"}
        return _HEADING + json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()

    def to_json(self) -> str:
        """One line, as it is stored and written to files."""
        return json.dumps(_plain(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ErasureReceipt:
        """Read a receipt as ``to_json`` writes it, byte for byte: there is one spelling of each.

        Raises:
            ConfigurationError: it is not one, it is spelt otherwise, or it is of a later version.
        """
        try:
            fields = ReceiptReport.model_validate_json(text, strict=True).model_dump()
            fields["checks"] = tuple(ReaderCheck(**check) for check in fields["checks"])
            fields["not_covered"] = tuple(fields["not_covered"])
            receipt = cls(**fields)
        except (ValueError, TypeError) as error:
            raise ConfigurationError("This is not the receipt of an erasure.") from error
        if receipt.version != VERSION:
            raise ConfigurationError(
                f"The receipt is of version {receipt.version}; this release reads version {VERSION}."
            )
        if receipt.to_json() != text:
            raise ConfigurationError(
                "The receipt is not spelt as it was written: a space, a field, a number or a letter differs."
            )
        if receipt.kind not in KINDS or receipt.finished_at.tzinfo is None:
            raise ConfigurationError("This is not the receipt of an erasure.")
        return receipt


def _plain(receipt: ErasureReceipt) -> dict[str, Any]:
    fields = asdict(receipt)
    for name in ("erasure_id", "owner_key", "scope_key"):
        fields[name] = str(fields[name])
    for name in ("requested_at", "finished_at"):
        fields[name] = fields[name].isoformat()
    fields["checks"] = list(fields["checks"])
    fields["not_covered"] = list(fields["not_covered"])
    return fields
