"""The ground that is measured on: a separate embedded Postgres and broker, and real messages.

Each case has a separate database on that server, so that no case is affected by what another leaves behind.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import resources
from itertools import count, cycle, islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from strandline import BaseMemoryBlock, Memory
from strandline.deploy.embedded.stack import EmbeddedStack, start_stack
from strandline.producers.tokens import count_default
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.wiring.assembly import prepare_stages

Given = dict[str, Any]

MESSAGE_TOKENS = 40
MESSAGE_BYTES = 200
_TEMPLATE = "bench_template"
_numbers = count(1)


class NotMeasuredError(Exception):
    """A case cannot be measured here; its sentence says why."""


@dataclass(frozen=True, slots=True)
class Ground:
    """A database ready for use, and messages without ids and times.

    Attributes:
        url: the database of this case.
        broker_url: the broker, which all cases share.
        messages: as they were said.
        pieces: the same text in messages of about 40 tokens.
        questions: what people may ask of it.
    """

    url: str
    broker_url: str
    messages: tuple[Given, ...]
    pieces: tuple[Given, ...]
    questions: tuple[str, ...]
    _made: list[Memory] = field(default_factory=list, repr=False)

    def memory(
        self,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        blocks: list[BaseMemoryBlock] | None = None,
        token_limit: int = 30_000,
        token_flush_size: int = 3_000,
        ringing: bool = False,
        consuming: bool = False,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> Memory:
        """A memory of one session, closed with the database.

        What it flushes stays due, unless it rings workers or is ``consuming``.
        """
        memory = Memory.from_defaults(
            session_id or uuid4().hex,
            user_id=user_id,
            namespace=namespace,
            memory_blocks=blocks,
            token_limit=token_limit,
            token_flush_size=token_flush_size,
            database_url=self.url,
            broker_url=self.broker_url if ringing else None,
            consume="background" if consuming else None,
        )
        self._made.append(memory)
        return memory

    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url, autocommit=True)

    def rows(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        """Look at the tables on a separate connection."""
        with self.connection() as connection:
            return connection.execute(sql, params).fetchall()

    def analyze(self) -> None:
        """Bring the planner's statistics up to date, as autovacuum has on a database in use."""
        with self.connection() as connection:
            connection.execute("VACUUM (ANALYZE)")

    def some_messages(self, number: int) -> list[Given]:
        """So many messages, from the start again when they end."""
        return list(islice(cycle(self.messages), number))

    def some_pieces(self, number: int) -> list[Given]:
        """So many messages of 40 tokens."""
        return list(islice(cycle(self.pieces), number))

    @contextmanager
    def fresh(self, *, registered: bool = True) -> Iterator[Ground]:
        """A separate database, dropped in the end.

        Args:
            registered: with the standard pipelines on the local models; else the first worker brings its own.
        """
        name = f"bench_{next(_numbers)}"
        with self.connection() as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
            ground = replace(self, url=_in_database(self.url, name), _made=[])
            try:
                if registered:
                    _register(ground.url)
                yield ground
            finally:
                for memory in ground._made:
                    memory.close()
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def describe(self) -> dict[str, object]:
        """The facts about this machine that a reader of the figures needs."""
        ((version, fsync),) = self.rows("SELECT current_setting('server_version'), current_setting('fsync')")
        return {
            "PostgreSQL": version,
            "fsync": fsync,
            "Python": platform.python_version(),
            "processors": os.cpu_count(),
            "load before": " ".join(f"{load:.1f}" for load in os.getloadavg()),
        }


@contextmanager
def prepared_ground(home: Path, file: Path | None = None) -> Iterator[Ground]:
    """Start the servers in ``home``; messages come from ``file`` (chat JSONL), else from the sample.

    Raises:
        SystemExit: the file holds no message with a role and a text.
    """
    messages = _messages(file)
    questions = _questions() if file is None else tuple(one["content"] for one in messages)
    with start_stack(home, with_broker=True) as stack:
        yield _ground(stack, messages, questions)


def _ground(stack: EmbeddedStack, messages: tuple[Given, ...], questions: tuple[str, ...]) -> Ground:
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {_TEMPLATE}")
    migrate(_in_database(stack.database_url, _TEMPLATE), "strandline")
    assert stack.broker_url is not None
    return Ground(stack.database_url, stack.broker_url, messages, _pieces(messages), questions)


def _register(url: str) -> None:
    settings = load_settings(text_backend="local", embedding_backend="local")
    database = Database.connect(ConnectionOptions.from_settings(url, settings))
    try:
        prepare_stages(database, settings)
    finally:
        database.close()


def _messages(file: Path | None) -> tuple[Given, ...]:
    sample = resources.files("strandline") / "samples" / "conversation.jsonl"
    text = (sample if file is None else file).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    spoken = [line for line in lines if line.get("role") in ("user", "assistant")]
    messages = tuple(
        {"role": line["role"], "content": line["content"]}
        for line in spoken
        if isinstance(line.get("content"), str) and line["content"]
    )
    if not messages:
        raise SystemExit(f"{file} holds no message of a user or an assistant with a text as its content.")
    return messages


def _questions() -> tuple[str, ...]:
    """Those that are asked of the sample."""
    file = resources.files("strandline") / "samples" / "conversation.qa.json"
    return tuple(one["question"] for one in json.loads(file.read_text(encoding="utf-8")))


def _pieces(messages: Sequence[Given]) -> tuple[Given, ...]:
    """The words of all messages in pieces of 40 tokens, by turns a user's and an assistant's."""
    words = " ".join(message["content"] for message in messages).split()
    texts: list[str] = []
    taken: list[str] = []
    for word in words:
        taken.append(word)
        if count_default(text := " ".join(taken)) >= MESSAGE_TOKENS:
            texts.append(text)
            taken = []
    texts = texts or [" ".join(words)]
    return tuple(
        {"role": role, "content": text}
        for role, text in zip(cycle(("user", "assistant")), texts, strict=False)
    )


def _in_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
