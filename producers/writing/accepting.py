"""The short ways to accept one message: the statements that replace ``put``, and where each is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring as quoted

from strandline.producers.writing.validate import PreparedMessage
from strandline.schemas.errors import DatabaseError, DatabaseUnavailableError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.conversation.messages import Put, PutMany, PutOne, PutRow
from strandline.schemas.values.identity import SessionIdentity, key_text


@dataclass(slots=True)
class SinglePut:
    """One message to be put into a session.

    Attributes:
        whole: makes the full statement, which decides if the short ones do nothing.
    """

    identity: SessionIdentity
    message: PreparedMessage
    tokens: int
    whole: Callable[[], Put]

    def one(self) -> PutOne:
        """The statement that accepts it if nothing speaks against it."""
        message = self.message
        return PutOne(
            shard_key=self.identity.shard_key,
            session_key=self.identity.session_key,
            id=message.id,
            role=message.role,
            tokens=self.tokens,
            bytes=message.size,
            digest=message.digest,
            envelope=message.envelope,
            metadata=message.metadata,
            created_at=message.created_at,
            calls=message.calls,
            answers=message.answers,
            labels=message.labels_in(self.identity.session_key),
            sealed=message.is_sealed,
        )


Accept = Callable[[SinglePut], Operation[PutRow]]


def put_whole(put: SinglePut) -> Operation[PutRow]:
    """Accept a message in the caller's transaction, which an error of a shorter statement would end."""
    (row,) = yield from fetch(put.whole())
    return row


def put_quickly(put: SinglePut) -> Operation[PutRow]:
    """Accept a message by the short statement if that suffices."""
    try:
        taken = yield from fetch(put.one())
    except DatabaseUnavailableError:
        raise
    except DatabaseError:
        taken = []  # the id was used before: ``put`` finds it
    if taken:
        return taken_row(taken[0].seq)
    return (yield from put_whole(put))


def taken_row(seq: int) -> PutRow:
    """The row that ``put`` would have returned for an accepted message."""
    return PutRow("ok", None, [seq], None)


def put_many(group: Iterable[SinglePut]) -> PutMany:
    """The statement that accepts one message into each of several sessions."""
    return PutMany(messages=f"[{','.join(map(_record, group))}]")


def _record(put: SinglePut) -> str:
    """One message as a JSON object; fields that are JSON already are inserted as is, NULLs are left out."""
    identity, message = put.identity, put.message
    return (
        f'{{"shard_key":"{key_text(identity.shard_key)}","session_key":"{key_text(identity.session_key)}",'
        f'"id":{quoted(message.id)},"role":"{message.role}","tokens":{put.tokens},'
        f'"bytes":{message.size},'
        f'"digest":"\\\\x{message.digest.hex()}","envelope":{message.envelope}{"".join(_rarer(put))}}}'
    )


def _rarer(put: SinglePut) -> Iterator[str]:
    """The fields that most messages do not have."""
    message = put.message
    if message.metadata is not None:
        yield f',"metadata":{message.metadata}'
        if labels := message.labels_in(put.identity.session_key):
            yield f',"labels":{labels}'
    if message.created_at is not None:
        yield f',"created_at":{quoted(message.created_at.isoformat())}'
    if message.calls is not None:
        yield f',"calls":{message.calls}'
    if message.answers is not None:
        yield f',"answers":{quoted(message.answers)}'
    if message.is_sealed:
        yield ',"sealed":true'
