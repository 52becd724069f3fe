"""Where a marked word is found: files of the server, tables, a dump, the broker, and folders beside them."""

from __future__ import annotations

import subprocess
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from redis import Redis

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.deploy.embedded.wheel_binaries import postgres_programs

TABLES = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'strandline' ORDER BY 1"


@dataclass(frozen=True, slots=True)
class Places:
    """Everything that Strandline and its servers write to.

    Attributes:
        database_url: the database of the test, on the stack's server.
        broker_url: the broker that producers ring.
        folders: further folders by name; they need not exist.
    """

    stack: EmbeddedStack
    database_url: str
    broker_url: str
    folders: Mapping[str, Path]

    def find(self, mark: str) -> set[str]:
        """The places that hold the mark, in any case, as text, as hexadecimal digits or in base64."""
        needles = written_forms(mark)
        found = {f"table {table}" for table, rows in self._tables() if holds(rows, needles)}
        found |= {"dump" for part in [self._dump()] if holds(part, needles)}
        found |= {"broker" for value in self._broker() if holds(value, needles)}
        found |= {_part(path) for path in _files(self.stack.home, needles)}
        found |= {name for name, folder in self.folders.items() for _path in _files(folder, needles)}
        return found

    def _tables(self) -> Iterator[tuple[str, bytes]]:
        """Each table with its rows as text; what other tests' databases hold is found in the files alone."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")  # so that the files have what the tables have
            for (table,) in connection.execute(TABLES).fetchall():
                copy = sql.SQL("COPY strandline.{} TO STDOUT").format(sql.Identifier(table))
                with connection.cursor().copy(copy) as rows:
                    yield table, b"".join(bytes(block) for block in rows)

    def _dump(self) -> bytes:
        program = postgres_programs() / "pg_dump"
        return subprocess.run(
            [program, "--dbname", self.database_url], check=True, capture_output=True
        ).stdout

    def _broker(self) -> Iterator[bytes]:
        with Redis.from_url(self.broker_url) as broker:
            for key in broker.scan_iter():
                dumped = broker.dump(key)
                yield bytes(key) + (dumped if isinstance(dumped, bytes) else b"")


def written_forms(mark: str) -> tuple[bytes, ...]:
    """How a mark of ASCII letters may stand somewhere: as it is, as digits of bytes, or within base64."""
    word = mark.encode()
    # Within base64 a word has one of three forms, by where it begins; its ends depend on what is beside it.
    whole = [(begin, b64encode(b"\0" * begin + word)) for begin in range(3)]
    within = [form[-(-4 * begin // 3) : 4 * (begin + len(word)) // 3] for begin, form in whole]
    return word, word.hex().encode(), *within


def holds(data: bytes, needles: tuple[bytes, ...]) -> bool:
    """Whether data holds a needle; base64 alone is looked for in the case that it has."""
    word, digits, *base64 = needles
    lower = data.lower()
    return word in lower or digits in lower or any(form in data for form in base64)


def _files(folder: Path, needles: tuple[bytes, ...]) -> Iterator[Path]:
    """The files that hold a needle, below the folder."""
    for path in folder.rglob("*"):
        if path.is_file() and holds(path.read_bytes(), needles):
            yield path.relative_to(folder)


def _part(path: Path) -> str:
    """Which part of the servers a file is of: ``base``, ``pg_wal``, ``server.log``, or ``broker``."""
    return path.parts[1] if path.parts[0] == "postgres" else path.parts[0]
