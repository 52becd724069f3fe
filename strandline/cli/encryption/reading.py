"""Reads how far namespaces are encrypted, for the command and for the doctor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.cli.encryption.reports import EncryptedNamespaceReport, KekReport
from strandline.cli.servers.targets import opened_database
from strandline.pipelines.sealing.checking import check_keks
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.application.sealing import EncryptionStatus
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.settings import Settings

Opened = tuple[Database, SealedContent]


@contextmanager
def open_encryption(settings: Settings) -> Iterator[Opened]:
    """The configured database, and what seals and opens its content."""
    with opened_database(settings) as database:
        if not isinstance(database.content, SealedContent):
            raise ConfigurationError("This database was opened without a keyring.")
        yield database, database.content


def read_encryption(
    database: Database, content: SealedContent, namespace: str | None = None
) -> list[EncryptedNamespaceReport]:
    """Every encrypted namespace, or one, with the keys that wrap its data keys."""
    keks: dict[str, list[KekReport]] = {}
    for one in check_keks(database, content, namespace):
        kek = KekReport.of(one, is_in_keyring=one.state == "ok")
        keks.setdefault(one.namespace, []).append(kek)
    return [
        EncryptedNamespaceReport.of(
            row,
            state="sealing" if row.unsettled else "on",
            key_id=row.kek_id,
            old_data_keys=row.old_keys,
            keys=keks.get(row.namespace, []),
        )
        for row in database.fetch(EncryptionStatus(namespace=namespace))
    ]
