"""Databases for tests: a template with tables and the standard pipelines, and clones of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from strandline.schemas.postgres.connections import ConnectionOptions
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages

# A server outside may be used by several processes of one run.
TEMPLATE = f"strandline_template_{uuid4().hex}"


@contextmanager
def template(server_url: str) -> Iterator[None]:
    """The database ``TEMPLATE`` on the server, gone in the end."""
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}")
    try:
        url = database_in(server_url, TEMPLATE)
        migrate(url, "strandline")
        options = ConnectionOptions.from_settings(url, load_settings())
        database = Database.connect(options)
        prepare_stages(database, load_settings(text_backend="local", embedding_backend="local"))
        database.close()
        yield
    finally:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {TEMPLATE} WITH (FORCE)")


@contextmanager
def temporary_database(server_url: str, template: str = TEMPLATE) -> Iterator[str]:
    """A clone of ``template``, as a URL; it is dropped in the end, whoever is connected to it."""
    name = f"t_{uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        yield database_in(server_url, name)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def database_in(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
