"""The short ways to accept one message: the statements that replace ``put``, and where each is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring as quoted

from strandline.pipelines.audit.appending import Act
from strandline.producers.writing.recorded import looks_recorded, note_recorded
from strandline.producers.writing.validate import PreparedMessage
from strandline.schemas.errors import DatabaseError, DatabaseUnavailableError
from strandline.schemas.postgres.operations import Operation, fetch
from strandline.schemas.queries.audit.audit import PutManyRecorded, PutOneRecorded
from strandline.schemas.queries.conversation.messages import Put, PutMany, PutOne
from strandline.schemas.queries.rows import PutRow
from strandline.schemas.values.identity import SessionIdentity, key_text


@dataclass(slots=True)
class SinglePut:
    """One message to be put into a session.

    Attributes:
        whole: makes the full statement, which decides if the short ones do nothing.
        act: makes the act for the audit trail; None: what this is part of is recorded.
        is_change: whether the act is recorded at level ``changes`` as well, as one with flags is.
    """

    identity: SessionIdentity
    message: PreparedMessage
    tokens: int
    whole: Callable[[], Put]
    act: Callable[[], Act] | None = None
    is_change: bool = False

    @property
    def is_to_record(self) -> bool:
        """Whether the short statement is to be the one that records the act."""
        return self.act is not None and (self.is_change or looks_recorded(self.identity.namespace))

    def note(self, is_recorded: bool | None) -> None:
        """Learn from whether it was recorded; a change says nothing about other puts."""
        if self.act is not None and not self.is_change:
            note_recorded(self.identity.namespace, is_recorded)

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
            data_key=message.data_key,
        )

    def one_recorded(self) -> PutOneRecorded:
        """The same, with the act."""
        message, act = self.message, self._act()
        return PutOneRecorded(
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
            data_key=message.data_key,
            entry_id=act.entry_id,
            level=act.level,
            actor=act.actor,
            origin=act.origin,
            flags=list(act.flags),
        )

    def _act(self) -> Act:
        assert self.act is not None, "asked for where is_to_record"  # noqa: S101
        return self.act()


Accept = Callable[[SinglePut], Operation[PutRow]]


def put_whole(put: SinglePut) -> Operation[PutRow]:
    """Accept a message in the caller's transaction, which an error of a shorter statement would end."""
    (row,) = yield from fetch(put.whole())
    put.note(row.is_recorded)
    return row


def put_quickly(put: SinglePut) -> Operation[PutRow]:
    """Accept a message by the short statement if that suffices."""
    try:
        seq = yield from _put_one(put)
    except DatabaseUnavailableError:
        raise
    except DatabaseError:
        seq = None  # the id was used before: ``put`` finds it
    if seq is not None:
        return taken_row(seq)
    return (yield from put_whole(put))


def _put_one(put: SinglePut) -> Operation[int | None]:
    if put.is_to_record:
        for recorded in (yield from fetch(put.one_recorded())):
            put.note(recorded.is_recorded)
            return recorded.seq
        return None
    for row in (yield from fetch(put.one())):
        return row.seq
    return None


def taken_row(seq: int) -> PutRow:
    """The row that ``put`` would have returned for an accepted message."""
    return PutRow("ok", None, [seq], None, None)


def put_many(group: Iterable[SinglePut]) -> PutMany:
    """The statement that accepts one message into each of several sessions."""
    return PutMany(messages=f"[{','.join(map(_record, group))}]")


def put_many_recorded(group: Iterable[SinglePut]) -> PutManyRecorded:
    """The same with the acts of those that are to be recorded."""
    return PutManyRecorded(messages=f"[{','.join(map(_record, group))}]")


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
        yield f',"answers":{message.answers}'
    if message.data_key:
        yield f',"data_key":{message.data_key}'
    if put.is_to_record and put.act is not None:
        act = put.act()
        yield f',"entry_id":"{act.entry_id}","level":"{act.level}"'
        for name, value in (("actor", act.actor), ("origin", act.origin)):
            if value is not None:
                yield f',"{name}":{quoted(value)}'
        if act.flags:
            yield f',"flags":[{",".join(map(quoted, act.flags))}]'
