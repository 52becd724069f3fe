"""Bulk import: puts existing history into a session by COPY, and flushes it under the cause ``import``.

One transaction per call: the messages are copied into a temporary table, and put from there by the function
that every put uses; so ids, marks and bad input are treated as everywhere.  Messages that are stored already
are not added again, so an import that was interrupted is simply run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from strandline.pipelines.flush.flush import Flushed, flush_at_put
from strandline.producers.sessions import claim_session
from strandline.producers.tokens import count_message
from strandline.producers.writing.put import (
    PutRequest,
    check_status,
    seal_request,
    session_record,
    with_stored_digests,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import claim_owner_keys
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

# In one call, which is one transaction.
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
    """Put the messages of ``request``, however many, in one transaction; then flush.

    Raises:
        ConflictError: some are new, and an id was already used with different content; nothing of this call
            was stored.
        OwnerError: the session belongs to another owner.
        UnknownPipelineError: a memory block needs a pipeline that no worker has registered.
        DatabaseUnavailableError: Postgres cannot be reached; safe to repeat.
    """
    stored = _look_up(database, request)
    known, total = stored.messages, len(request.messages)
    if known == total:
        return Imported(known, 0, differing=tuple(stored.differing))
    answer = _put_whole(database, request)
    _, window = database.run(check_status(request.identity, answer))
    flushed = None
    if window is not None:
        keys = (request.identity.shard_key, request.identity.session_key)
        flushed = database.run(flush_at_put(*keys, window, cause="import"))
    return Imported(known, total - known, flushed)


def _look_up(database: Database, request: PutRequest) -> KnownMessagesRow:
    ids = [message.id for message in request.messages]
    digests = [message.digest for message in request.messages]
    (known,) = database.fetch(
        KnownMessages(**request.identity.keys, ids=ids, digests=digests, keyed_digests=digests)
    )
    if not known.differing:
        return known
    namespace, shard_key = request.identity.namespace, request.identity.shard_key
    keys = database.run(claim_owner_keys(namespace, shard_key, anew=True))
    if keys is None:
        return known
    keyed = [keys.digest(digest) for digest in digests]
    (known,) = database.fetch(
        KnownMessages(**request.identity.keys, ids=ids, digests=digests, keyed_digests=keyed)
    )
    return known


def _put_whole(database: Database, request: PutRequest) -> PutRow:
    tokens = [count_message(m.source, request.count_text, request.part_tokens) for m in request.messages]
    sealed = database.run(seal_request(request))
    answer = _put(database, sealed, tokens, claimed=False)
    if answer.status == "unclaimed":
        database.run(claim_session(request.identity))
        sealed = database.run(seal_request(request))
        answer = _put(database, sealed, tokens, claimed=True)
    if answer.status == "sealed":
        sealed = database.run(seal_request(request, is_needed=True))
        answer = _put(database, sealed, tokens, claimed=True)
    if answer.status == "conflict" and sealed is not request:
        sealed = database.run(with_stored_digests(request, sealed))
        answer = _put(database, sealed, tokens, claimed=True)
    return answer


def _put(database: Database, request: PutRequest, tokens: Sequence[int], *, claimed: bool) -> PutRow:
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
