"""Encrypted namespaces: their state, the sealing of their content, and their keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from strandline.pipelines.older_transactions import older_have_ended
from strandline.pipelines.sealing.enabling import change_key, enable, find_encryption, prepare_owners
from strandline.pipelines.sealing.resealing import Pace, Progress, reseal_namespace, retire_old_keys
from strandline.pipelines.sealing.rotating import KekState, check_keks, renew_data_keys, rewrap_keys
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, DatabaseBusyError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.application.sealing import EncryptionStatus, KeksInUse
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.wire.report import Report

# Between two passes that wait until all is sealed.
PASS_SECONDS = 2.0
# For how long open transactions are waited for before a key is retired.
OPEN_SECONDS = 10.0


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
    are kept until every process has stopped using them.
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


class RotateReport(Report):
    """How many data keys were wrapped again, or made, and by which key."""

    namespace: str
    key_id: str
    rewrapped: int
    renewed: int


@dataclass(frozen=True, slots=True)
class Encryption:
    """The encryption of a database's namespaces: its pool, and what seals and opens its content."""

    database: Database
    content: SealedContent

    @classmethod
    def of(cls, database: Database) -> Encryption:
        """Raises ConfigurationError if the database was opened without a keyring."""
        if not isinstance(database.content, SealedContent):
            raise ConfigurationError("This database was opened without a keyring.")
        return cls(database, database.content)

    def status(self, namespace: str | None = None) -> list[EncryptedNamespaceReport]:
        """Every encrypted namespace, or one, with the keys that wrap its data keys."""
        keks: dict[str, list[KekReport]] = {}
        for one in check_keks(self.database, self.content, namespace):
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
            for row in self.database.fetch(EncryptionStatus(namespace=namespace))
        ]

    def enable(self, namespace: str, key_id: str, vectors: str, tell: Callable[[int], None]) -> bool:
        """Encrypt a namespace; ``tell`` gets the number of owners with new keys.

        Returns whether it was not encrypted before.
        """
        is_new = enable(self.database, self.content, namespace, key_id, vectors)
        owners = 0
        for keys in prepare_owners(self.database, self.content, namespace):
            owners += keys
            tell(owners)
        return is_new

    def reseal(
        self, namespace: str, cache_seconds: float, pace: Pace, *, wait: bool
    ) -> Iterator[tuple[Progress, bool]]:
        """Seal rows in clear or under former data keys, with ``wait`` until none is left.

        Yields the progress after each page of rows, and at the end; with True where it waits for owners.

        Args:
            cache_seconds: for how long running processes may use former keys.

        Raises:
            NotFoundError: the namespace is not encrypted.
        """
        find_encryption(self.database, namespace)
        rows = 0
        while True:
            progress = Progress()
            for _keys in prepare_owners(self.database, self.content, namespace):
                pass
            for progress in reseal_namespace(
                self.database, self.content, namespace, cache_seconds=cache_seconds, pace=pace
            ):
                yield replace(progress, rows=rows + progress.rows), False
            rows = progress.rows = rows + progress.rows
            if not (wait and progress.waiting):
                break
            yield progress, True
            time.sleep(PASS_SECONDS)
        progress.retired = retire_old_keys(self.database, self.content, namespace, pace=pace)
        yield progress, False

    def rotate(
        self, namespace: str, key_id: str | None, tell: Callable[[str, int], None], *, data: bool
    ) -> RotateReport:
        """Wrap all data keys with another key, or with ``data`` give each owner a new one.

        ``tell`` gets the name of a count, and its number so far.
        """
        rewrapped = renewed = 0
        if key_id is not None:
            change_key(self.database, self.content, namespace, key_id)
            for keys in rewrap_keys(self.database, self.content, namespace):
                rewrapped += keys
                tell("data key", rewrapped)
        if data:
            for keys in renew_data_keys(self.database, self.content, namespace):
                renewed += keys
                tell("new data key", renewed)
        present = find_encryption(self.database, namespace).kek_id
        return RotateReport(namespace=namespace, key_id=present, rewrapped=rewrapped, renewed=renewed)

    def namespaces_wrapped_by(self, key_id: str) -> dict[str, int]:
        """How many data keys of each namespace a key wraps; for none, no open transaction may add some.

        Raises:
            DatabaseBusyError: a transaction is open that may.
        """
        used = self._users_of(key_id)
        if not used and not older_have_ended(self.database, OPEN_SECONDS):
            raise DatabaseBusyError(
                f"A transaction is open that may hold data keys wrapped by {quote(key_id)}, so the key must"
                " stay. End the transaction (see pg_stat_activity and pg_prepared_xacts), and repeat the"
                " command."
            )
        return used or self._users_of(key_id)

    def _users_of(self, key_id: str) -> dict[str, int]:
        rows = self.database.fetch(KeksInUse(namespace=None))
        return {row.namespace: row.data_keys for row in rows if row.kek_id == key_id}
