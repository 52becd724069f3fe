"""Corrects a session's log: takes its end back, or gives one message other content.

A correction is a row of its own, and never updates a message; memory derived from the messages is given up in
the same transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any, Literal
from uuid import UUID, uuid4, uuid5

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.facts.edits import take_away_again
from strandline.pipelines.vectors.sharing import clear_copies
from strandline.producers.sessions import check_unowned
from strandline.producers.writing.validate import PutRules, prepare, seal_envelope
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
from strandline.schemas.values.same_named import make_from

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
    """Other content for a message."""

    seq: int
    content: Content
    rules: PutRules

    def digest(self) -> bytes:
        """By which the same request is known again."""
        if self.content is None:
            return b"none"
        envelope = prepare(Message("user", self.content), "message", self.rules.limits).envelope
        return blake2b(envelope.encode(), digest_size=16).digest()


def correction_id(identity: SessionIdentity, idempotency_key: str | None) -> UUID:
    """The id of a correction: it follows from the caller's key, or names this attempt."""
    return uuid4() if idempotency_key is None else uuid5(identity.session_key, idempotency_key)


# Of a correction, the parameters that only some kinds have.
_UNSET: dict[str, Any] = dict.fromkeys(
    ("newest", "corrections", "content", "expected", "digest", "envelope", "tokens", "bytes")
)


@dataclass(frozen=True, slots=True)
class Correcting:
    """One correction of a session's log, with its id, and the act that the audit trail records."""

    identity: SessionIdentity
    id_: UUID
    act: Act

    def take_back(self, newest: int, from_seq: int) -> Operation[bool]:
        """Rewind to before ``from_seq``; False if ``newest`` is no longer the newest message.

        Raises:
            ConflictError: flushes kept coming between.
        """
        for _attempt in range(MAX_ATTEMPTS):
            row = yield from self._correct(self._request("rewind", from_seq, newest=newest))
            if row.status in ("changed", "missing"):  # missing: another correction took it back
                return False
            if row.status != "again":
                self._read("rewind", from_seq, row)
                return True
        raise _busy(self.identity)

    def rewind_if_unchanged(
        self, from_seq: int, *, newest: int | None, corrections: int
    ) -> Operation[Correction | None]:
        """Take back every message from ``from_seq`` on; None if the log changed.

        Args:
            newest: the number of the newest message there is to be.
            corrections: how often the log was corrected.

        Raises: as ``rewind``.
        """
        asked = self._request("rewind", from_seq, newest=newest, corrections=corrections)
        for _attempt in range(MAX_ATTEMPTS):
            row = yield from self._correct(asked)
            if row.status == "changed":
                return None
            if row.status != "again":
                return self._read("rewind", from_seq, row)
        raise _busy(self.identity)

    def rewind(self, from_seq: int) -> Operation[Correction]:
        """Take back every message from ``from_seq`` on; ``operations.corrections`` lists its errors."""
        yield from self._check_calls(from_seq)
        for _attempt in range(MAX_ATTEMPTS):
            row = yield from self._correct(self._request("rewind", from_seq))
            if row.status != "again":
                return self._read("rewind", from_seq, row)
        raise _busy(self.identity)

    def _check_calls(self, from_seq: int) -> Operation[None]:
        """Refuse a new rewind that would take a result and leave its call."""
        for parted in (yield from fetch(PartedCall(**self.identity.keys, seq=from_seq))):
            known = FindCorrection(
                shard_key=self.identity.shard_key, correction_id=self.id_, digest=b"", clear_digest=None
            )
            if not (yield from fetch(known)):
                why = (
                    f"A tool call in message {parted.call_seq} would lose its result; nothing was changed."
                    f" Rewind to {parted.call_seq}, or to what follows {parted.result_seq}."
                )
                raise ConflictError(why, for_clients=why)

    def replace_content(self, replacement: Replacement) -> Operation[Correction]:
        """Give one message other content.

        Raises:
            NotFoundError: the session has no such message, or it was taken back.
            InvalidMessageError: the content cannot be stored as given.
            ConflictError, OwnerError: as for ``rewind``.
        """
        content = replacement.digest()
        seq = replacement.seq
        asked_before = FindCorrection(
            shard_key=self.identity.shard_key, correction_id=self.id_, digest=content, clear_digest=content
        )
        for known in (yield from fetch(asked_before)):
            mine = (self.identity.session_key, "replace", seq)
            if (known.session_key, known.kind, known.from_seq) != mine or not known.is_of_content:
                raise _conflict(self.identity)
            yield from self._clear_shared(seq, seq)
            return make_from(Correction, known, kind="replace", seqs=tuple(known.seqs))
        for _attempt in range(MAX_ATTEMPTS):
            rows = yield from fetch(MessageAt(**self.identity.keys, seq=seq))
            if not rows:
                yield from check_unowned(self.identity)
                raise _not_found(self.identity, seq)
            keys = yield from find_owner_keys(self.identity.shard_key)
            make = partial(self._replacement, replacement, rows[0], content, keys)
            asked = yield Run(make)
            row = yield from self._correct(asked)
            if row.status not in ("again", "changed"):
                return self._read("replace", seq, row)
        raise _busy(self.identity)

    def _replacement(
        self, replacement: Replacement, row: MessageAtRow, content: bytes, keys: OwnerKeys | None
    ) -> Correct:
        (message,) = read_rows([row])
        prepared = prepare(replace(message, content=replacement.content), "message", replacement.rules.limits)
        return self._request(
            "replace",
            replacement.seq,
            content=content,
            expected=row.digest,
            digest=prepared.digest,
            envelope=seal_envelope(prepared, keys),
            tokens=replacement.rules.count(prepared.source),
            bytes=prepared.size,
        )

    def _request(self, kind: Kind, from_seq: int, **others: Any) -> Correct:
        return Correct(
            **self.identity.keys,
            correction_id=self.id_,
            kind=kind,
            from_seq=from_seq,
            actor=self.act.named_actor,
            act=self.act.as_json(),
            **(_UNSET | others),
        )

    def _correct(self, asked: Correct) -> Operation[CorrectRow]:
        row: CorrectRow | None = yield Atomic(partial(self._correct_once, asked))
        if row is not None and row.is_shared and row.status in ("ok", "repeated"):
            yield from self._clear_shared(row.from_seq, row.through_seq)
        if row is None:
            # No such session, or another owner's.
            yield from check_unowned(self.identity)
            raise NotFoundError(
                f"Nothing has been put yet to session {quote(self.identity.session_id)} in namespace"
                f" {quote(self.identity.namespace)}, so there is nothing to correct."
            )
        return row

    def _correct_once(self, asked: Correct) -> Operation[CorrectRow | None]:
        rows = yield from fetch(asked)
        for row in rows:
            yield from take_away_again(self.identity.shard_key, row.touched)
            return row
        return None

    def _clear_shared(self, from_seq: int, through_seq: int) -> Operation[None]:
        """Remove the messages' copies in a shared scope.

        They lie under the scope's key, so a second transaction deletes them after the correction.  If it
        fails, the worker that derives the messages again deletes them, or the repeated correction.
        """
        for scope in (yield from fetch(SharedScopeOf(**self.identity.keys))):
            yield Atomic(partial(self._clear_scope, scope, from_seq, through_seq))

    def _clear_scope(self, scope: SharedScopeOfRow, from_seq: int, through_seq: int) -> Operation[None]:
        # A worker that copies holds the same row, and looks at its lease, which is lost, once it has that.
        yield from fetch(
            LockSharedSession(
                shard_key=scope.shared_key,
                session_key=self.identity.session_key,
                incarnation=scope.incarnation,
                owner_key=self.identity.shard_key,
                session_id=scope.session_id,
            )
        )
        rows = yield from fetch(
            RangeMessages(**self.identity.keys, from_seq=from_seq, through_seq=through_seq)
        )
        yield from clear_copies(scope.shared_key, self.identity.session_key, from_seq, through_seq, rows)

    def _read(self, kind: Kind, seq: int, row: CorrectRow) -> Correction:
        match row.status:
            case "ok" | "repeated":
                return make_from(Correction, row, kind=kind, seqs=tuple(row.seqs))
            case "conflict":
                raise _conflict(self.identity)
            case "head":
                raise DeliveredError(
                    f"Message {seq} of session {quote(self.identity.session_id)} belongs to the pinned head,"
                    " and messages behind it were delivered; nothing was taken back. Replace its content, or"
                    " call reset() to start the session over."
                )
            case "full":
                raise NamespaceFullError.of_bound(self.identity.namespace, "bytes")
            case "large":
                problem = (
                    "With this content the session's window would have too many bytes; nothing was changed."
                    " Flush the session first."
                )
                raise ConflictError(problem, for_clients=problem)
            case "removed":
                raise NotFoundError(
                    f"Messages of session {quote(self.identity.session_id)} from {seq} on have left its log"
                    " by its retention, so it cannot be taken back to there; nothing was changed. Rewind to a"
                    " later message, or call reset() to start the session over."
                )
            case _:
                raise _not_found(self.identity, seq)


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
