"""Databases for tests: a template with tables and the standard pipelines, and clones of it."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict

from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.content import KeyCache, SealedContent
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.sealing.codec import ContentCodec
from strandline.schemas.sealing.keyrings import LocalKeyring, read_keys
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages


@cache
def template_name() -> str:
    """The template's name, for each process another: a server outside may be used by several of one run."""
    return f"strandline_template_{uuid4().hex}"


# Run the suite on divided tables (``strandline migrate --partitions``).
PARTITIONS = int(os.environ.get("STRANDLINE_TEST_PARTITIONS") or 0) or None


# Run the suite with every namespace encrypted, as soon as it has a session or a fact.
ENCRYPTION = os.environ.get("STRANDLINE_TEST_ENCRYPTION", "").lower() in ("1", "true")
TEST_KEYS = "test Bvm8CPKwsjmyiVlXdjcjZUYlk6Bj3SKnP0ZfEpxWQAQ="


def probe() -> str:
    """What the test's key has wrapped, as an encrypted namespace keeps it, in hexadecimal digits."""
    keyring = LocalKeyring(read_keys(TEST_KEYS, "the test"), "the test")
    return SealedContent(keyring, KeyCache(0)).probe_key("test").hex()


SEAL_ALL = f"""
CREATE FUNCTION strandline.seal_namespace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO strandline.encryption (namespace, kek_id, probe, vectors)
        VALUES (NEW.namespace, 'test', '\\x{probe()}', 'clear')
        ON CONFLICT DO NOTHING;
    RETURN NEW;
END $$;
CREATE TRIGGER seal_namespace BEFORE INSERT ON strandline.session_owner
    FOR EACH ROW EXECUTE FUNCTION strandline.seal_namespace();
CREATE TRIGGER seal_namespace BEFORE INSERT ON strandline.fact_owner
    FOR EACH ROW EXECUTE FUNCTION strandline.seal_namespace();
"""


def seal_everything() -> None:
    """Have each ``Database`` of this process use the test's keyring, whoever makes it."""
    connect = Database.connect.__func__  # type: ignore[attr-defined]

    def connect_with_keys(
        cls: type[Database], options: ConnectionOptions, content: ContentCodec | None = None
    ) -> Database:
        made: Database = connect(cls, options, content or sealed_content(load_settings()))
        return made

    Database.connect = classmethod(connect_with_keys)  # type: ignore[method-assign,assignment]


def forgo_durability(server_url: str) -> None:
    """Let a server of the tests' own write to disk when the system likes to: no test crashes the system.

    Whoever kills Postgres loses nothing by it, and a database is made and dropped with a quarter of the work.
    """
    with psycopg.connect(server_url, autocommit=True) as connection:
        for setting in ("fsync", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {setting} = off")
        connection.execute("SELECT pg_reload_conf()")


# What databases are made and dropped by, meanwhile: a connection for each would cost a fifth of a database.
_connections: dict[str, psycopg.Connection[Any]] = {}


@contextmanager
def template(server_url: str) -> Iterator[None]:
    """The database ``template_name()`` on the server, gone in the end."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {template_name()}")
        try:
            make_tables(database_in(server_url, template_name()), PARTITIONS)
            if ENCRYPTION:
                with psycopg.connect(database_in(server_url, template_name()), autocommit=True) as sealed:
                    sealed.execute(SEAL_ALL)
            _connections[server_url] = connection
            yield
        finally:
            _connections.clear()
            _drop_left(server_url, connection)
            connection.execute(f"DROP DATABASE {template_name()} WITH (FORCE)")


def make_tables(url: str, partitions: int | None = None) -> None:
    """Make the tables in an empty database, and register the standard pipelines."""
    migrate(url, "strandline", partitions=partitions)
    database = Database.connect(ConnectionOptions.from_settings(url, load_settings()))
    prepare_stages(database, load_settings(text_backend="local", embedding_backend="local"))
    database.close()


@contextmanager
def temporary_database(server_url: str, template: str | None = None) -> Iterator[str]:
    """A clone of ``template``, by default this process's own, as a URL.

    It is closed to everybody after its use, and dropped after that of the next.
    """
    name = f"t_{uuid4().hex}"
    with _connected(server_url) as connection:
        source = template or template_name()
        _end_look(database_in(server_url, source))  # nobody may be connected to what is copied
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {source} {_strategy(connection)}")
        url = database_in(server_url, name)
        _lookers[os.getpid(), url] = None
        yield url
        _end_look(url)
        del _lookers[os.getpid(), url]
        _end_sessions(name, connection)
        _drop_left(server_url, connection)
        _left.setdefault(server_url, []).append(name)
        if server_url not in _connections:
            _drop_left(server_url, connection)


def _end_sessions(name: str, connection: psycopg.Connection[Any]) -> None:
    """The next test sees neither the sessions nor the locks that one has left behind."""
    connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])


# By server, the database that was used last, which is dropped after the next: while one of its sessions is
# still ending, Postgres waits a tenth of a second.
_left: dict[str, list[str]] = {}


def _drop_left(server_url: str, connection: psycopg.Connection[Any]) -> None:
    for name in _left.pop(server_url, []):
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


# By process and database: what a test looks at its temporary database by, once it has looked.  A connection
# costs 3 milliseconds, and most tests look several times, or until something has happened.
_lookers: dict[tuple[int, str], psycopg.Connection[Any] | None] = {}


_looking = threading.Lock()


def look(url: str, statement: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
    """The rows of a statement, on a connection of the test's own; that to a temporary database is kept."""
    key = os.getpid(), url
    # One thread at a time: what the other does may wait for a lock that this one is to see.
    if key in _lookers and _looking.acquire(blocking=False):
        try:
            looker = _lookers[key]
            if looker is None or not _is_alive(looker):
                looker = _lookers[key] = psycopg.connect(url, autocommit=True, prepare_threshold=None)
            return looker.execute(statement.encode(), params).fetchall()
        finally:
            _looking.release()
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode(), params).fetchall()


def _end_look(url: str) -> None:
    key = os.getpid(), url
    if looker := _lookers.get(key):
        looker.close()
        _lookers[key] = None


def _is_alive(looker: psycopg.Connection[Any]) -> bool:
    """Whether its server is still there: what a server says as it goes makes the socket readable."""
    if not looker.closed and not select.select([looker], [], [], 0)[0]:
        return True
    looker.close()
    return False


@contextmanager
def _connected(server_url: str) -> Iterator[psycopg.Connection[Any]]:
    if server_url in _connections:
        yield _connections[server_url]
    else:
        with psycopg.connect(server_url, autocommit=True) as connection:
            yield connection


def _strategy(connection: psycopg.Connection[Any]) -> str:
    """Copied as files, which Postgres 14 always does, a database costs a quarter, unless files are synced."""
    row = connection.execute("SHOW fsync").fetchone()
    return "STRATEGY FILE_COPY" if row == ("off",) and connection.info.server_version >= 150000 else ""


def database_in(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def server_address(url: str) -> tuple[str, int]:
    """The host, or the folder of the socket, and the port: those of libpq if the URL names none."""
    parameters = conninfo_to_dict(url)
    return str(parameters.get("host") or "localhost"), int(parameters.get("port") or 5432)


def connect_to(url: str) -> socket.socket:
    """A plain connection to the server, by TCP or by the socket in a folder."""
    host, port = server_address(url)
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{host}/.s.PGSQL.{port}")
    return connection
