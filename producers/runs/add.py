"""Adds a run by its id; the same id again replaces the run's messages.

Equal messages stay.  Messages at the end of the log are taken back (``rewind``).  If something was put behind
the run, messages that differ only in content get the new content in place (``replace``); otherwise the log is
taken back up to the first difference, and later messages are put again behind the run.  All of it is one
transaction.  Messages that a person corrected stand as the person left them (``given.py``).
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4, uuid5

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.flush.flush import Flushed
from strandline.producers.runs.run import RunRecord, SessionRun
from strandline.producers.sessions import check_unowned
from strandline.producers.writing.correcting.correct import (
    MAX_ATTEMPTS,
    Correcting,
    Correction,
    Replacement,
)
from strandline.producers.writing.put import PutRequest, PutResult, carry_out_put
from strandline.producers.writing.validate import (
    PreparedMessage,
    PutRules,
    prepare,
)
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConflictError, DeliveredError, NotFoundError, StrandlineError
from strandline.schemas.postgres.operations import Atomic, Operation, claim_owner_keys, fetch, find_owner_keys
from strandline.schemas.queries.conversation.runs import (
    AddRun,
    ChangeRun,
    LockFirstRun,
    LockRun,
    LockRunRow,
    LogMarks,
    LogMarksRow,
    MessagesBehind,
    RenumberRuns,
    ReplacedMessages,
    RunIsKnown,
    RunRows,
    RunRowsRow,
)
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.sealing.owner_keys import DIGEST_BYTES
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import HEAD_ROLES, Message, read_rows
from strandline.schemas.values.same_named import make_from

# The form in which a digest is recorded: keyed where the owner's content is sealed; of a keyed one, itself.
Key = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class GivenRun:
    """The messages of a run as they are to stand, with the given ones.

    Attributes:
        messages: with the other content that a person gave them, and without those taken back.
        digests: of each of them, as it was given.
        taken: numbers of messages that a person took back, each with the digest that was given.
    """

    messages: tuple[PreparedMessage, ...]
    digests: tuple[bytes, ...]
    taken: tuple[tuple[int, bytes], ...] = ()

    def seqs_with_taken(self, seqs: Sequence[int]) -> list[int]:
        """The numbers to record of the run, with those taken back last."""
        return [*seqs, *(seq for seq, _digest in self.taken)]

    def digests_with_taken(self) -> list[bytes]:
        """The digests to record, in the same order."""
        return [*self.digests, *(digest for _seq, digest in self.taken)]


def given_anew(messages: Sequence[PreparedMessage], key: Key) -> GivenRun:
    """A run of which nothing was brought before."""
    return GivenRun(tuple(messages), tuple(key(message.digest) for message in messages))


def given_again(
    messages: Sequence[PreparedMessage],
    seqs: Sequence[int],
    digests: Sequence[bytes],
    rows: Mapping[int, RunRowsRow],
    key: Key,
) -> GivenRun:
    """A known run as it is to stand; without remaining messages it counts as new.

    Args:
        seqs, digests: the recorded numbers and digests of its messages.
        rows: those of them that are in the log.
    """
    if not rows:
        return given_anew(messages, key)
    before: dict[bytes, deque[RunRowsRow | None]] = defaultdict(deque)
    for seq, digest in zip(seqs, digests, strict=True):
        before[key(digest)].append(rows.get(seq))
    standing: list[tuple[PreparedMessage, bytes]] = []
    for message in messages:
        digest = key(message.digest)
        if not before[digest]:
            standing.append((message, digest))
        elif (row := before[digest].popleft()) is not None:
            is_unchanged = key(row.digest) == digest
            standing.append((message if is_unchanged else _as_it_stands(message, row), digest))
    taken = [(seq, key(digest)) for seq, digest in zip(seqs, digests, strict=True) if seq not in rows]
    return GivenRun(
        tuple(message for message, _digest in standing),
        tuple(digest for _message, digest in standing),
        tuple(taken),
    )


def system_id(identity: SessionIdentity, digest: bytes) -> str:
    """The id of a system message that has none: it follows from the text, so that it is stored once."""
    return uuid5(identity.session_key, f"system {digest.hex()}").hex


def system_ids(identity: SessionIdentity, messages: Sequence[PreparedMessage]) -> list[str]:
    """The ids that follow from the text of a message; whoever brings one of these brings this text."""
    heads = [message for message in messages if message.role in HEAD_ROLES]
    return [message.id for message in heads if message.id == system_id(identity, message.digest)]


def with_replaced(messages: Sequence[Message], rows: Sequence[MessageRow]) -> list[Message]:
    """Messages with the content that those of the same ids have in the log."""
    contents = {row.id: message.content for row, message in zip(rows, read_rows(rows), strict=True)}
    return [
        replace(message, content=contents[message.id]) if message.id in contents else message
        for message in messages
    ]


def _as_it_stands(message: PreparedMessage, row: RunRowsRow) -> PreparedMessage:
    (stored,) = read_rows([row])
    source = replace(message.source, content=stored.content)
    return replace(message, digest=row.digest, envelope=row.envelope, source=source)


def name_messages(
    identity: SessionIdentity,
    run_id: str,
    sources: Sequence[object],
    rules: PutRules,
) -> Iterator[Message]:
    """The messages of a run as they may be stored, with ids, by which a repeated call is the same.

    Memory that a read gave is left out.
    A system message without an id gets one of its text, so that it is stored once, whichever runs bring it.

    Raises:
        InvalidMessageError: one of them is not a message, or a redaction hook refuses it.
        RedactionError: a redaction hook failed.
    """
    for index, source in enumerate(sources):
        where = f"messages[{index}]"
        message = rules.read(source, where)
        if message is None:
            continue
        if message.id is not None:
            yield message
        elif message.role in HEAD_ROLES:
            yield replace(message, id=system_id(identity, prepare(message, where, rules.limits).digest))
        else:
            name = f"run {len(run_id)} {run_id} {index}"
            yield replace(message, id=uuid5(identity.session_key, name).hex)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run to be added.

    Attributes:
        messages: as they would be stored, in the order of the run.
        check: checks messages for a put.
        replacement: other content for a message, by its number.
        max_messages: number of messages in one put.
        act: who adds it, and with what flags.
    """

    record: RunRecord
    messages: tuple[PreparedMessage, ...]
    check: Callable[[Sequence[Message]], PutRequest]
    replacement: Callable[[int, Message], Replacement]
    max_messages: int
    act: Act | None = None

    def correct(self, kind: str) -> Correcting:
        """A correction that is part of it, as the audit trail records it."""
        act = Act.here(kind) if self.act is None else replace(self.act, kind=kind, entry_id=uuid4())
        return Correcting(self.record.identity, uuid4(), act)


@dataclass(frozen=True, slots=True)
class AddedRun:
    """A run as it is stored, and what its messages flushed."""

    run: SessionRun
    flushed: Flushed | None


@dataclass(frozen=True, slots=True)
class _Outcome:
    seqs: list[int]
    corrections: tuple[Correction, ...] = ()
    flushed: Flushed | None = None


@dataclass(frozen=True, slots=True)
class _Difference:
    """How a known run differs from the given one: the first ``kept`` messages are the same."""

    old: tuple[RunRowsRow, ...]
    incoming: GivenRun
    kept: int

    @property
    def new(self) -> tuple[PreparedMessage, ...]:
        return self.incoming.messages

    @property
    def kept_seqs(self) -> list[int]:
        return [row.seq for row in self.old[: self.kept]]

    @property
    def former_seqs(self) -> list[int]:
        """The numbers of messages that are no longer the run's; what another run has as well stays."""
        return sorted({row.seq for row in self.old[self.kept :] if not row.is_shared} - set(self.kept_seqs))

    @property
    def additions(self) -> tuple[PreparedMessage, ...]:
        return self.new[self.kept :]

    @property
    def start(self) -> int | None:
        """The first number behind the kept messages; None if all of them belong to other runs as well."""
        own = [row.seq for row in self.old if not row.is_shared]
        return (self.former_seqs[0] if self.former_seqs else max(own) + 1) if own else None

    def replaceable(self) -> list[tuple[int, Message]] | None:
        """The other contents by number, if that is all the difference."""
        pairs = list(zip(self.old, self.new, strict=False))[self.kept :]
        differing = [(row, message) for row, message in pairs if not _is_same(row, message)]
        if len(self.old) != len(self.new) or not all(_is_same_but_content(*pair) for pair in differing):
            return None
        return [(row.seq, message.source) for row, message in differing]


def add_run(request: RunRequest, act: Act) -> Operation[AddedRun]:
    """Store a run, or replace it if its id is known.

    ``act`` says who adds it; the audit trail records puts, rewinds and replacements.

    Raises:
        ConflictError: it was replaced, and what stands behind it cannot be put again; or a message's id was
            already used with different content.
        OwnerError: the session belongs to another owner.
    """
    added: AddedRun
    request = replace(request, act=act)
    try:
        added = yield Atomic(partial(_add_once, request))
    except _AddedMeanwhileError:
        added = yield Atomic(partial(_add_again, request))
    return added


class _AddedMeanwhileError(StrandlineError):
    """Another caller has just added the run, so it is to be replaced.

    That takes a new transaction: this one holds the session's row, which is locked after the run's.
    """


def _add_once(request: RunRequest) -> Operation[AddedRun]:
    if (yield from _is_known(request)):
        return (yield from _add_again(request))
    try:
        result = yield from _put(request, [])
    except ConflictError:
        # The ids of its messages follow from the run's.
        if (yield from _is_known(request)):
            raise _AddedMeanwhileError from None
        raise
    incoming = given_anew(request.messages, (yield from _find_key(request)))
    record, columns = request.record, _columns_of(incoming, result.seqs)
    if not (yield from fetch(AddRun.of(record, **record.identity.keys, **columns))):
        raise _AddedMeanwhileError
    return _stored_run(request, _Outcome(result.seqs, flushed=result.flushed))


def _add_again(request: RunRequest) -> Operation[AddedRun]:
    record = request.record
    yield from fetch(LockFirstRun(**record.identity.keys))
    known = yield from fetch(LockRun(**record.identity.keys, run_id=record.run_id))
    for _attempt in range(MAX_ATTEMPTS):
        marks = yield from fetch(LogMarks(**record.identity.keys))
        difference = yield from _compare(request, known[0] if known else None)
        outcome = yield from _change(request, difference, marks[0] if marks else None)
        if outcome is not None:
            columns = _columns_of(difference.incoming, outcome.seqs)
            is_behind = not difference.old
            yield from fetch(ChangeRun.of(record, **record.identity.keys, **columns, is_behind=is_behind))
            return _stored_run(request, outcome)
    raise ConflictError(
        f"Session {quote(record.identity.session_id)} changed {MAX_ATTEMPTS} times while run"
        f" {quote(record.run_id)} was being replaced; nothing was changed. Add it again when fewer callers"
        " are putting to the session.",
        for_clients="Other requests were putting to this session; nothing was changed. Try again.",
    )


def _change(
    request: RunRequest, difference: _Difference, marks: LogMarksRow | None
) -> Operation[_Outcome | None]:
    """Make the difference; None, with nothing done, if the log changed: then compare again."""
    if not difference.additions and not difference.former_seqs:
        return _Outcome(difference.kept_seqs)
    behind = yield from _messages_behind(request, difference)
    replaceable = difference.replaceable()
    if behind and replaceable is not None:
        return (yield from _replace_each(request, difference, replaceable))
    if marks is None or difference.start is None or not (difference.former_seqs or behind):
        return (yield from _put_difference(request, difference, (), ()))
    try:
        taken = yield from request.correct("rewind").rewind_if_unchanged(
            difference.start, newest=marks.newest, corrections=marks.corrections
        )
    except DeliveredError:  # it begins in the pinned head
        if replaceable is None:
            raise
        return (yield from _replace_each(request, difference, replaceable))
    return None if taken is None else (yield from _put_difference(request, difference, behind, (taken,)))


def _put_difference(
    request: RunRequest,
    difference: _Difference,
    behind: Sequence[Message],
    corrections: tuple[Correction, ...],
) -> Operation[_Outcome]:
    result = yield from _put(replace(request, messages=difference.additions), behind)
    added, again = result.seqs[: len(difference.additions)], result.seqs[len(difference.additions) :]
    moved = dict(zip([message.seq or 0 for message in behind], again, strict=True))
    if moved:
        yield from fetch(
            RenumberRuns(**request.record.identity.keys, seqs=list(moved), new_seqs=list(moved.values()))
        )
    kept = [moved.get(seq, seq) for seq in difference.kept_seqs]
    return _Outcome([*kept, *added], corrections, result.flushed)


def _replace_each(
    request: RunRequest, difference: _Difference, replaceable: Sequence[tuple[int, Message]]
) -> Operation[_Outcome | None]:
    corrections: list[Correction] = []
    for seq, message in replaceable:
        other = request.replacement(seq, message)
        try:
            taken = yield from request.correct("replace").replace_content(other)
        except NotFoundError:  # taken back concurrently
            return None
        corrections.append(taken)
    return _Outcome([row.seq for row in difference.old], tuple(corrections))


def _messages_behind(request: RunRequest, difference: _Difference) -> Operation[list[Message]]:
    if difference.start is None:
        return []
    limit = request.max_messages - len(difference.additions)
    rows = yield from fetch(
        MessagesBehind(
            **request.record.identity.keys,
            from_seq=difference.start,
            without=difference.former_seqs,
            limit=limit + 1,
        )
    )
    if len(rows) > limit and difference.replaceable() is None:
        raise ConflictError(
            f"Run {quote(request.record.run_id)} has other messages now, and more than {limit:,} were put"
            " behind it, which cannot all be put again; nothing was changed. Raise"
            " STRANDLINE_MAX_MESSAGES_PER_PUT, or rewind() the session and add the runs again.",
            for_clients=f"The run has other messages now, and more than {limit:,} were put behind it, which"
            " cannot all be put again; nothing was changed. Rewind the session, and put its runs again.",
        )
    return read_rows(rows)


def _compare(request: RunRequest, known: LockRunRow | None) -> Operation[_Difference]:
    record = request.record
    key = yield from _find_key(request, () if known is None else known.digests)
    if known is None:
        return _Difference((), given_anew(request.messages, key), 0)
    stored = yield from fetch(RunRows(**record.identity.keys, seqs=known.seqs, run_id=record.run_id))
    rows = {row.seq: row for row in stored}
    old = tuple(rows[seq] for seq in known.seqs if seq in rows)
    incoming = given_again(request.messages, known.seqs, known.digests, rows, key)
    pairs = enumerate(zip(old, incoming.messages, strict=False))
    differing = (n for n, (row, message) in pairs if not _is_same(row, message))
    return _Difference(old, incoming, next(differing, min(len(old), len(incoming.messages))))


def _is_same(row: RunRowsRow, message: PreparedMessage) -> bool:
    """By the texts: stored digests may be keyed."""
    is_alike = row.envelope == message.envelope or _body(row) == _body(message)
    return is_alike and (row.role, row.metadata) == (message.role, message.metadata)


def _is_same_but_content(row: RunRowsRow, message: PreparedMessage) -> bool:
    is_alike = {**_body(row), "content": None} == {**_body(message), "content": None}
    return not row.is_shared and is_alike and (row.role, row.metadata) == (message.role, message.metadata)


def _body(message: RunRowsRow | PreparedMessage) -> dict[str, Any]:
    return {**json.loads(message.envelope), "offset": None}


def _put(request: RunRequest, behind: Sequence[Message]) -> Operation[PutResult]:
    messages = [replace(message.source, id=message.id) for message in request.messages] + list(behind)
    if not messages:
        yield from check_unowned(request.record.identity)
        return PutResult([], None)
    try:
        return (yield from _put_checked(request, messages))
    except ConflictError:
        # An earlier run's system message whose content a person has replaced.
        ids = system_ids(request.record.identity, request.messages)
        rows = yield from fetch(ReplacedMessages(**request.record.identity.keys, ids=ids))
        if not rows:
            raise
    return (yield from _put_checked(request, with_replaced(messages, rows)))


def _put_checked(request: RunRequest, messages: Sequence[Message]) -> Operation[PutResult]:
    put = request.check(messages)
    put.flags = () if request.act is None else request.act.flags
    return (yield from carry_out_put(put))


def _find_key(request: RunRequest, digests: Sequence[bytes] = ()) -> Operation[Key]:
    identity = request.record.identity
    keys = yield from find_owner_keys(identity.shard_key)
    if keys is None and any(len(digest) > DIGEST_BYTES for digest in digests):
        # Sealed since this process looked.
        keys = yield from claim_owner_keys(identity.namespace, identity.shard_key, anew=True)
    return bytes if keys is None else keys.digest


def _is_known(request: RunRequest) -> Operation[bool]:
    record = request.record
    (row,) = yield from fetch(RunIsKnown(**record.identity.keys, run_id=record.run_id))
    return row.known


def _columns_of(incoming: GivenRun, seqs: list[int]) -> dict[str, Any]:
    return {"seqs": incoming.seqs_with_taken(seqs), "digests": incoming.digests_with_taken()}


def _stored_run(request: RunRequest, outcome: _Outcome) -> AddedRun:
    run = make_from(SessionRun, request.record, seqs=tuple(outcome.seqs), corrections=outcome.corrections)
    return AddedRun(run, outcome.flushed)
