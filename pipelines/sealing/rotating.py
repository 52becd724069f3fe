"""Rotates keys by wrapping or sealing again, and checks that the keyring holds those that wrapped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from strandline.pipelines.sealing.enabling import encryption_act, find_encryption
from strandline.schemas.errors import KeyUnavailableError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.paging import pages
from strandline.schemas.queries.application.sealing import (
    KekSamples,
    KeksInUse,
    KeysOfNamespace,
    RewrapDataKey,
)
from strandline.schemas.sealed.content import SealedContent, names_encrypted, unwrap_secret, wrap_secret
from strandline.schemas.sealing.owner_keys import renew_data_key

PAGE = 200
KekState = Literal["ok", "missing", "wrong"]


def rewrap_keys(database: Database, content: SealedContent, namespace: str) -> Iterator[int]:
    """Wrap every data key of a namespace with its present key; yields how many, page by page.

    Raises:
        KeyUnavailableError: a key is missing from the keyring, the former one among them.
    """
    rewrapped = 1
    while rewrapped:  # until a pass over all of them finds none
        rewrapped = 0
        present = find_encryption(database, namespace)
        content.check_key(namespace, present)
        for rows in pages(database, KeysOfNamespace, namespace=namespace, limit=PAGE):
            former = [row for row in rows if row.kek_id != present.kek_id]
            for row in former:
                secret = unwrap_secret(content.keyring, namespace, row.shard_key, row.kek_id, row.wrapped)
                wrapped = wrap_secret(content.keyring, namespace, row.shard_key, present.kek_id, secret)
                database.fetch(
                    RewrapDataKey(
                        shard_key=row.shard_key,
                        number=row.number,
                        namespace=namespace,
                        kek_id=present.kek_id,
                        wrapped=wrapped,
                        old_kek_id=row.kek_id,
                    )
                )
            rewrapped += len(former)
            yield len(former)


def renew_data_keys(database: Database, content: SealedContent, namespace: str) -> Iterator[int]:
    """Give every owner of a namespace a further data key; yields how many, page by page.

    New content is sealed with it as soon as a process asks for the keys again; existing content follows
    (``resealing.py``).  An owner whose newest key is not settled is left out: its rotation is under way, or
    was stopped, and continues with that key.

    Raises:
        KeyUnavailableError: the keyring cannot unwrap or wrap.
    """
    present = find_encryption(database, namespace)
    content.check_key(namespace, present)
    database.fetch(encryption_act(namespace, step="renew_data_keys"))
    for rows in pages(database, KeysOfNamespace, namespace=namespace, limit=PAGE):
        newest = [row for row in rows if row.is_newest and row.is_settled]
        for row in newest:
            secret = unwrap_secret(content.keyring, namespace, row.shard_key, row.kek_id, row.wrapped)
            database.run(
                content.make_keys(
                    namespace,
                    row.shard_key,
                    present,
                    secret=renew_data_key(secret),
                    number=row.number + 1,
                )
            )
            content.cache.forget(row.shard_key)
        yield len(newest)


@dataclass(frozen=True, slots=True)
class CheckedKek:
    """A key that wraps a namespace's data keys, or will: ``ok``, ``wrong`` or ``missing``, and the remedy."""

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
