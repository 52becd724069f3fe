"""Enables encryption for a namespace: gives its owners keys, and has its sessions take sealed messages only.

New sessions are sealed as soon as the namespace's row is committed (``claim_session``, ``put_v1``).  Sessions
that exist are marked page by page, each after its owner has keys; their content is sealed afterwards
(``resealing.py``).  Each step can be repeated, and resumes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from strandline.pipelines.audit.appending import Act, append_query
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, ServerLimitError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.paging import pages
from strandline.schemas.queries.application.sealing import (
    ChangeEncryption,
    EnableEncryption,
    FactOwnersToSeal,
    FindEncryption,
    FindEncryptionRow,
    OwnersWithoutKeys,
    SealSessions,
    SessionsToSeal,
)
from strandline.schemas.queries.audit.audit import AppendAct
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.values.identity import adapter_items_key, identify_session, item_store_key

PAGE = 500
# The adapters that keep items of their own in a namespace.
ITEM_ADAPTERS = ("agno_1",)


def enable(database: Database, content: SealedContent, namespace: str, kek_id: str, vectors: str) -> bool:
    """Seal a namespace's content from now on; False if it was enabled before.

    The owners and sessions that exist follow with ``prepare_owners``.

    Raises:
        KeyUnavailableError: the keyring cannot wrap with that key, or unwrap again.
        ConfigurationError: the namespace is enabled with another key or another choice of vectors.
    """
    probe = content.probe_key(kek_id)
    enabling = EnableEncryption(namespace=namespace, kek_id=kek_id, probe=probe, vectors=vectors)
    with database.transaction() as tx:
        added = tx.fetch(enabling)
        if added:
            tx.fetch(encryption_act(namespace, step="enable", key=kek_id, vectors=vectors))
    content.cache.forget()
    if added:
        return True
    known = find_encryption(database, namespace)
    if (known.kek_id, known.vectors) != (kek_id, vectors):
        raise ConfigurationError(
            f"Namespace {quote(namespace)} is encrypted already, with the key {quote(known.kek_id)} and"
            f" vectors {known.vectors!r}. `strandline encryption rotate` changes the key."
        )
    return False


def find_encryption(database: Database, namespace: str) -> FindEncryptionRow:
    """How a namespace is encrypted.

    Raises:
        ConfigurationError: it is not.
    """
    for row in database.fetch(FindEncryption(namespace=namespace)):
        return row
    raise ConfigurationError(
        f"Namespace {quote(namespace)} is not encrypted; `strandline encryption enable` encrypts it."
    )


def change_key(database: Database, content: SealedContent, namespace: str, kek_id: str) -> None:
    """Have the keys of new owners wrapped by another key; existing ones follow (``rotating.py``).

    Raises:
        KeyUnavailableError: the keyring cannot wrap with that key, or unwrap again.
        ConfigurationError: the namespace is not encrypted.
        ServerLimitError: a transaction with keys that the former key wraps stayed open.
    """
    find_encryption(database, namespace)
    probe = content.probe_key(kek_id)
    try:
        with database.transaction() as tx:
            tx.fetch(ChangeEncryption(namespace=namespace, kek_id=kek_id, probe=probe))
            tx.fetch(encryption_act(namespace, step="change_key", key=kek_id))
    except ServerLimitError as error:
        raise ServerLimitError(
            f"An open transaction gave owners of namespace {quote(namespace)} keys that the former key wraps,"
            " so the key was not changed. End that transaction (see pg_stat_activity and pg_prepared_xacts),"
            " and repeat the command."
        ) from error


def encryption_act(namespace: str, **detail: str) -> AppendAct:
    """An encryption act for the audit trail."""
    return append_query(namespace, Act.here("encryption", detail=detail))


def prepare_owners(database: Database, content: SealedContent, namespace: str) -> Iterator[int]:
    """Give every owner of a namespace keys, and mark its sessions; yields how many keys each page made.

    Raises:
        KeyUnavailableError: the keyring cannot wrap.
    """
    row = find_encryption(database, namespace)
    items = [item_store_key(namespace), *(adapter_items_key(namespace, one) for one in ITEM_ADAPTERS)]
    yield _give_keys(database, content, namespace, row, items)
    for rows in pages(database, SessionsToSeal, namespace=namespace, limit=PAGE):
        count = _give_keys(database, content, namespace, row, {one.owner_key for one in rows})
        identities = [identify_session(namespace, one.session_id, one.user_id) for one in rows]
        scopes = database.fetch(
            SealSessions(
                shard_keys=[one.owner_key for one in rows],
                session_keys=[identity.session_key for identity in identities],
            )
        )
        shared = {scope.shared_key for scope in scopes if scope.shared_key is not None}
        yield count + _give_keys(database, content, namespace, row, shared)
    for owners in pages(database, FactOwnersToSeal, namespace=namespace, limit=PAGE):
        yield _give_keys(database, content, namespace, row, [one.shard_key for one in owners])


def _give_keys(
    database: Database,
    content: SealedContent,
    namespace: str,
    row: FindEncryptionRow,
    owners: Iterable[UUID],
) -> int:
    lacking: Sequence[UUID] = [
        one.shard_key for one in database.fetch(OwnersWithoutKeys(shard_keys=sorted(set(owners))))
    ]
    for owner in lacking:
        database.run(content.make_keys(namespace, owner, row))
    return len(lacking)
