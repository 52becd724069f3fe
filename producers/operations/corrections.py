"""Operations that take back messages, give them other content, or fork the session."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from strandline.pipelines.audit.appending import Act
from strandline.producers.arguments import check_seq
from strandline.producers.operations.session import Session
from strandline.producers.operations.writing import check_put
from strandline.producers.writing.correcting.correct import Correcting, Correction, Replacement, correction_id
from strandline.producers.writing.correcting.fork import Fork
from strandline.producers.writing.correcting.fork import fork as fork_session
from strandline.producers.writing.correcting.pop import Keep, pop_part
from strandline.schemas.postgres.operations import Operation, Run
from strandline.schemas.values.identity import check_name, identify_session
from strandline.schemas.values.message import Content, Message


def rewind(
    session: Session,
    from_seq: int,
    *,
    actor: str | None = None,
    idempotency_key: str | None = None,
    connection: object | None = None,
) -> Operation[Correction]:
    """Take back every message from ``from_seq`` on: to edit a message, or to have an answer again.

    Put the next messages afterwards; they get new numbers, and may reuse ids of messages taken back.
    Everything derived from the messages is gone when this returns, and is derived again from the rest.
    It keeps no copy of the messages.

    Args:
        from_seq: the first message to take back.
        actor: the name of the person who corrects, kept with the record.
        idempotency_key: names this correction: made again with the same key, it changes nothing and
            returns the same; at most 512 bytes.  By default each call is a correction of its own.

    Raises:
        NotFoundError: the session has no such number.
        DeliveredError: the message is in the pinned head, and messages behind it were delivered.
        ConflictError: the key was used for another correction, or flushes kept coming between; or the
            message is a tool's result, whose call would stay: rewind to the call.
        OwnerError: the session belongs to another owner.
    """
    seq, who, key = _check("from_seq", from_seq, actor, idempotency_key)
    id_ = correction_id(session.identity, key)
    return session.recorder.carry_out(
        Act.here("rewind", actor=who), lambda act: Correcting(session.identity, id_, act).rewind(seq)
    )


def replace(
    session: Session,
    seq: int,
    content: Content,
    *,
    actor: str | None = None,
    idempotency_key: str | None = None,
    connection: object | None = None,
) -> Operation[Correction]:
    """Give a message other content at the same place: for moderation, or to redact it.

    Its id, role, name, calls, metadata and time stay.  Everything derived from it is gone when this returns,
    and is derived again from the new content.  It keeps no copy of the old content.

    Args:
        seq: the message.
        content: text or content parts, as in a put; None for an assistant's message with calls.
        actor, idempotency_key: as for ``rewind``.

    Raises:
        NotFoundError: the session has no such message, or it was taken back.
        InvalidMessageError: the content cannot be stored as given, or a redaction hook refuses it.
        RedactionError: a redaction hook failed, or took too long; nothing was changed.
        ConflictError, OwnerError: as for ``rewind``.
    """
    seq, who, key = _check("seq", seq, actor, idempotency_key)
    if session.redaction is not None:
        content = yield Run(partial(session.rules.redact_content, content))
    replacement = Replacement(seq, content, session.rules)
    id_ = correction_id(session.identity, key)
    messages = [] if content is None else [Message("user", content)]
    act = Act.here("replace", actor=who)
    return (
        yield from session.recorder.carry_out(
            act,
            lambda act: Correcting(session.identity, id_, act).replace_content(replacement),
            messages=messages,
        )
    )


def pop(
    session: Session, *, keep: Keep | None = None, connection: object | None = None
) -> Operation[Message | None]:
    """Remove the newest message and return it, for example to repeat the last turn; None if none is left.

    Its ``seq`` is not used again.  If it was delivered to the pipelines, it is taken back as by
    ``rewind``, with everything derived from it.  If it is a tool's result, its call and the other
    results of this call are taken back with it, unless another message stands between.

    Args:
        keep: returns the part of the message to put again in the same transaction, as for ``put_messages``;
            if it raises an exception, the message stays.  It may be called more than once.  By default
            nothing is put again.  With it no other message is removed.

    Raises:
        OwnerError: the session belongs to another owner.
        ConflictError: other callers put so often that another message was always newer.
        InvalidMessageError: the part to put again cannot be stored.
    """
    popping = partial(pop_part, session.identity, keep, partial(check_put, session))
    popped = yield from session.recorder.carry_out(Act.here("pop"), popping)
    session.notify(popped.flushed, connection)
    return popped.message


def fork(
    session: Session,
    session_id: str | None = None,
    *,
    through_seq: int | None = None,
    connection: object | None = None,
) -> Operation[Fork]:
    """Begin another session of this user with the messages of this one, and everything derived from them.

    Messages keep their numbers, ids and times.  Facts are the user's already, so nothing is extracted again
    from messages delivered before the cut.  The new session has the policy of this one, and shares with no
    scope.  Open it with ``Memory.from_defaults(fork.session_id, user_id=…)``.

    Args:
        session_id: of the new session; default: a random one.
        through_seq: the last message to take over; default: all.  A tool call's results directly behind
            it are taken over with it.

    Raises:
        ConfigurationError: the session has no user: its fork would be another owner's.
        NotFoundError: the session has no such message.
        ConflictError: the new session was put to already.
        OwnerError: one of the two belongs to another owner.
    """
    old = session.identity
    new = identify_session(old.namespace, uuid4().hex if session_id is None else session_id, old.user_id)
    through = None if through_seq is None else check_seq("through_seq", through_seq)
    return session.recorder.carry_out(Act.here("fork"), partial(fork_session, old, new, through))


def _check(
    name: str, seq: object, actor: object | None, idempotency_key: object | None
) -> tuple[int, str | None, str | None]:
    return (
        check_seq(name, seq),
        None if actor is None else check_name("actor", actor),
        None if idempotency_key is None else check_name("idempotency_key", idempotency_key),
    )
