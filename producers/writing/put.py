"""Putting: append messages to a session's log by the shortest statement that will do; flush at the mark.

The way of a put, in order: ``PutRequest.check`` (the messages, without I/O), ``carry_out_put`` (tokens),
``send_put`` (sealed if the owner's content is), ``_send``, and of one message ``put_quickly`` (the short
statement, else ``put_whole``) or ``GroupCommit.accept`` (the same with others that wait); ``read_result``;
and across the mark ``flush_at_put``.

One statement accepts a message of a known session.  The first put of a session sends four: the short one, the
whole one, which finds the session unclaimed, ``claim_session``, and the whole one again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from json.encoder import encode_basestring as quoted
from uuid import uuid4

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.flush.flush import Flushed, flush_at_put, tell_failed_flush
from strandline.producers.sessions import claim_session, unknown_pipelines
from strandline.producers.tokens import INLINE_CHARACTERS, is_loaded
from strandline.producers.writing.validate import (
    PreparedMessage,
    PutRules,
    seal_message,
)
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import (
    ConflictError,
    DatabaseError,
    DatabaseUnavailableError,
    ErasedError,
    InvalidMessageError,
    KeyUnavailableError,
    NamespaceFullError,
    StrandlineError,
)
from strandline.schemas.postgres.operations import (
    Compute,
    Operation,
    claim_owner_keys,
    content_codec,
    fetch,
)
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.audit.audit import (
    PutManyRecorded,
    PutManyRecordedRow,
    PutOneRecorded,
    PutOneRecordedRow,
)
from strandline.schemas.queries.conversation.messages import (
    Put,
    PutMany,
    PutManyRow,
    PutOne,
    StoredDigests,
)
from strandline.schemas.queries.rows import PutRow, SeqRow
from strandline.schemas.sealing.codec import Unknown
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.values.acts.acting import Acting, current_acting
from strandline.schemas.values.foreign_values import unreadable
from strandline.schemas.values.identity import SessionIdentity, key_text, shared_scope_key
from strandline.schemas.values.labels import as_array
from strandline.schemas.values.policy import Policy

# A put chooses its statement by whether its namespace looked recorded last time.  Each statement looks at the
# level itself: one that does not suit does nothing, and ``put_v1`` decides.  So a wrong guess costs a round
# trip, and is corrected by it.  More namespaces than these are forgotten together, and learnt again.
MAX_NAMESPACES = 4_096

_recorded: set[str] = set()


def looks_recorded(namespace: str) -> bool:
    """Whether puts of a namespace were recorded when this process last put to it."""
    return namespace in _recorded


def note_recorded(namespace: str, is_recorded: bool | None) -> None:
    """Note a put's finding; None leaves the note."""
    if is_recorded is None or is_recorded is (namespace in _recorded):
        return
    if not is_recorded:
        _recorded.discard(namespace)
        return
    if len(_recorded) >= MAX_NAMESPACES:
        _recorded.clear()
    _recorded.add(namespace)


@dataclass(slots=True)
class SinglePut:
    """One message to be put into a session.

    Attributes:
        whole: makes the full statement, which decides if the short ones do nothing.
        act: makes the act for the audit trail; None: the enclosing act is recorded.
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
        """Whether the short statement records the act."""
        return self.act is not None and (self.is_change or looks_recorded(self.identity.namespace))

    def note(self, row: tuple[object, ...]) -> None:
        """Learn from a row whether it was recorded; a change says nothing about other puts."""
        if self.act is not None and not self.is_change:
            note_recorded(self.identity.namespace, getattr(row, "is_recorded", None))

    def short(self) -> Query[SeqRow | PutOneRecordedRow]:
        """The statement that accepts it if nothing speaks against it."""
        return self.one_recorded() if self.is_to_record else self.one()

    def one(self) -> PutOne:
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
        """The same with the act."""
        assert self.act is not None, "asked for where is_to_record"  # noqa: S101
        act = self.act()
        return PutOneRecorded(
            **self.one().params,
            entry_id=act.entry_id,
            level=act.level,
            actor=act.actor,
            origin=act.origin,
            flags=list(act.flags),
        )


Accept = Callable[[SinglePut], Operation[PutRow]]


def put_whole(put: SinglePut) -> Operation[PutRow]:
    """Accept a message by the statement for any put."""
    (row,) = yield from fetch(put.whole())
    put.note(row)
    return row


def put_quickly(put: SinglePut) -> Operation[PutRow]:
    """Accept a message by the short statement if that suffices."""
    rows: list[SeqRow | PutOneRecordedRow]
    try:
        rows = yield put.short()
    except DatabaseUnavailableError:
        raise
    except DatabaseError:
        rows = []  # the id was used before: ``put`` finds it
    for row in rows:
        put.note(row)
        return taken_row(row.seq)
    return (yield from put_whole(put))


def taken_row(seq: int) -> PutRow:
    """The row that ``put`` would have returned for an accepted message."""
    return PutRow("ok", None, [seq], None, None)


def put_many(group: Sequence[SinglePut]) -> Query[PutManyRow | PutManyRecordedRow]:
    """The statement that accepts one message into each of several sessions, with the acts to be recorded."""
    messages = f"[{','.join(map(_record, group))}]"
    if any(put.is_to_record for put in group):
        return PutManyRecorded(messages=messages)
    return PutMany(messages=messages)


def _record(put: SinglePut) -> str:
    """One message as a JSON object; JSON fields are inserted as is, NULLs are left out."""
    identity, message = put.identity, put.message
    return (
        f'{{"shard_key":"{key_text(identity.shard_key)}","session_key":"{key_text(identity.session_key)}",'
        f'"id":{quoted(message.id)},"role":"{message.role}","tokens":{put.tokens},'
        f'"bytes":{message.size},'
        f'"digest":"\\\\x{message.digest.hex()}","envelope":{message.envelope}{"".join(_rarer(put))}}}'
    )


def _rarer(put: SinglePut) -> Iterator[str]:
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


@dataclass(slots=True)
class PutRequest:
    """One put, checked and ready: it can still be refused only because of its ids or its owner.

    The ids are made here, before the first attempt, so that a repeated attempt is the same put.

    Attributes:
        places: of each given message its place among ``messages``; None: it is only memory of a read.
        acting: from the caller's context, which the statement may not be sent in.
        act: the kind of act that the audit trail records; None: the enclosing act is recorded.
        flags: of a compliance hook.
        replaces_prompt: whether the first message takes the place of the prompt in reads.
        turn_delay_seconds: how long the work of a turn that it ends waits for more.
    """

    identity: SessionIdentity
    policy: Policy
    messages: tuple[PreparedMessage, ...]
    places: tuple[int | None, ...]
    rules: PutRules
    acting: Acting = field(default_factory=current_acting)
    act: str | None = "put"
    flags: tuple[str, ...] = ()
    replaces_prompt: bool = False
    turn_delay_seconds: float = 0.0

    @property
    def is_change(self) -> bool:
        """Whether the act is recorded at level ``changes`` as well."""
        return bool(self.flags) or self.act != "put"

    def make_act(self) -> Act:
        """The act of this put, for the audit trail."""
        return Act(self.act or "put", uuid4(), self.acting.actor, self.acting.origin, flags=self.flags)

    @property
    def act_json(self) -> str | None:
        """The same as ``put_v1`` reads it; None if it is not to be recorded."""
        return None if self.act is None else self.make_act().as_json()

    @classmethod
    def check(
        cls,
        sources: Sequence[object],
        *,
        identity: SessionIdentity,
        policy: Policy,
        rules: PutRules,
        max_messages: int,
    ) -> PutRequest:
        """Check every message of a put, as redaction leaves it, without memory that a read gave.

        Raises:
            InvalidMessageError: a message cannot be stored, or is refused, or there are too many.
            RedactionError: a redaction hook failed.
            ConflictError: two messages have the same id and different content.
        """
        if not isinstance(sources, (list, Sequence)) or isinstance(sources, (str, bytes)):
            raise InvalidMessageError("messages", f"must be a list of messages, not {type(sources).__name__}")
        if len(sources) > max_messages:
            raise InvalidMessageError(
                "messages",
                f"{len(sources):,} in one put, over the limit of {max_messages:,}; split them into several"
                " puts, or raise STRANDLINE_MAX_MESSAGES_PER_PUT",
                for_clients=f"There are too many: at most {max_messages:,} are stored at once.",
            )
        if len(sources) == 1:
            one = rules.prepare(sources[0], "message")
            if one is None:
                return cls(identity, policy, (), (None,), rules)
            return cls(identity, policy, (one,), (0,), rules)
        prepared: dict[str, PreparedMessage] = {}
        order: list[str | None] = []
        for index, source in enumerate(sources):
            one = rules.prepare(source, f"messages[{index}]")
            order.append(None if one is None else one.id)
            if one is None:
                continue
            if prepared.setdefault(one.id, one).digest != one.digest and not one.is_shown:
                raise ConflictError(
                    f"messages[{index}].id: {one.id!r} occurs twice in this put with different content.",
                    for_clients="Two messages of this request have the same id and different content; nothing"
                    " was stored.",
                    message_id=one.id,
                )
        index_of = {message_id: index for index, message_id in enumerate(prepared)}
        places = tuple(None if i is None else index_of[i] for i in order)
        return cls(identity, policy, tuple(prepared.values()), places, rules)

    def without_shown(self, message_id: str | None) -> PutRequest | None:
        """The put without a message that a read shows otherwise than it is stored; else None."""
        at = next((at for at, one in enumerate(self.messages) if one.id == message_id and one.is_shown), None)
        if at is None:
            return None
        places = (None if place is None or place == at else place - (place > at) for place in self.places)
        messages = self.messages[:at] + self.messages[at + 1 :]
        return replace(self, messages=messages, places=tuple(places))


@dataclass(slots=True)
class PutResult:
    """The seqs of a put, in the order of its messages (0: not stored), and its flush, if it caused one."""

    seqs: list[int]
    flushed: Flushed | None


def carry_out_put(request: PutRequest, accept: Accept | None = None) -> Operation[PutResult]:
    """Carry out a put: one round trip, and a second short transaction when the mark is crossed.

    ``accept`` accepts a single message; None: in the caller's transaction, which an error of a shorter
    statement would end.

    A flush that fails does not fail the put, which is committed by then: the next put or the sweep
    flushes.  The same applies if a crash of Postgres loses the flush, which does not wait for the disk.  In
    the caller's transaction a failed flush does fail the put, since Postgres has ended that transaction.
    """
    if not request.messages:
        return PutResult([0] * len(request.places), None)
    if _is_counted_quickly(request):
        tokens = _token_counts(request)
    else:
        tokens = yield Compute(partial(_token_counts, request))
    row = yield from send_put(request, partial(_send, request, tokens, accept))
    if row.status == "conflict" and (others := request.without_shown(row.detail)) is not None:
        return (yield from carry_out_put(others, accept))
    seqs, window = yield from read_result(request.identity, row)
    flushed = None
    if window is not None:
        try:
            flushed = yield from flush_at_put(
                request.identity.keys,
                window,
                lazily=accept is not None,
                turn_delay_seconds=request.turn_delay_seconds,
            )
        except StrandlineError as error:
            if accept is None:
                raise
            tell_failed_flush(str(error), int(time.monotonic() // 60))
    return PutResult([0 if place is None else seqs[place] for place in request.places], flushed)


def _is_counted_quickly(request: PutRequest) -> bool:
    size = sum([len(message.envelope) for message in request.messages])
    return size <= INLINE_CHARACTERS and is_loaded()


def _token_counts(request: PutRequest) -> list[int]:
    try:
        return [request.rules.count(message.source) for message in request.messages]
    except (StrandlineError, MemoryError):
        raise
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable("messages", error) from error


def _send(
    request: PutRequest, tokens: list[int], accept: Accept | None, sealed: PutRequest, claimed: bool
) -> Operation[PutRow]:
    """Send a put as it is sealed; ``claimed``: its session was claimed, or refused it before."""
    whole = partial(_whole, sealed, tokens, claimed=claimed)
    if claimed or len(tokens) > 1 or request.replaces_prompt:
        (row,) = yield from fetch(whole())
        return row
    make_act = None if request.act is None else request.make_act
    single = SinglePut(request.identity, sealed.messages[0], tokens[0], whole, make_act, request.is_change)
    return (yield from (accept or put_whole)(single))


def send_put(request: PutRequest, send: Callable[[PutRequest, bool], Operation[PutRow]]) -> Operation[PutRow]:
    """Send a put, and again where its session was not claimed, or takes only otherwise sealed content.

    ``send`` gets the request as it is sealed, and whether it is sent again.
    """
    sealed = yield from seal_request(request)
    row = yield from send(sealed, False)
    if row.status == "unclaimed":
        yield from claim_session(request.identity)
        sealed = yield from seal_request(request)
        row = yield from send(sealed, True)
    if row.status == "sealed":
        sealed = yield from seal_request(request, is_needed=True)
        row = yield from send(sealed, True)
    if row.status == "conflict" and sealed is not request:
        sealed = yield from _with_stored_digests(request, sealed)
        row = yield from send(sealed, True)
    return row


def seal_request(request: PutRequest, *, is_needed: bool = False) -> Operation[PutRequest]:
    """The request to send, sealed if the owner's content is.

    A process with a keyring looks that up first: refused content in clear would remain in Postgres's
    statement log.

    ``is_needed``: the session only takes content sealed with its owner's present keys, so they are fetched,
    past the cache.

    Raises:
        KeyUnavailableError: they cannot be unwrapped, or are not there.
    """
    identity = request.identity
    keys: OwnerKeys | Unknown | None
    if is_needed:
        keys = yield from _needed_keys(identity)
    else:
        codec = yield from content_codec()
        keys = codec.known_keys(identity.namespace, identity.shard_key)
    if isinstance(keys, Unknown):
        keys = yield from _keys_before_first(identity)
    if keys is None:
        return request
    session_key = request.identity.session_key
    return replace(request, messages=tuple(seal_message(one, session_key, keys) for one in request.messages))


def _keys_before_first(identity: SessionIdentity) -> Operation[OwnerKeys | None]:
    """The keys of an owner without a recent put by this process; made for a new owner."""
    codec = yield from content_codec()
    is_sealed, keys = yield from codec.look_up_keys(identity.namespace, identity.shard_key)
    if is_sealed and keys is None:
        yield from claim_session(identity)
        return (yield from codec.find_keys(identity.shard_key))
    return keys


def _needed_keys(identity: SessionIdentity) -> Operation[OwnerKeys]:
    keys = yield from claim_owner_keys(identity.namespace, identity.shard_key, anew=True)
    if keys is None:
        raise KeyUnavailableError(
            f"Namespace {quote(identity.namespace)} is encrypted, and the keys of this owner are not in the"
            " database, or this process has no keyring. Set one (docs/operations.md, Encryption), or restore"
            " the table data_key."
        )
    return keys


def _with_stored_digests(request: PutRequest, sealed: PutRequest) -> Operation[PutRequest]:
    """The request with the digests of messages that were stored before their session was sealed.

    These are unkeyed until the background has sealed them; a repeated put is the same put all the same.
    """
    ids = [message.id for message in request.messages]
    rows = yield from fetch(StoredDigests(**request.identity.keys, ids=ids))
    stored = {row.id: row.digest for row in rows}
    pairs = zip(request.messages, sealed.messages, strict=True)
    return replace(
        sealed,
        messages=tuple(
            replace(closed, digest=clear.digest) if stored.get(clear.id) == clear.digest else closed
            for clear, closed in pairs
        ),
    )


def read_result(identity: SessionIdentity, row: PutRow) -> Operation[tuple[list[int], str | None]]:
    """Return the seqs of an accepted put, and the window to plan a flush from if the mark was crossed.

    Raises:
        ConflictError: an id was already used with different content.
        ErasedError: the owner, or the session, was erased.
        KeyUnavailableError: it was sealed with a key from before the owner's present life, and again so.
        NamespaceFullError: the namespace has reached its bound of stored bytes.
        UnknownPipelineError: no worker has registered a pipeline that the session is to feed.
    """
    if row.status == "conflict":
        raise ConflictError(
            f"Message id {row.detail!r} was already used in session {identity.session_id!r} with different"
            " content; nothing was stored. Give a new message a new id.",
            for_clients="This id was already used in this session for a message with other content; nothing"
            " was stored. Give a new message a new id.",
            message_id=row.detail,
        )
    if row.status == "full":
        raise NamespaceFullError.of_bound(identity.namespace, row.detail or "")
    if row.status == "erased":
        raise ErasedError(int(row.detail or 0))
    if row.status == "sealed":
        raise KeyUnavailableError(
            f"Session {identity.session_id!r} takes only content that is sealed with a later key than this"
            " owner has; nothing was stored. `strandline doctor` says which keys are missing."
        )
    if row.detail is not None:
        raise (yield from unknown_pipelines(row.detail, "Nothing would be derived from its messages."))
    return [seq for seq in row.seqs or () if seq is not None], row.to_flush


def _whole(request: PutRequest, tokens: list[int], *, claimed: bool) -> Put:
    messages = request.messages
    return Put(
        **request.identity.keys,
        claimed=claimed,
        session=_session_record(request),
        ids=[m.id for m in messages],
        roles=[m.role for m in messages],
        tokens=tokens,
        bytes=[m.size for m in messages],
        digests=[m.digest for m in messages],
        envelopes=[m.envelope for m in messages],
        metadata=[m.metadata for m in messages],
        created_at=[m.created_at for m in messages],
        calls=[m.calls for m in messages],
        answers=[m.answers for m in messages],
        labels=[as_array(m.labels_in(request.identity.session_key)) for m in messages],
        data_key=min([m.data_key for m in messages], default=0),
        act=request.act_json,
    )


def _session_record(request: PutRequest) -> str:
    record = session_record(request.identity, request.policy)
    if not request.replaces_prompt:
        return record
    way = "important" if request.messages[0].may_be_important else "plain"
    return f'{record[:-1]}, "replaces_prompt": "{way}"}}'


@lru_cache(maxsize=1024)
def session_record(identity: SessionIdentity, policy: Policy) -> str:
    """The JSON from which put_v1 makes a new session's row."""
    return json.dumps(
        {
            "namespace": identity.namespace,
            "session_id": identity.session_id,
            "user_id": identity.user_id,
            **asdict(policy),
            "shared_key": _shared_key(identity, policy),
        }
    )


def _shared_key(identity: SessionIdentity, policy: Policy) -> str | None:
    if policy.shared_scope is None:
        return None
    return str(shared_scope_key(identity.namespace, policy.shared_scope))
