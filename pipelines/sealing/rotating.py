"""Rotates keys: the key that wraps is replaced by wrapping again, a data key by sealing everything again."""

from __future__ import annotations

from collections.abc import Iterator

from strandline.pipelines.sealing.enabling import encryption_act, find_encryption
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.paging import pages
from strandline.schemas.queries.application.sealing import KeysOfNamespace, RewrapDataKey
from strandline.schemas.sealed.content import SealedContent, unwrap_secret, wrap_secret
from strandline.schemas.sealing.owner_keys import renew_data_key

PAGE = 200


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
