"""``Erasures``: erasing and exporting users and sessions, wired to this process's settings and resources."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.pipelines.upkeep.erasure.receipt import ErasureReceipt, ReaderCheck, Signer, Verifier
from strandline.pipelines.upkeep.erasure.records import ErasureRecord, ErasureSummary
from strandline.producers.erasing.beside import Outside
from strandline.producers.erasing.erase import PlannedErasure, ReceiptVerdict
from strandline.producers.namespace_erasures import NamespaceErasures
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.forking import undivided
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.wiring.archives import open_archive
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Pool, runtime_for

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "ErasureReceipt",
    "ErasureRecord",
    "ErasureSummary",
    "Erasures",
    "Outside",
    "PlannedErasure",
    "ReaderCheck",
    "ReceiptVerdict",
    "Signer",
    "Verifier",
    "read_receipts",
    "verifier_of",
]

MAX_RECEIPT_FILE_BYTES = 200_000_000


class Erasures(NamespaceErasures):
    """The erasures of a namespace; see ``NamespaceErasures`` for its methods."""

    @classmethod
    def of_namespace(
        cls,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        key_file: str | Path | None = None,
        outside: Sequence[Outside] = (),
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
    ) -> Erasures:
        """The erasures of a namespace; does no I/O but reading the key.

        Args:
            namespace: the tenant.
            key_file: the private key that signs receipts (PEM, Ed25519); default: that of the settings
                (``STRANDLINE_RECEIPT_KEY_FILE``).  Without one, receipts are not signed.  Its public half
                verifies ``reapply``'s receipts.
            outside: further places to erase in, outside the database; archives of retention are found.
            database_url, pool, schema: as for ``Memory.from_defaults``.

        Raises:
            ConfigurationError: a setting cannot be used, the key cannot be read, or ``cryptography`` is not
                installed.
            InvalidMessageError: ``namespace`` is not a valid name.
        """
        settings = settings_with(database_url=database_url, database_schema=schema)
        resources = runtime_for(settings, pool=pool, consume=None)
        path = settings.receipt_key_file if key_file is None else Path(key_file)
        return cls(
            resources,
            namespace,
            signer=signer_of(settings, key_file),
            verifier=None if path is None else verifier_of(path),
            outside=outside,
            open_archive=open_archive,
        )


def signer_of(settings: Settings, key_file: str | Path | None = None) -> Signer | None:
    """The key of a file, or of the settings; None where there is none.

    Raises:
        ConfigurationError: it cannot be read, or ``cryptography`` is not installed.
    """
    path = settings.receipt_key_file if key_file is None else Path(key_file)
    if path is None:
        return None
    signer: Signer = _load_signing().read_signer(path)
    return signer


def verifier_of(key_file: str | Path) -> Verifier:
    """The public key of a file, to verify receipts with; needs no database.

    Raises:
        ConfigurationError: it cannot be read, or ``cryptography`` is not installed.
    """
    verifier: Verifier = _load_signing().read_verifier(Path(key_file))
    return verifier


def make_receipt_key(path: str | Path) -> str:
    """Write a new key to ``path``, and its public key to ``path`` with ``.pub``; returns the key's id.

    Raises:
        ConfigurationError: a file exists already, or ``cryptography`` is not installed.
    """
    key_id: str = _load_signing().make_key(Path(path))
    return key_id


def read_receipts(path: str | Path) -> list[ErasureReceipt]:
    """The receipts of a file, one on each line.

    Raises:
        ConfigurationError: it cannot be read, or a line is not a receipt.
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            lines = file.read(MAX_RECEIPT_FILE_BYTES).split("\n")
    except (OSError, UnicodeDecodeError):
        raise ConfigurationError(f"{path} cannot be read as UTF-8 text.") from None
    receipts = []
    for number, line in enumerate(lines, 1):
        try:
            if line:
                receipts.append(ErasureReceipt.from_json(line))
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}, line {number}: {error}") from None
    return receipts


def _load_signing() -> ModuleType:
    with undivided:
        try:
            from strandline.pipelines.upkeep.erasure import signing
        except ImportError:
            raise ConfigurationError(
                "Receipts are signed by cryptography, which is not installed; install strandline[erasure]."
            ) from None
    return signing
