"""Checks that the keyring holds the keys that wrapped stored ones: a key id alone says little."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from strandline.schemas.errors import KeyUnavailableError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.application.sealing import KekSamples, KeksInUse
from strandline.schemas.sealed.content import SealedContent, names_encrypted, unwrap_secret

KekState = Literal["ok", "missing", "wrong"]


@dataclass(frozen=True, slots=True)
class CheckedKek:
    """A key that wraps data keys of a namespace, or will wrap those of its new owners.

    Attributes:
        data_keys: how many it wraps.
        state: ``ok`` if it unwraps them; else ``wrong`` where the keyring names it, or ``missing``.
        problem: why it is not ``ok``, and the remedy.
    """

    namespace: str
    key_id: str
    data_keys: int
    state: KekState
    problem: str | None = None


def check_keks(
    database: Database, content: SealedContent, namespace: str | None = None
) -> Iterator[CheckedKek]:
    """Each key in use, of a namespace or of all, tried on its wrapped keys.

    Raises:
        ConfigurationError: no keyring can be opened.
    """
    held = set(content.keyring.key_ids())
    for row in database.fetch(KeksInUse(namespace=namespace)):
        problem = _find_problem(database, content, row.namespace, row.kek_id)
        state: KekState = "ok"
        if problem is not None:
            state = "wrong" if row.kek_id in held else "missing"
        yield CheckedKek(row.namespace, row.kek_id, row.data_keys, state, problem)


def _find_problem(database: Database, content: SealedContent, namespace: str, kek_id: str) -> str | None:
    for sample in database.fetch(KekSamples(kek_id=kek_id, namespace=namespace)):
        try:
            unwrap_secret(content.keyring, sample.namespace, sample.shard_key, kek_id, sample.wrapped)
        except KeyUnavailableError as error:
            # The probe belongs to no namespace, so its error names none.
            return str(error) if sample.namespace else f"{names_encrypted(namespace)} {error}"
    return None
