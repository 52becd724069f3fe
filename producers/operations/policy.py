"""The operation that changes the stored policy of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

from strandline.pipelines.audit.appending import Act
from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.upkeep.policies import (
    RetentionAct,
    RetentionLevel,
    list_acts,
    read_retention,
    record_retention,
)
from strandline.producers.arguments import check_count, check_flag
from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.blocks.resolve import BlockSource, declare_blocks, max_facts_of, pipelines_of
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.execution import spelled_out
from strandline.producers.operations.session import Session
from strandline.producers.sessions import check_unowned
from strandline.producers.writing.set_policy import PolicySet
from strandline.producers.writing.set_policy import set_policy as store_policy
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.postgres.operations import Operation
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.values.message import NOTHING
from strandline.schemas.values.policy import OF_BLOCKS, Policy, PolicyChange, PolicyChanges

# Values that a session keeps from its first put on, and why.
_FIXED = {
    "tokenizer_fn": "its messages are counted with the tokenizer of the first put",
    "part_tokens": "its messages are counted as they were put",
    "shared_scope": "its messages are already shared with the scope of its first put",
    "user_id": "its owner is fixed at the first put",
    "session_id": "its id cannot change",
    "namespace": "its namespace is fixed at the first put",
}


@spelled_out(PolicyChange, without=OF_BLOCKS, others="fixed")
def set_policy(
    session: Session,
    /,
    *,
    memory_blocks: Sequence[BlockSource] | None = None,
    on_overflow: bool | None = None,
    actor: str | None = None,
    connection: object | None = None,
    **values: Unpack[PolicyChanges],
) -> Operation[Policy]:
    """Change the stored policy of the session, from the next put and flush on; return the new one.

    The change is recorded, with ``actor`` and the time.  Added pipelines receive later flushes;
    `strandline replay` derives from earlier ones. This memory reads with the new limit and blocks at
    once; other ``Memory`` objects keep their own.  If the window is above the new mark, it is flushed:
    at once, or by the sweep if that fails.

    Args:
        token_limit, token_flush_size, memory_blocks, max_window_messages, max_window_bytes,
            message_flush_size, deliver, on_overflow: as for ``from_defaults``; None: unchanged.
        time_zone: as for ``from_defaults``; None: unchanged; ``"UTC"`` takes one back.
        chat_history_token_ratio: as for ``from_defaults``; None: the mark keeps its share of the limit.
        idle_seconds: as for ``from_defaults`` (None: never); by default unchanged.
        actor: the name of the person who makes the change, kept with the record.

    Raises:
        ConfigurationError: a value cannot be used, or cannot be changed (tokenizer, user, shared scope).
        NotFoundError: the session has no messages yet.
        UnknownPipelineError: no worker has registered a pipeline that is added; nothing was changed.
        OwnerError: the session belongs to another owner.
        ConflictError: other callers kept changing the policy; nothing was changed.
    """
    for name in values:
        if name not in PolicyChanges.__annotations__:
            reason = _FIXED.get(name, "it is not part of a session's policy")
            raise ConfigurationError(f"set_policy cannot change {name}: {reason}")
    blocks = None if memory_blocks is None else _declare(session, memory_blocks)
    change = PolicyChange(
        **values,
        pipelines=None if blocks is None else pipelines_of(blocks),
        max_facts=None if blocks is None else max_facts_of(blocks),
        on_overflow=None if on_overflow is None else check_flag("on_overflow", on_overflow),
    )
    changing = partial(store_policy, session.identity, change, in_callers_transaction=connection is not None)
    done: PolicySet = yield from session.recorder.carry_out(Act.here("policy", actor=actor), changing)
    session.notify(done.flushed, connection)
    # This memory reads by the change; others keep the values that they were made with.
    if blocks is not None:
        session.blocks, session.rules = blocks, replace(session.rules, blocks=blocks)
    if change.token_limit is not None:
        session.policy = replace(session.policy, token_limit=done.policy.token_limit)
        session.own_token_limit = done.policy.token_limit
    session.named = NOTHING
    return done.policy


def _declare(session: Session, memory_blocks: Sequence[BlockSource]) -> tuple[BaseMemoryBlock, ...]:
    blocks = declare_blocks(memory_blocks, partial(load_blocks, session.resources.settings.blocks))
    if session.shared_key is None:
        check_no_shared_scope(blocks)
    return blocks


def check_no_shared_scope(blocks: Sequence[BaseMemoryBlock]) -> None:
    """Check that no block searches the shared scope; raises ConfigurationError if one does."""
    for block in blocks:
        if isinstance(block, VectorMemoryBlock) and block.scope == "shared":
            raise ConfigurationError(
                f"The memory block {quote(block.name)} searches scope='shared', and this Memory names no"
                " scope; give it shared_scope=."
            )


def get_retention(session: Session) -> Operation[Retention]:
    """The choice that applies to this session now: its own act, else the namespace's."""
    return read_retention(_level(session))


def set_retention(session: Session, retention: Retention, *, actor: str | None = None) -> Operation[int]:
    """Set how long this session is kept, as a numbered act; returns its number.

    An act is the whole choice of its level, and applies from the moment this returns: reads hide expired data
    even before workers have removed it.  Repeating the present choice records nothing.

    Raises:
        InvalidMessageError: a field cannot be used.
        ActRefusedError: the compliance hook refuses it.
        ConflictError: other callers kept recording acts of this session.
        OwnerError: the session belongs to another owner.
    """
    if not isinstance(retention, Retention):
        raise InvalidMessageError("retention", f"must be a Retention, not {type(retention).__name__}")
    yield from check_unowned(session.identity)
    retention.check(of_session=True)
    recording = partial(record_retention, _level(session), retention)
    return (yield from session.recorder.carry_out(Act.here("retention", actor=actor), recording))


def retention_acts(session: Session, *, limit: int = 100) -> Operation[list[RetentionAct]]:
    """The acts of this session alone, newest first."""
    return list_acts(_level(session), check_count("limit", limit))


def _level(session: Session) -> RetentionLevel:
    return RetentionLevel(session.identity.namespace, session.identity)
