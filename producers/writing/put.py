"""Putting: append messages to a session's log, and flush when the put crosses the mark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from strandline.pipelines.flush.flush import Flushed, flush_at_put
from strandline.producers.sessions import claim_session
from strandline.producers.tokens import INLINE_CHARACTERS, PART_TOKENS, count_message, is_loaded
from strandline.producers.writing.accepting import Accept, SinglePut
from strandline.producers.writing.unregistered import unknown_pipelines
from strandline.producers.writing.validate import PreparedMessage, PutLimits, prepare
from strandline.schemas.errors import (
    ConflictError,
    ErasedError,
    InvalidMessageError,
    StrandlineError,
)
from strandline.schemas.postgres.operations import Operation, Run, fetch
from strandline.schemas.queries.conversation.messages import Put, PutImportedRow, PutRow
from strandline.schemas.values.foreign_values import unreadable
from strandline.schemas.values.identity import SessionIdentity, shared_scope_key
from strandline.schemas.values.labels import label_array
from strandline.schemas.values.message import Message
from strandline.schemas.values.policy import Policy

logger = logging.getLogger("strandline.producers")


@dataclass(slots=True)
class PutRequest:
    """One put, checked and ready: it can still be refused only because of its ids or its owner.

    The ids are made here, before the first attempt, so that a repeated attempt is the same put.
    """

    identity: SessionIdentity
    policy: Policy
    messages: tuple[PreparedMessage, ...]
    places: tuple[int, ...]
    count_text: Callable[[str], int]
    part_tokens: Mapping[str, int]

    @classmethod
    def check(
        cls,
        sources: Sequence[object],
        *,
        identity: SessionIdentity,
        policy: Policy,
        count_text: Callable[[str], int],
        part_tokens: Mapping[str, int] = PART_TOKENS,
        limits: PutLimits,
        max_messages: int,
    ) -> PutRequest:
        """Check every message of a put.

        Raises:
            InvalidMessageError: a message cannot be stored, or there are too many.
            ConflictError: two messages have the same id and different content.
        """
        if not isinstance(sources, (list, Sequence)) or isinstance(sources, (str, bytes)):
            raise InvalidMessageError("messages", f"must be a list of messages, not {type(sources).__name__}")
        if len(sources) > max_messages:
            raise InvalidMessageError(
                "messages",
                f"{len(sources):,} in one put, over the limit of {max_messages:,}; split them into several"
                " puts, or raise STRANDLINE_MAX_MESSAGES_PER_PUT",
            )
        if len(sources) == 1:
            one = prepare(Message.from_openai(sources[0]), "message", limits)
            return cls(identity, policy, (one,), (0,), count_text, part_tokens)
        prepared: dict[str, PreparedMessage] = {}
        order: list[str] = []
        for index, source in enumerate(sources):
            where = f"messages[{index}]"
            one = prepare(Message.from_openai(source, where=where), where, limits)
            if prepared.setdefault(one.id, one).digest != one.digest:
                raise ConflictError(
                    f"{where}.id: {one.id!r} occurs twice in this put with different content."
                )
            order.append(one.id)
        index_of = {message_id: index for index, message_id in enumerate(prepared)}
        places = tuple(index_of[i] for i in order)
        return cls(identity, policy, tuple(prepared.values()), places, count_text, part_tokens)


@dataclass(slots=True)
class PutResult:
    """The seqs of a put, in the order of its messages, and its flush, if it caused one."""

    seqs: list[int]
    flushed: Flushed | None


def put_messages(
    request: PutRequest, accept: Accept, *, in_callers_transaction: bool
) -> Operation[PutResult]:
    """Carry out a put: one round trip, and a second short transaction when the mark is crossed.

    A flush that fails does not fail the put, which is committed by then: the next put or the sweep
    flushes.  The same applies if a crash of Postgres loses the flush, which does not wait for the disk.  In
    the caller's transaction a failed flush does fail the put, since Postgres has ended that transaction.
    """
    if _is_counted_quickly(request):
        tokens = _token_counts(request)
    else:
        tokens = yield Run(partial(_token_counts, request))
    seqs, window = yield from _put(request, tokens, accept)
    flushed = None
    if window is not None:
        identity = request.identity
        try:
            flushed = yield from flush_at_put(
                identity.shard_key, identity.session_key, window, lazily=not in_callers_transaction
            )
        except StrandlineError as error:
            if in_callers_transaction:
                raise
            logger.warning("flush after put failed", extra={"action": "flush_failed", "reason": str(error)})
    return PutResult([seqs[place] for place in request.places], flushed)


def _is_counted_quickly(request: PutRequest) -> bool:
    size = sum([len(message.envelope) for message in request.messages])
    return size <= INLINE_CHARACTERS and is_loaded()


def _token_counts(request: PutRequest) -> list[int]:
    count_text, part_tokens = request.count_text, request.part_tokens
    try:
        return [count_message(message.source, count_text, part_tokens) for message in request.messages]
    except (StrandlineError, MemoryError):
        raise
    except Exception as error:  # the edge to foreign code: the caller's classes
        raise unreadable("messages", error) from error


def _put(request: PutRequest, tokens: list[int], accept: Accept) -> Operation[tuple[list[int], str | None]]:
    """The seqs; and, if the put crossed the mark, the window to plan a flush from."""
    whole = partial(_whole, request, tokens)
    if len(tokens) == 1:
        row = yield from accept(SinglePut(request.identity, request.messages[0], tokens[0], whole))
    else:
        (row,) = yield from fetch(whole())
    if row.status == "unclaimed":
        yield from claim_session(request.identity)
        (row,) = yield from fetch(whole(claimed=True))
    return (yield from check_status(request.identity, row))


def check_status(
    identity: SessionIdentity, row: PutRow | PutImportedRow
) -> Operation[tuple[list[int], str | None]]:
    """Check the result of ``put_v1``: return the seqs, and the window to plan a flush from if the mark was
    crossed.

    Raises:
        ConflictError: an id was already used with different content.
        ErasedError: the owner, or the session, was erased.
        UnknownPipelineError: no worker has registered a pipeline that the session is to feed.
    """
    if row.status == "conflict":
        raise ConflictError(
            f"Message id {row.detail!r} was already used in session {identity.session_id!r} with different"
            " content; nothing was stored. Give a new message a new id."
        )
    if row.status == "erased":
        raise ErasedError(int(row.detail or 0))
    if row.detail is not None:
        raise (yield from unknown_pipelines(row.detail, "Nothing would be derived from its messages."))
    return [seq for seq in row.seqs or () if seq is not None], row.to_flush


def _whole(request: PutRequest, tokens: list[int], *, claimed: bool = False) -> Put:
    messages = request.messages
    return Put(
        **request.identity.keys,
        claimed=claimed,
        session=session_record(request.identity, request.policy),
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
        labels=[label_array(request.identity.session_key, m.metadata) for m in messages],
    )


@lru_cache(maxsize=1024)
def session_record(identity: SessionIdentity, policy: Policy) -> str:
    """The JSON from which put_v1 makes a new session's row."""
    return json.dumps(
        {
            "namespace": identity.namespace,
            "session_id": identity.session_id,
            "user_id": identity.user_id,
            "token_limit": policy.token_limit,
            "flush_at_tokens": policy.flush_at_tokens,
            "token_flush_size": policy.token_flush_size,
            "max_window_messages": policy.max_window_messages,
            "max_window_bytes": policy.max_window_bytes,
            "message_flush_size": policy.message_flush_size,
            "deliver": policy.deliver,
            "idle_seconds": policy.idle_seconds,
            "tokenizer": policy.tokenizer,
            "pipelines": policy.pipelines,
            "max_facts": policy.max_facts,
            "shared_scope": policy.shared_scope,
            "shared_key": _shared_key(identity, policy),
        }
    )


def _shared_key(identity: SessionIdentity, policy: Policy) -> str | None:
    if policy.shared_scope is None:
        return None
    return str(shared_scope_key(identity.namespace, policy.shared_scope))
