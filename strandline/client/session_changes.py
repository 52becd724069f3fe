"""The operations that flush, correct and configure a session, by the names of ``Memory``'s methods."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from strandline.client.operations import Operation, SessionFace, once, set_fields
from strandline.client.session_operations import session_call
from strandline.client.values import correction_from, messages_from
from strandline.producers.arguments import check_flag
from strandline.producers.writing.correcting.correct import Correction
from strandline.producers.writing.correcting.fork import Fork
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.values.message import Content, Message, plain
from strandline.schemas.values.policy import Deliver, Policy, Unchanged, stored_policy
from strandline.schemas.wire.messages import CorrectionOut, FlushEvents
from strandline.schemas.wire.sessions import ForkOut, PolicyOut, PopOut, RetentionOut, RetentionSet


def reset(memory: SessionFace, *, derived: bool = False) -> Operation[None]:
    """Start the history over; with ``derived``, also forget the memory derived from this session."""
    yield session_call(
        memory, "POST", "reset", body={"derived": check_flag("derived", derived)}, headers=once()
    )


def flush(memory: SessionFace, *, all: bool = False) -> Operation[list[UUID]]:
    """Flush now: all but the last turn, or with ``all`` everything; returns the events recorded."""
    reply = yield session_call(memory, "POST", "flush", body={"all": check_flag("all", all)}, headers=once())
    return reply.read(FlushEvents).events


def deliver(memory: SessionFace) -> Operation[list[UUID]]:
    """Deliver all that was not delivered yet, and keep it in the window; return the events recorded."""
    reply = yield session_call(memory, "POST", "flush", body={"keep": True}, headers=once())
    return reply.read(FlushEvents).events


def pop(memory: SessionFace) -> Operation[Message | None]:
    """Remove the newest message and return it; None if none is left."""
    reply = yield session_call(memory, "DELETE", "messages/last", headers=once())
    message = reply.read(PopOut).message
    return None if message is None else messages_from([message])[0]


def rewind(
    memory: SessionFace, from_seq: int, *, actor: str | None = None, idempotency_key: str | None = None
) -> Operation[Correction]:
    """Take back every message from ``from_seq`` on, with everything derived from them."""
    body = set_fields(from_seq=from_seq, actor=actor)
    reply = yield session_call(memory, "POST", "rewind", body=body, headers=once(idempotency_key))
    return correction_from(reply.read(CorrectionOut))


def replace(
    memory: SessionFace,
    seq: int,
    content: Content,
    *,
    actor: str | None = None,
    idempotency_key: str | None = None,
) -> Operation[Correction]:
    """Give a message other content at the same place: for moderation, or to redact it."""
    try:
        body = {"content": plain(content), **set_fields(actor=actor)}
    except TypeError as error:
        raise InvalidMessageError("content", str(error), for_clients=InvalidMessageError.UNTOLD) from None
    reply = yield session_call(
        memory, "PUT", "messages", seq, "content", body=body, headers=once(idempotency_key)
    )
    return correction_from(reply.read(CorrectionOut))


def fork(
    memory: SessionFace, session_id: str | None = None, *, through_seq: int | None = None
) -> Operation[Fork]:
    """Begin another session of this user with the messages of this one, and everything derived from them."""
    body = set_fields(session_id=session_id, through_seq=through_seq)
    reply = yield session_call(memory, "POST", "fork", body=body, headers=once())
    done = reply.read(ForkOut)
    return Fork(done.session_id, done.through_seq, done.messages)


def set_policy(
    memory: SessionFace,
    *,
    token_limit: int | None = None,
    chat_history_token_ratio: float | None = None,
    token_flush_size: int | None = None,
    idle_seconds: int | Unchanged | None = Unchanged.UNCHANGED,
    memory_blocks: Sequence[str] | None = None,
    max_window_messages: int | None = None,
    max_window_bytes: int | None = None,
    message_flush_size: int | None = None,
    deliver: Deliver | None = None,
    time_zone: str | None = None,
    actor: str | None = None,
) -> Operation[Policy]:
    """Change the stored policy of the session, from the next put and flush on; return the new one.

    ``memory_blocks`` are names of pipelines.  This memory reads with the new ``token_limit`` at once.
    """
    body = set_fields(
        token_limit=token_limit,
        chat_history_token_ratio=chat_history_token_ratio,
        token_flush_size=token_flush_size,
        blocks=None if memory_blocks is None else [*memory_blocks],
        max_window_messages=max_window_messages,
        max_window_bytes=max_window_bytes,
        message_flush_size=message_flush_size,
        deliver=deliver,
        time_zone=time_zone,
        actor=actor,
    )
    if not isinstance(idle_seconds, Unchanged):
        body["idle_seconds"] = idle_seconds
    reply = yield session_call(memory, "PATCH", "policy", body=body)
    policy = stored_policy(reply.read(PolicyOut))
    if token_limit is not None:
        memory.read_within(policy.token_limit)
    return policy


def get_retention(memory: SessionFace) -> Operation[Retention]:
    """What applies to this session now; what its own act leaves open, as the namespace's has it."""
    reply = yield session_call(memory, "GET", "retention")
    return Retention(**reply.read(RetentionOut).model_dump())


def set_retention(memory: SessionFace, retention: Retention, *, actor: str | None = None) -> Operation[int]:
    """Set how long this session is kept, as a numbered act; returns its number."""
    if not isinstance(retention, Retention):
        raise InvalidMessageError("retention", f"must be a Retention, not {type(retention).__name__}")
    if retention.archive is not None:
        raise InvalidMessageError("archive", "is a choice of the namespace, which its operators make")
    retention.check(of_session=True)
    fields = ("ttl_seconds", "max_age_seconds", "max_messages", "forget_facts")
    body = set_fields(**{name: getattr(retention, name) for name in fields}, actor=actor)
    reply = yield session_call(memory, "PUT", "retention", body=body)
    return reply.read(RetentionSet).number
