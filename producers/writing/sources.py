"""Sources: messages that are in no chat, kept for the facts that come from them.

Each call has a session of its own, of another kind than a chat.  So provenance, replay, ``verify``,
``explain`` and forgetting work as for a chat; but no other call's lines are context, and no list of sessions
shows it.  It feeds facts alone.  Its id follows from the owner and the call's key: a repeated call is the
same source.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID, uuid4, uuid5

from strandline.pipelines.flush.flush import deliver_closed
from strandline.producers.facts.listing import Fact, get_fact
from strandline.producers.sessions import SessionKind, claim_session
from strandline.producers.tokens import DEFAULT_ENCODING
from strandline.producers.writing.put import PutRequest, carry_out_put
from strandline.producers.writing.validate import PutRules
from strandline.schemas.errors import ConfigurationError, ConflictError, InvalidMessageError
from strandline.schemas.postgres.operations import Atomic, Operation, Pause, fetch
from strandline.schemas.queries.conversation.messages import History
from strandline.schemas.queries.derived.capture import (
    ChangesOfEvents,
    EventsLeft,
    EventsLeftRow,
    SourceEvents,
)
from strandline.schemas.values.flush_event import FlushCause
from strandline.schemas.values.identity import Owner, SessionIdentity, check_name, identify_session
from strandline.schemas.values.lanes import FACTS, Lane
from strandline.schemas.values.message import Message
from strandline.schemas.values.policy import MAX_INTEGER, make_policy

_PREFIX = "strandline.source."
_MAX_PAUSE_SECONDS = 0.25
_KEY_USED = "This key was already used with other messages; nothing was stored. Give new messages a new key."


@dataclass(frozen=True, slots=True)
class FactChanges:
    """The outcome of messages given for facts alone.

    Attributes:
        source_id: names the source: the session in which the messages are kept.
        is_complete: whether workers have finished it; if not, the rest is still to come, or
            ``failure`` says why it is not.
        added, updated: the facts as they are now, if they still exist.
        deleted: ids of facts that ended.
        failure: why workers gave up on it, in a sentence; it is a dead letter, and can be tried again
            (``strandline dead-letters``).  None: they did not.
    """

    source_id: str
    is_complete: bool
    added: tuple[Fact, ...] = ()
    updated: tuple[Fact, ...] = ()
    deleted: tuple[UUID, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A source that is stored: its session, its events, and the lanes that have work."""

    identity: SessionIdentity
    event_ids: tuple[UUID, ...]
    lanes: tuple[Lane, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """Messages to keep as a source, checked."""

    put: PutRequest
    kind: SessionKind

    @classmethod
    def check(
        cls,
        owner: Owner,
        messages: Sequence[object],
        *,
        key: str | None,
        kind: SessionKind,
        rules: PutRules,
        max_messages: int,
    ) -> SourceRequest:
        """Check the arguments of a caller.

        Raises:
            ConfigurationError: the owner is a session without a user.
            InvalidMessageError: a message cannot be stored, or is refused, there are none or too many, or
                ``key`` cannot be used.
            RedactionError: a redaction hook failed.
        """
        if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
            raise InvalidMessageError("messages", "must be a list of at least one message")
        identity = source_identity(owner, kind, uuid4().hex if key is None else check_name("key", key))
        conversation = [
            Message.from_openai(message, where=f"messages[{n}]") for n, message in enumerate(messages)
        ]
        put = PutRequest.check(
            [m if m.id is not None else replace(m, id=f"{n}") for n, m in enumerate(conversation, 1)],
            identity=identity,
            policy=make_policy(
                token_limit=MAX_INTEGER,
                idle_seconds=None,
                tokenizer=DEFAULT_ENCODING,
                pipelines=(FACTS,),
                max_window_messages=MAX_INTEGER,
                max_window_bytes=MAX_INTEGER,
            ),
            rules=rules,
            max_messages=max_messages,
        )
        return cls(put, kind)


def source_identity(owner: Owner, kind: SessionKind, key: str) -> SessionIdentity:
    """The session of a source; raises ConfigurationError if the owner is a session without a user."""
    return named_source(owner, f"{_PREFIX}{uuid5(owner.shard_key, f'{kind}/{key}').hex}")


def named_source(owner: Owner, source_id: str) -> SessionIdentity:
    """The session of a source, by its id.

    Raises:
        ConfigurationError: the owner is a session without a user.
        InvalidMessageError: it is not the id of a source.
    """
    if owner.user_id is None:
        raise ConfigurationError(
            "Facts are made from messages alone for a user; put the messages into the session instead."
        )
    if not check_name("source_id", source_id).startswith(_PREFIX):
        raise InvalidMessageError("source_id", "is not the id of a source; FactChanges.source_id names it")
    return identify_session(owner.namespace, source_id, owner.user_id)


def keep_source(request: SourceRequest) -> Operation[Source]:
    """Store the messages and deliver them, in one transaction; a source that is kept already stays.

    Raises:
        ConflictError: the key was already used with other messages.
        UnknownPipelineError: no worker has registered facts.
    """
    yield from claim_session(request.put.identity, request.kind)
    source: Source = yield Atomic(partial(_put, request))
    return source


def wait_for_changes(owner: Owner, source: Source, wait_seconds: float | None) -> Operation[FactChanges]:
    """The outcome of a source, once the derivation that serves has merged it, or after so many seconds."""
    until, pause = time.monotonic() + (wait_seconds or 0), 0.01
    while (left := (yield from _events_left(owner, source))).events and time.monotonic() < until:
        yield Pause(min(pause, max(0.0, until - time.monotonic())))
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    rows = yield from fetch(ChangesOfEvents(shard_key=owner.shard_key, event_ids=list(source.event_ids)))
    facts: dict[str, list[Fact]] = {"add": [], "update": []}
    ended: list[UUID] = []
    for row in rows:
        if row.operation == "invalidate":
            ended.append(row.fact_id)
        elif fact := (yield from get_fact(owner, row.fact_id)):
            facts[row.operation].append(fact)
    return FactChanges(
        source.identity.session_id,
        left.events == 0 and left.failure is None,
        tuple(facts["add"]),
        tuple(facts["update"]),
        tuple(ended),
        left.failure,
    )


def _events_left(owner: Owner, source: Source) -> Operation[EventsLeftRow]:
    (left,) = yield from fetch(EventsLeft(shard_key=owner.shard_key, event_ids=list(source.event_ids)))
    return left


def _put(request: SourceRequest) -> Operation[Source]:
    put = request.put
    identity = put.identity
    try:
        yield from carry_out_put(put)
    except ConflictError:
        raise ConflictError(_KEY_USED, for_clients=_KEY_USED) from None
    stored = yield from fetch(
        History(**identity.keys, after_seq=0, page_size=len(put.messages) + 1, page_bytes=MAX_INTEGER)
    )
    cause: FlushCause = "source" if request.kind == "source" else "instruction"
    delivered = yield from deliver_closed(identity.keys, cause)
    rows = yield from fetch(SourceEvents(**identity.keys))
    event_ids = tuple(row.event_id for row in rows)
    is_new = delivered is None or set(event_ids) == set(delivered.event_ids)
    if len(stored) != len(put.messages) or not is_new:
        raise ConflictError(_KEY_USED, for_clients=_KEY_USED)
    return Source(identity, event_ids, delivered.lanes if delivered else ())
