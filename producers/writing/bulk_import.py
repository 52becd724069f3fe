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
from strandline.producers.writing.put import PutRequest, check_status, session_record
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.conversation.messages import (
    CopyImport,
    KnownMessages,
    KnownMessagesRow,
    MakeImportTable,
    PutImported,
    PutImportedRow,
)
from strandline.schemas.values.labels import label_array

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
    messages = list(_rows(request))
    answer = _put(database, request, messages, claimed=False)
    if answer.status == "unclaimed":
        database.run(claim_session(request.identity))
        answer = _put(database, request, messages, claimed=True)
    _, window = database.run(check_status(request.identity, answer))
    flushed = None
    if window is not None:
        keys = (request.identity.shard_key, request.identity.session_key)
        flushed = database.run(flush_at_put(*keys, window, cause="import"))
    return Imported(known, total - known, flushed)


def _look_up(database: Database, request: PutRequest) -> KnownMessagesRow:
    ids = [message.id for message in request.messages]
    digests = [message.digest for message in request.messages]
    (known,) = database.fetch(KnownMessages(**request.identity.keys, ids=ids, digests=digests))
    return known


def _put(
    database: Database, request: PutRequest, messages: Sequence[_Copied], *, claimed: bool
) -> PutImportedRow:
    session = session_record(request.identity, request.policy)
    with database.transaction() as transaction:
        transaction.fetch(MakeImportTable())
        transaction.copy(CopyImport(), messages)
        (answer,) = transaction.fetch(PutImported(**request.identity.keys, claimed=claimed, session=session))
        return answer


def _rows(request: PutRequest) -> Iterator[_Copied]:
    for place, message in enumerate(request.messages):
        tokens = count_message(message.source, request.count_text, request.part_tokens)
        yield (
            place,
            message.id,
            message.role,
            tokens,
            message.size,
            message.digest,
            message.envelope,
            message.metadata,
            message.created_at,
            message.calls,
            message.answers,
            label_array(request.identity.session_key, message.metadata),
        )
