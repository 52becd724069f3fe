"""The ground that is measured on: an embedded Postgres of its own, its tables, and real messages."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from strandline import BaseMemoryBlock, Memory
from strandline.assembly import ensure_tables, prepare_stages
from strandline.deploy.stack import start_stack
from strandline.schemas.connections import ConnectionOptions
from strandline.schemas.database import Database
from strandline.schemas.settings import load_settings

BARE_TABLE = """
CREATE TABLE bare (
    session_key uuid, seq bigint, role text, tokens integer, envelope json,
    created_at timestamptz DEFAULT now(), PRIMARY KEY (session_key, seq))
"""


@dataclass(frozen=True, slots=True)
class Ground:
    """A database ready for use, and the sample conversation's messages without ids and times."""

    url: str
    messages: tuple[dict[str, Any], ...]

    def memory(
        self,
        *,
        session_id: str | None = None,
        blocks: list[BaseMemoryBlock] | None = None,
        token_limit: int = 30_000,
        token_flush_size: int = 3_000,
        consuming: bool = False,
    ) -> Memory:
        """A memory of one session; unless it is ``consuming``, what it flushes stays due."""
        return Memory.from_defaults(
            session_id or uuid4().hex,
            memory_blocks=blocks,
            token_limit=token_limit,
            token_flush_size=token_flush_size,
            database_url=self.url,
            consume="background" if consuming else None,
        )

    def connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url, autocommit=True)

    def analyze(self) -> None:
        """Bring the planner's statistics up to date, as autovacuum has on a database in use."""
        with self.connection() as connection:
            connection.execute("ANALYZE")

    def some_messages(self, count: int) -> list[dict[str, Any]]:
        """So many messages of the sample, from its start again when it ends."""
        return list(islice(cycle(self.messages), count))

    def describe(self) -> dict[str, object]:
        with self.connection() as connection:
            rows = connection.execute("SELECT current_setting('server_version'), current_setting('fsync')")
            version, fsync = rows.fetchall()[0]
        return {
            "PostgreSQL": version,
            "fsync": fsync,
            "Python": platform.python_version(),
            "processors": os.cpu_count(),
        }


@contextmanager
def prepared_ground(home: Path) -> Iterator[Ground]:
    """Start Postgres in ``home``, with tables and the standard pipelines on the local models."""
    settings = load_settings(home=home, text_backend="local", embedding_backend="local")
    with start_stack(home, with_broker=False) as stack:
        database = Database.connect(ConnectionOptions.from_settings(stack.database_url, settings))
        try:
            ensure_tables(stack.database_url, database, settings)
            prepare_stages(database, settings)
        finally:
            database.close()
        with psycopg.connect(stack.database_url, autocommit=True) as connection:
            connection.execute(BARE_TABLE)
        yield Ground(stack.database_url, _sample())


def _sample() -> tuple[dict[str, Any], ...]:
    file = resources.files("strandline") / "samples" / "conversation.jsonl"
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    spoken = [line for line in lines if isinstance(line["content"], str) and line["role"] != "tool"]
    return tuple({"role": line["role"], "content": line["content"]} for line in spoken)
