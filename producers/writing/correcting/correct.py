"""Corrects a session's log: takes its end back, or gives one message other content.

A correction is a row of its own, and never updates a message; memory derived from the messages is given up in
the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Literal
from uuid import UUID, uuid4, uuid5

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.facts.edits import take_away_again
from strandline.pipelines.vectors.sharing import clear_copies
from strandline.producers.sessions import check_unowned
from strandline.producers.tokens import count_message
from strandline.producers.writing.validate import PutLimits, prepare, seal_envelope
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConflictError, DeliveredError, NamespaceFullError, NotFoundError
from strandline.schemas.postgres.operations import Atomic, Operation, Run, fetch, find_owner_keys
from strandline.schemas.queries.conversation.messages import (
    Correct,
    CorrectRow,
    FindCorrection,
    MessageAt,
    MessageAtRow,
    PartedCall,
)
from strandline.schemas.queries.conversation.sharing import LockSharedSession, SharedScopeOf, SharedScopeOfRow
from strandline.schemas.queries.work.lanes import RangeMessages
from strandline.schemas.sealing.owner_keys import OwnerKeys
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.message import Content, Message, read_rows

Kind = Literal["rewind", "replace"]

# Each lost attempt met a concurrent flush or replacement.
MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Correction:
    """A correction of a session's log.

    Attributes:
        number: counts the corrections of the session, from 1.
        kind: ``rewind`` or ``replace``.
        from_seq: the first message concerned.
        through_seq: the last number that the log had given when it was corrected, or the replaced message.
        seqs: the messages that were taken back or replaced; empty if a rewind found none.
        created_at: when it was made.
    """

    number: int
    kind: Kind
    from_seq: int
    through_seq: int
    seqs: tuple[int, ...]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Replacement:
    """Other content for a message, and how it is counted and bounded."""

    seq: int
    content: Content
    count_text: Callable[[str], int]
    part_tokens: Mapping[str, int]
    limits: PutLimits

    def digest(self) -> bytes:
        """By which the same request is known again."""
        if self.content is None:
            return b"none"
        envelope = prepare(Message("user", self.content), "message", self.limits).envelope
        return blake2b(envelope.encode(), digest_size=16).digest()


def correction_id(identity: SessionIdentity, idempotency_key: str | None) -> UUID:
    """The id of a correction: it follows from the caller's key, or names this attempt."""
    return uuid4() if idempotency_key is None else uuid5(identity.session_key, idempotency_key)


def take_back(identity: SessionIdentity, newest: int, id_: UUID, act: Act, from_seq: int) -> Operation[bool]:
    """Rewind to before ``from_seq``; False if ``newest`` is no longer the newest message.

    Raises:
        ConflictError: flushes kept coming between.
    """
    for _attempt in range(MAX_ATTEMPTS):
        row = yield from _correct(identity, _request(identity, id_, "rewind", from_seq, act, newest=newest))
        if row.status in ("changed", "missing"):  # missing: another correction took it back
            return False
        if row.status != "again":
            _read(identity, "rewind", from_seq, row)
            return True
    raise _busy(identity)


def rewind_if_unchanged(
    identity: SessionIdentity, from_seq: int, id_: UUID, act: Act, *, newest: int | None, corrections: int
) -> Operation[Correction | None]:
    """Take back every message from ``from_seq`` on; None if the log has another end, or was corrected since.

    Args:
        newest: the number of the newest message there is to be.
        corrections: how often the log was corrected.

    Raises: as ``rewind``.
    """
    asked = _request(identity, id_, "rewind", from_seq, act, newest=newest, corrections=corrections)
    for _attempt in range(MAX_ATTEMPTS):
        row = yield from _correct(identity, asked)
        if row.status == "changed":
            return None
        if row.status != "again":
            return _read(identity, "rewind", from_seq, row)
    raise _busy(identity)


def rewind(identity: SessionIdentity, from_seq: int, id_: UUID, act: Act) -> Operation[Correction]:
    """Take back every message from ``from_seq`` on; ``operations.corrections.rewind`` lists its errors."""
    yield from _check_calls(identity, from_seq, id_)
    for _attempt in range(MAX_ATTEMPTS):
        row = yield from _correct(identity, _request(identity, id_, "rewind", from_seq, act))
        if row.status != "again":
            return _read(identity, "rewind", from_seq, row)
    raise _busy(identity)


def _check_calls(identity: SessionIdentity, from_seq: int, id_: UUID) -> Operation[None]:
    """Refuse a new rewind that would take a result and leave its call."""
    for parted in (yield from fetch(PartedCall(**identity.keys, seq=from_seq))):
        known = FindCorrection(shard_key=identity.shard_key, correction_id=id_, digest=b"", clear_digest=None)
        if not (yield from fetch(known)):
            why = (
                f"A tool call in message {parted.call_seq} would lose its result; nothing was changed. Rewind"
                f" to {parted.call_seq}, or to what follows {parted.result_seq}."
            )
            raise ConflictError(why, for_clients=why)


def replace_content(
    identity: SessionIdentity, replacement: Replacement, id_: UUID, act: Act
) -> Operation[Correction]:
    """Give one message other content.

    Raises:
        NotFoundError: the session has no such message, or it was taken back.
        InvalidMessageError: the content cannot be stored as given.
        ConflictError, OwnerError: as for ``rewind``.
    """
    content = replacement.digest()
    seq = replacement.seq
    asked_before = FindCorrection(
        shard_key=identity.shard_key, correction_id=id_, digest=content, clear_digest=content
    )
    for known in (yield from fetch(asked_before)):
        is_same = known.session_key == identity.session_key and (known.kind, known.from_seq) == (
            "replace",
            seq,
        )
        if not is_same or not known.is_of_content:
            raise _conflict(identity)
        correction = Correction(
            known.number, "replace", known.from_seq, known.through_seq, tuple(known.seqs), known.created_at
        )
        yield from _clear_shared(identity, seq, seq)
        return correction
    for _attempt in range(MAX_ATTEMPTS):
        rows = yield from fetch(MessageAt(**identity.keys, seq=seq))
        if not rows:
            yield from check_unowned(identity)
            raise _not_found(identity, seq)
        keys = yield from find_owner_keys(identity.shard_key)
        make = partial(_replacement_request, identity, replacement, rows[0], id_, content, act, keys)
        asked = yield Run(make)
        row = yield from _correct(identity, asked)
        if row.status not in ("again", "changed"):
            return _read(identity, "replace", seq, row)
    raise _busy(identity)


def _request(
    identity: SessionIdentity,
    id_: UUID,
    kind: Kind,
    seq: int,
    act: Act,
    *,
    newest: int | None = None,
    corrections: int | None = None,
) -> Correct:
    return Correct(
        **identity.keys,
        correction_id=id_,
        kind=kind,
        from_seq=seq,
        newest=newest,
        corrections=corrections,
        actor=act.named_actor,
        content=None,
        expected=None,
        digest=None,
        envelope=None,
        tokens=None,
        bytes=None,
        act=act.as_json(),
    )


def _replacement_request(
    identity: SessionIdentity,
    replacement: Replacement,
    row: MessageAtRow,
    id_: UUID,
    content: bytes,
    act: Act,
    keys: OwnerKeys | None,
) -> Correct:
    (message,) = read_rows([row])
    prepared = prepare(replace(message, content=replacement.content), "message", replacement.limits)
    return Correct(
        **identity.keys,
        correction_id=id_,
        kind="replace",
        from_seq=replacement.seq,
        newest=None,
        corrections=None,
        actor=act.named_actor,
        content=content,
        expected=row.digest,
        digest=prepared.digest,
        envelope=seal_envelope(prepared, keys),
        tokens=count_message(prepared.source, replacement.count_text, replacement.part_tokens),
        bytes=prepared.size,
        act=act.as_json(),
    )


def _correct(identity: SessionIdentity, asked: Correct) -> Operation[CorrectRow]:
    row: CorrectRow | None = yield Atomic(partial(_correct_once, identity, asked))
    if row is not None and row.is_shared and row.status in ("ok", "repeated"):
        yield from _clear_shared(identity, row.from_seq, row.through_seq)
    if row is None:
        # No such session, or another owner's.
        yield from check_unowned(identity)
        raise NotFoundError(
            f"Nothing has been put yet to session {quote(identity.session_id)} in namespace"
            f" {quote(identity.namespace)}, so there is nothing to correct."
        )
    return row


def _correct_once(identity: SessionIdentity, asked: Correct) -> Operation[CorrectRow | None]:
    rows = yield from fetch(asked)
    for row in rows:
        yield from take_away_again(identity.shard_key, row.touched)
        return row
    return None


def _clear_shared(identity: SessionIdentity, from_seq: int, through_seq: int) -> Operation[None]:
    """Remove the messages' copies in a shared scope.

    They lie under the scope's key, so a second transaction deletes them after the correction.  If it fails,
    the worker that derives the messages again deletes them, or the repeated correction.
    """
    for scope in (yield from fetch(SharedScopeOf(**identity.keys))):
        yield Atomic(partial(_clear_scope, identity, scope, from_seq, through_seq))


def _clear_scope(
    identity: SessionIdentity, scope: SharedScopeOfRow, from_seq: int, through_seq: int
) -> Operation[None]:
    # A worker that copies holds the same row, and looks at its lease, which it has lost, once it has that.
    yield from fetch(
        LockSharedSession(
            shard_key=scope.shared_key,
            session_key=identity.session_key,
            incarnation=scope.incarnation,
            owner_key=identity.shard_key,
            session_id=scope.session_id,
        )
    )
    rows = yield from fetch(RangeMessages(**identity.keys, from_seq=from_seq, through_seq=through_seq))
    yield from clear_copies(scope.shared_key, identity.session_key, from_seq, through_seq, rows)


def _read(identity: SessionIdentity, kind: Kind, seq: int, row: CorrectRow) -> Correction:
    match row.status:
        case "ok" | "repeated":
            return Correction(
                row.number, kind, row.from_seq, row.through_seq, tuple(row.seqs), row.created_at
            )
        case "conflict":
            raise _conflict(identity)
        case "head":
            raise DeliveredError(
                f"Message {seq} of session {quote(identity.session_id)} belongs to the pinned head, and"
                " messages behind it were delivered; nothing was taken back. Replace its content, or"
                " call reset() to start the session over."
            )
        case "full":
            raise NamespaceFullError.of_bound(identity.namespace, "bytes")
        case "large":
            problem = (
                "With this content the session's window would have too many bytes; nothing was changed."
                " Flush the session first."
            )
            raise ConflictError(problem, for_clients=problem)
        case "removed":
            raise NotFoundError(
                f"Messages of session {quote(identity.session_id)} from {seq} on have left its log by its"
                " retention, so it cannot be taken back to there; nothing was changed. Rewind to a later"
                " message, or call reset() to start the session over."
            )
        case _:
            raise _not_found(identity, seq)


def _conflict(identity: SessionIdentity) -> ConflictError:
    return ConflictError(
        f"This idempotency key was used for another correction of session {quote(identity.session_id)};"
        " nothing was changed. Give a new correction a new key.",
        for_clients="This Idempotency-Key was used for another correction of this session; nothing was"
        " changed. Give a new correction a new key.",
    )


def _not_found(identity: SessionIdentity, seq: int) -> NotFoundError:
    return NotFoundError(
        f"Session {quote(identity.session_id)} has no message {seq}: it was not put, was taken back, or has"
        " left the log by its retention; nothing was changed."
    )


def _busy(identity: SessionIdentity) -> ConflictError:
    return ConflictError(
        f"Session {quote(identity.session_id)} changed {MAX_ATTEMPTS} times while it was being corrected;"
        " nothing was changed. Try again when fewer callers are putting to it.",
        for_clients="Other requests were putting to this session; nothing was changed. Try again.",
    )
