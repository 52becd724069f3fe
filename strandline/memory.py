"""``Memory``: a session's memory, wired to this process's settings and resources."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from strandline.pipelines.blocks import BaseMemoryBlock, InsertMethod, declare_blocks, pipelines_of
from strandline.pipelines.rendering import Renderer, render_memory
from strandline.producers.memory import SessionMemory, new_session_id
from strandline.runtime import Consume, Pool, runtime_for
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.identity import DEFAULT_NAMESPACE, identify_session
from strandline.schemas.policy import (
    DEFAULT_FLUSH_SIZE,
    DEFAULT_HISTORY_RATIO,
    DEFAULT_IDLE_SECONDS,
    DEFAULT_TOKEN_LIMIT,
    make_policy,
)
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.tokens import DEFAULT_ENCODING, Tokenizer

_VARIABLE_PREFIXES = ("STRANDLINE_", "OPENAI_")

# Arguments of other memory classes, and what takes their place here.
_ELSEWHERE = {
    "async_database_uri": "pass database_url=",
    "async_engine": "pass pool= (a psycopg_pool pool), or the engine's URL as database_url=",
    "table_name": "pass schema=; the tables live in a Postgres schema of that name",
    "llm": "models run in the workers; set STRANDLINE_FACTS_MODEL and STRANDLINE_SUMMARY_MODEL there",
    "embed_model": "models run in the workers; set STRANDLINE_EMBEDDING_MODEL there",
    "vector_store": "vectors live in the same Postgres; leave it out",
}


class Memory(SessionMemory):
    """The memory of one chat session; see ``SessionMemory`` for what it can do."""

    @classmethod
    def from_defaults(
        cls,
        session_id: str | None = None,
        *,
        user_id: str | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        token_limit: int = DEFAULT_TOKEN_LIMIT,
        chat_history_token_ratio: float = DEFAULT_HISTORY_RATIO,
        token_flush_size: int = DEFAULT_FLUSH_SIZE,
        memory_blocks: Sequence[BaseMemoryBlock | str] | None = None,
        insert_method: str | InsertMethod = InsertMethod.SYSTEM,
        tokenizer_fn: Tokenizer | None = None,
        memory_template: str | None = None,
        idle_seconds: int | None = DEFAULT_IDLE_SECONDS,
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
        broker_url: str | None = None,
        consume: Consume | None = None,
        **elsewhere: Any,
    ) -> Memory:
        """Make a memory; no I/O, so a backend can make one per request.

        Args:
            session_id: the conversation; default: a new random one.
            user_id: whom facts belong to, across sessions; default: the session itself.
            namespace: the tenant; nothing is shared between namespaces.
            token_limit: tokens that a read may fill, long-term memory included.
            chat_history_token_ratio: share of them for the short-term window; above it a put flushes.
            token_flush_size: tokens that leave, at least, in one flush event.
            memory_blocks: what long-term memory contributes; None: facts, summary and vectors; an empty
                list: none, flushed messages are only archived.
            insert_method: ``"system"`` or ``"user"``: into which message memory is inserted.
            tokenizer_fn: from text to a list of tokens or their number; default: ``o200k_base``.
            memory_template: a Jinja2 template to lay the blocks out with; default: the built-in one.
            idle_seconds: after so long without a put the window is delivered, and stays; None: never.
            database_url: Postgres; default ``STRANDLINE_DATABASE_URL``, else the embedded one.
            pool: a ``psycopg_pool`` pool of your own instead (sync or async).
            schema: the Postgres schema of the tables; default ``strandline``.
            broker_url: Redis or RabbitMQ; default ``STRANDLINE_BROKER_URL``.
            consume: ``"background"`` lets threads of this process consume events as well.

        Raises:
            ConfigurationError: an argument or setting cannot be used; the sentence names it.
            InvalidMessageError: ``session_id``, ``user_id`` or ``namespace`` cannot name anything.
        """
        if elsewhere:
            _refuse(elsewhere)
        settings = _with_overrides(
            _settings(), database_url=database_url, broker_url=broker_url, database_schema=schema
        )
        blocks = declare_blocks(memory_blocks)
        policy = make_policy(
            token_limit=token_limit,
            chat_history_token_ratio=chat_history_token_ratio,
            token_flush_size=token_flush_size,
            idle_seconds=idle_seconds,
            tokenizer=DEFAULT_ENCODING if tokenizer_fn is None else _name_of(tokenizer_fn),
            pipelines=pipelines_of(blocks),
        )
        return cls(
            runtime_for(settings, pool=pool, consume=consume),
            identify_session(namespace, new_session_id() if session_id is None else session_id, user_id),
            policy,
            blocks=blocks,
            insert_method=_insert_method(insert_method),
            tokenizer=tokenizer_fn,
            render=_template(memory_template),
        )


def _settings() -> Settings:
    """The settings of the environment as it is; read again only when it changed."""
    return _settings_of(
        tuple((name, os.environ[name]) for name in os.environ if name.startswith(_VARIABLE_PREFIXES))
    )


@lru_cache(maxsize=16)
def _settings_of(_environment: tuple[tuple[str, str], ...]) -> Settings:
    return load_settings()


def _with_overrides(settings: Settings, **overrides: str | None) -> Settings:
    given = tuple((name, value) for name, value in overrides.items() if value is not None)
    return _overridden(settings, given) if given else settings


@lru_cache(maxsize=64)
def _overridden(settings: Settings, given: tuple[tuple[str, str], ...]) -> Settings:
    return load_settings(**dict(given))


def _template(source: str | None) -> Renderer:
    if source is None:
        return render_memory
    from strandline.pipelines.memory_template import compile_memory_template  # Jinja2, where it is needed

    return compile_memory_template(source)


def _insert_method(value: str | InsertMethod) -> InsertMethod:
    try:
        return InsertMethod(value)
    except ValueError:
        raise ConfigurationError(f"insert_method is {value!r}; it must be 'system' or 'user'") from None


def _name_of(tokenizer: Tokenizer) -> str:
    module = getattr(tokenizer, "__module__", "?")
    return f"custom:{module}.{getattr(tokenizer, '__qualname__', type(tokenizer).__qualname__)}"


def _refuse(arguments: dict[str, Any]) -> NoReturn:
    name = next(iter(arguments))
    hint = _ELSEWHERE.get(name, "see Memory.from_defaults for the arguments there are")
    raise ConfigurationError(f"Memory.from_defaults has no argument {name!r}: {hint}")
