"""``Memory``: a session's memory, wired to this process's settings and resources."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Unpack
from uuid import UUID

from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.redaction.hook import Redactor
from strandline.producers.arguments import check_flag
from strandline.producers.blocks.base import BaseMemoryBlock, InsertMethod, check_insert_method
from strandline.producers.blocks.render import Renderer, render_memory
from strandline.producers.blocks.resolve import BlockSource, declare_blocks, max_facts_of, pipelines_of
from strandline.producers.execution import spelled_out
from strandline.producers.memory import SessionMemory, new_session_id
from strandline.producers.operations.policy import check_no_shared_scope
from strandline.producers.sessions import named_values
from strandline.producers.tokens import DEFAULT_ENCODING, Tokenizer
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.foreign_values import plain_text
from strandline.schemas.values.identity import (
    DEFAULT_NAMESPACE,
    check_name,
    identify_session,
    shared_scope_key,
)
from strandline.schemas.values.policy import OF_BLOCKS, PolicyOptions, make_policy, with_overflow
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Consume, Pool, Runtime, runtime_for, storing_redaction

# Arguments of other memory classes, and what takes their place here.
_ELSEWHERE = {
    "async_database_uri": "pass database_url=",
    "async_engine": "pass pool=, which takes an engine on psycopg 3 or a psycopg_pool pool",
    "table_name": "pass schema=; the tables live in a Postgres schema of that name",
    "llm": "models run in the workers; set STRANDLINE_FACTS_MODEL and STRANDLINE_SUMMARY_MODEL there",
    "embed_model": "models run in the workers; set STRANDLINE_EMBEDDING_MODEL there",
    "vector_store": "vectors live in the same Postgres; leave it out",
    "chat_store": "messages live in Postgres; leave it out",
    "image_token_size_estimate": "pass part_tokens={'image': …}",
    "audio_token_size_estimate": "pass part_tokens={'audio': …}",
    "video_token_size_estimate": "pass part_tokens={'video': …}",
}


class Memory(SessionMemory):
    """The memory of one chat session, made by ``from_defaults``; see ``SessionMemory`` for its methods."""

    def __init__(self, *parts: Any, **more: Any) -> None:
        if not parts or not isinstance(parts[0], Runtime):
            raise TypeError('Memory is made by Memory.from_defaults("a-session", user_id="a-user").')
        super().__init__(*parts, **more)
        session = self._subject
        session.named = named_values(session.policy, session.own_token_limit)

    @classmethod
    @spelled_out(make_policy, without=OF_BLOCKS, others="elsewhere")
    def from_defaults(
        cls,
        session_id: str | None = None,
        *,
        user_id: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        memory_blocks: Sequence[BlockSource] | None = None,
        insert_method: str | InsertMethod = InsertMethod.SYSTEM,
        tokenizer_fn: Tokenizer | None = None,
        part_tokens: Mapping[str, int] | None = None,
        memory_template: str | None = None,
        redact: Redactor | None = None,
        on_overflow: bool = False,
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
        broker_url: str | None = None,
        consume: Consume | None = None,
        **limits: Unpack[PolicyOptions],
    ) -> Memory:
        """Make a memory; does no I/O, so a backend can make one per request.

        Args:
            session_id, user_id, namespace: the conversation (default: a new one), facts' owner, tenant.
            token_limit: maximum tokens of a read, memory included; None: the session's own, at first 30,000.
            chat_history_token_ratio: share of that limit for the short-term window; above it a put flushes.
            max_window_messages, max_window_bytes: bounds of the window; a put above one flushes.
            token_flush_size, message_flush_size: minimum of one flush; None: a quarter of the bound.
            deliver: ``"turn"``: each turn too, for 8 to 46 times the text calls (docs/models.md).
            time_zone: whose days messages without an offset of their own have, an IANA name; None: UTC.
            memory_blocks: blocks, custom blocks, or names of either; None: the default ones; []: none.
            insert_method: ``"system"`` or ``"user"``: the message into which memory is inserted.
            tokenizer_fn, part_tokens: a text's tokens, or their number; those of an ``image`` and so on.
            memory_template, shared_scope: Jinja2 that lays blocks out; a name under which sessions share.
            idle_seconds: after this long without a put the window is delivered, but kept; None: never.
            redact, on_overflow: a redaction hook of its own; workers hand flushed messages to the handler.
            database_url, schema, broker_url: Postgres, its schema, Redis or RabbitMQ; default: the settings.
            pool, consume: your own pool or engine, sync or async; ``"background"``: consume events here too.

        Raises:
            ConfigurationError, InvalidMessageError: an argument or setting cannot be used; it is named.
        """
        _refuse(name for name in limits if name not in PolicyOptions.__annotations__)
        settings = settings_with(database_url=database_url, broker_url=broker_url, database_schema=schema)
        blocks = declare_blocks(memory_blocks, partial(load_blocks, settings.blocks))
        policy = make_policy(
            **limits,
            tokenizer=DEFAULT_ENCODING if tokenizer_fn is None else _name_of(tokenizer_fn),
            pipelines=_fed_pipelines(blocks, on_overflow),
            max_facts=max_facts_of(blocks),
        )
        return cls(
            runtime_for(settings, pool=pool, consume=consume),
            identify_session(namespace, new_session_id() if session_id is None else session_id, user_id),
            policy,
            blocks=blocks,
            insert_method=check_insert_method(insert_method),
            tokenizer=tokenizer_fn,
            part_tokens=part_tokens,
            render=_template(memory_template),
            shared_key=_shared_key(namespace, policy.shared_scope, blocks),
            redaction=None if redact is None else storing_redaction(settings, redact),
            token_limit=None if limits.get("token_limit") is None else policy.token_limit,
        )


def _fed_pipelines(blocks: Sequence[BaseMemoryBlock], on_overflow: bool) -> tuple[str, ...]:
    pipelines = pipelines_of(blocks)
    return with_overflow(pipelines, True) if check_flag("on_overflow", on_overflow) else pipelines


def _shared_key(namespace: str, shared_scope: str | None, blocks: Sequence[BaseMemoryBlock]) -> UUID | None:
    if shared_scope is not None:
        return shared_scope_key(check_name("namespace", namespace), check_name("shared_scope", shared_scope))
    check_no_shared_scope(blocks)
    return None


def _template(source: str | None) -> Renderer:
    if source is None:
        return render_memory
    if not isinstance(source, str):
        raise ConfigurationError(f"memory_template is {quote(source)}; it must be the text of a template.")
    from strandline.producers.blocks.template import compile_memory_template  # Jinja2, where it is needed

    return compile_memory_template(plain_text(source))


def _name_of(tokenizer: Tokenizer) -> str:
    if not callable(tokenizer):
        return "custom:?"  # it is refused when it is to count
    module = getattr(tokenizer, "__module__", "?")
    return f"custom:{module}.{getattr(tokenizer, '__qualname__', type(tokenizer).__qualname__)}"


def _refuse(arguments: Iterable[str]) -> None:
    for name in arguments:
        near = get_close_matches(name, inspect.signature(Memory.from_defaults).parameters, n=1)
        guess = f"did you mean {quote(near[0])}?" if near else "help(Memory.from_defaults) lists them"
        hint = _ELSEWHERE.get(name, guess)
        raise ConfigurationError(f"Memory.from_defaults has no argument {quote(name)}: {hint}")
