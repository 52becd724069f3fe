"""Bulk import: puts existing history into a session by COPY, and flushes it under the cause ``import``.

One transaction per call: the messages are copied into a temporary table, and put from there by the function
that every put uses; so ids, marks and bad input are treated as everywhere.  Messages that are stored already
are not added again, so an import that was interrupted is simply run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from strandline.pipelines.flush.flush import Flushed, flush_at_put
from strandline.producers.writing.put import PutRequest, read_result, send_put, session_record
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import Operation, Run, claim_owner_keys, fetch
from strandline.schemas.queries.conversation.messages import (
    CopyImport,
    KnownMessages,
    KnownMessagesRow,
    MakeImportTable,
    PutImported,
)
from strandline.schemas.queries.rows import PutRow
from strandline.schemas.values.labels import as_array

# A row of the table that is copied to.
_Copied = tuple[object, ...]

# In one call, which is one transaction, unless a put may have more.
MAX_MESSAGES_PER_IMPORT = 10_000


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of one call: messages stored before (``known``), those added, and the flush, if any.

    ``differing``: ids of known messages whose content here is another; it stays as it is.
    """

    known: int
    added: int
    flushed: Flushed | None = None
    differing: tuple[str, ...] = ()


def import_messages(database: Database, request: PutRequest) -> Imported:
    """Put the messages of ``request``, however many, in one transaction, and then flush; raises as a put."""
    return database.run(_import(database, request))


def _import(database: Database, request: PutRequest) -> Operation[Imported]:
    stored = yield from _look_up(request)
    known, total = stored.messages, len(request.messages)
    if known == total:
        return Imported(known, 0, differing=tuple(stored.differing))
    tokens = [request.rules.count(one.source) for one in request.messages]
    row = yield from send_put(request, partial(_send, database, tokens))
    _, window = yield from read_result(request.identity, row)
    flushed = None
    if window is not None:
        flushed = yield from flush_at_put(request.identity.keys, window, cause="import")
    return Imported(known, total - known, flushed)


def _look_up(request: PutRequest) -> Operation[KnownMessagesRow]:
    identity = request.identity
    ids = [message.id for message in request.messages]
    digests = [message.digest for message in request.messages]
    asked = partial(KnownMessages, **identity.keys, ids=ids, digests=digests)
    (known,) = yield from fetch(asked(keyed_digests=digests))
    if known.differing:
        keys = yield from claim_owner_keys(identity.namespace, identity.shard_key, anew=True)
        if keys is not None:
            (known,) = yield from fetch(asked(keyed_digests=[keys.digest(one) for one in digests]))
    return known


def _send(database: Database, tokens: Sequence[int], request: PutRequest, claimed: bool) -> Operation[PutRow]:
    row: PutRow = yield Run(partial(_copy, database, tokens, request, claimed))
    return row


def _copy(database: Database, tokens: Sequence[int], request: PutRequest, claimed: bool) -> PutRow:
    session = session_record(request.identity, request.policy)
    with database.transaction() as transaction:
        transaction.fetch(MakeImportTable())
        transaction.copy(CopyImport(), _rows(request, tokens))
        (answer,) = transaction.fetch(
            PutImported(
                **request.identity.keys,
                claimed=claimed,
                session=session,
                data_key=min(message.data_key for message in request.messages),
                act=request.act_json,
            )
        )
        return answer


def _rows(request: PutRequest, tokens: Sequence[int]) -> Iterator[_Copied]:
    for place, message in enumerate(request.messages):
        yield (
            place,
            message.id,
            message.role,
            tokens[place],
            message.size,
            message.digest,
            message.envelope,
            message.metadata,
            message.created_at,
            message.calls,
            message.answers,
            as_array(message.labels_in(request.identity.session_key)),
        )
