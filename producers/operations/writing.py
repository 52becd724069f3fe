"""Operations that put messages, replace them all, flush and deliver them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.flush.flush import Flushed, deliver_by_hand, end_delay, flush_by_hand
from strandline.producers.arguments import check_flag, check_timeout, listed_messages
from strandline.producers.operations.session import Session
from strandline.producers.reading.summary import Summary, wait_for_summary
from strandline.producers.sessions import history_page
from strandline.producers.writing.correcting.reset import reset as reset_session
from strandline.producers.writing.put import Accept, PutRequest, PutResult, carry_out_put
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.operations import ASIDE, Compute, Operation, Run, is_aside
from strandline.schemas.values.message import HEAD_ROLES

T = TypeVar("T")


def put(
    session: Session, messages: Sequence[object], replace_prompt: bool, accept: Accept | None
) -> Operation[PutResult]:
    """Put messages; ``accept`` stores a single one, alone or with puts of others.

    ``accept`` is None in the caller's transaction.
    """
    if replace_prompt is not False:
        replace_prompt = check_flag("replace_prompt", replace_prompt)
    check = partial(check_put, session, messages, replace_prompt=replace_prompt)
    if session.redaction is None and session.resources.compliance is None and ASIDE.get() is None:
        return carry_out_put(check(), accept)
    return _put_checked(session, check, accept)


def set(
    session: Session, messages: Sequence[object], *, connection: object | None = None
) -> Operation[list[int]]:
    """Replace the history by ``messages``, atomically; memory derived earlier stays."""
    messages = listed_messages(messages)
    request: PutRequest | None = None
    if messages:
        check = partial(check_put, session, messages)
        request = check() if session.redaction is None else (yield Run(check))
        request.act = None  # all of it is one act
    kept = [] if request is None else [message.source for message in request.messages]
    result = yield from session.recorder.change(
        Act.here("set", count=len(messages)), partial(_replace_all, session, request), messages=kept
    )
    session.notify(result.flushed, connection)
    return result.seqs


def reset(session: Session, *, derived: bool = False, connection: object | None = None) -> Operation[None]:
    """Start the history over; with ``derived``, also forget the memory derived from this session.

    Without ``derived`` the old messages no longer appear in reads but stay in the log, and pending work
    on them is void. With it they are deleted.  Facts that people added or worded by hand stay.
    """
    act = Act.here("forget" if check_flag("derived", derived) else "reset")
    return session.recorder.carry_out(act, partial(reset_session, session.identity, derived=derived))


def flush(session: Session, *, all: bool = False, connection: object | None = None) -> Operation[list[UUID]]:
    """Flush now: all but the last turn, or with ``all`` everything; returns the events recorded."""
    identity, everything = session.identity, check_flag("all", all)
    flushing = flush_by_hand(identity.keys, everything=everything)
    return _flush_and_notify(session, flushing, connection)


def deliver(session: Session, *, connection: object | None = None) -> Operation[list[UUID]]:
    """Deliver all undelivered messages, keeping them in the window; return the events recorded.

    For the end of a run, or of a conversation.  A tool call without its result stays undelivered.  With
    the policy ``deliver="turn"`` each turn is delivered so when it ends.

    Raises:
        OwnerError: the session belongs to another owner.
    """
    identity = session.identity
    return _flush_and_notify(session, deliver_by_hand(identity.keys), connection)


def summarize(session: Session, *, wait: float | None = None) -> Operation[Summary | None]:
    """Deliver all undelivered messages, as ``deliver`` does, and return the session's summary.

    Workers make it; a bad answer of their model keeps the summary before.  None: nothing was said yet, or
    workers are not done.

    Args:
        wait: the longest wait for the workers, in seconds; None: do not wait.

    Raises:
        NotFoundError: the session has no messages yet.
        ConfigurationError: the session does not feed summaries.
        OwnerError: the session belongs to another owner.
    """
    seconds = None if wait is None else check_timeout(wait)
    yield from deliver(session)
    return (yield from session.record_read("summary.read", wait_for_summary(session.identity, seconds)))


def check_put(
    session: Session,
    messages: Sequence[object],
    *,
    max_messages: int | None = None,
    is_redacted: bool = False,
    replace_prompt: bool = False,
) -> PutRequest:
    """Check messages as a put does; ``max_messages``: default: the settings'.

    Raises:
        InvalidMessageError: one cannot be stored as given, or a redaction hook refuses it.
        RedactionError: a redaction hook failed.
    """
    settings = session.resources.settings
    request = PutRequest.check(
        messages,
        identity=session.identity,
        policy=session.policy,
        rules=replace(session.rules, redaction=None) if is_redacted else session.rules,
        max_messages=settings.max_messages_per_put if max_messages is None else max_messages,
    )
    request.turn_delay_seconds = settings.turn_delay_seconds
    return _replacing_prompt(request) if replace_prompt else request


def check_aside(session: Session, check: Callable[[], T]) -> Operation[T]:
    """Check off the event loop: a hook of the application runs, or the messages are large."""
    checked: T = yield Compute(check) if session.redaction is None else Run(check)
    return checked


def check_act(session: Session, request: PutRequest) -> Operation[PutRequest]:
    """The put with the flags of the compliance hook, which may refuse it."""
    messages = [message.source for message in request.messages]
    act = yield from session.recorder.check(request.make_act(), messages=messages)
    request.flags = act.flags
    return request


def _put_checked(
    session: Session, check: Callable[[], PutRequest], accept: Accept | None
) -> Operation[PutResult]:
    checks_aside = session.redaction is not None or is_aside()
    request = (yield from check_aside(session, check)) if checks_aside else check()
    if session.resources.compliance is not None:
        request = yield from check_act(session, request)
    return (yield from carry_out_put(request, accept))


def _replace_all(session: Session, request: PutRequest | None) -> Operation[PutResult]:
    yield from reset_session(session.identity, None, derived=False)
    if request is None:
        return PutResult([], None)
    return (yield from carry_out_put(request))


def _flush_and_notify(
    session: Session, flushing: Operation[Flushed | None], connection: object | None
) -> Operation[list[UUID]]:
    identity = session.identity
    flushed = yield from flushing
    waiting = yield from end_delay(identity.keys)
    if connection is None:
        session.resources.ring(waiting)
    if flushed is None:
        yield from history_page(identity, 0, 1)  # raises if the session belongs to another owner
    return session.notify(flushed, connection)


def _replacing_prompt(request: PutRequest) -> PutRequest:
    """The put, whose first message replaces the prompt; raises InvalidMessageError if it cannot."""
    if request.places[0] != 0 or request.messages[0].role not in HEAD_ROLES:
        where = "message" if len(request.places) == 1 else "messages[0]"
        raise InvalidMessageError(
            f"{where}.role", "must be system or developer: with replace_prompt it becomes the prompt"
        )
    request.replaces_prompt = True
    return request
