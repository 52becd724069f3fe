"""What ``strandline encryption`` prints under ``--json``."""

from __future__ import annotations

from datetime import datetime

from strandline.pipelines.sealing.checking import KekState
from strandline.schemas.wire.report import Report


class KekReport(Report):
    """A key that wraps data keys of a namespace.

    ``is_in_keyring``: whether this process has the key that wrapped them.  ``state`` says more: ``ok``,
    ``missing``, or ``wrong`` if another key has its id, or it cannot be asked; ``problem`` says why.
    """

    key_id: str
    data_keys: int
    is_in_keyring: bool
    state: KekState
    problem: str | None = None


class EncryptedNamespaceReport(Report):
    """How far one namespace is encrypted.

    ``state`` is ``on`` if every row of every owner is sealed under the owner's newest data key, else
    ``sealing``.  ``unsettled`` counts owners of unknown state, ``old_data_keys`` data keys that
    are kept until no process can have used them any more.
    """

    namespace: str
    state: str
    key_id: str
    vectors: str
    enabled_at: datetime
    owners: int
    unsettled: int
    old_data_keys: int
    keys: list[KekReport]


class EncryptionReport(Report):
    """Every encrypted namespace, and the ids of the keys in this process's keyring."""

    keyring: list[str]
    namespaces: list[EncryptedNamespaceReport]


class ResealReport(Report):
    """One pass: see ``EncryptedNamespaceReport``; ``waiting`` owners can be settled later.

    Of ``failed`` owners a row or a key does not open; the log names them.
    """

    namespace: str
    owners: int
    rows: int
    settled: int
    waiting: int
    failed: int
    retired: int


class RotateReport(Report):
    """How many data keys were wrapped again, or made, and by which key."""

    namespace: str
    key_id: str
    rewrapped: int
    renewed: int


class RetireReport(Report):
    """Whether a key can be removed from the keyring, and the data keys that it still wraps."""

    key_id: str
    can_be_removed: bool
    data_keys: dict[str, int]
