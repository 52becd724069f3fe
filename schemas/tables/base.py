"""Shared parts of the tables: one metadata, names for every constraint, and four kinds of column."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, DateTime, MetaData, Uuid, func

SCHEMA = "strandline"
PERSONAL = "personal"
SEALED = "sealed"
STORAGE = "storage"
# Of a table that grows with each message and stays: these hold three quarters of all bytes, and `strandline
# migrate --partitions` divides them by owner.  Other tables are read across owners (due), or small: bounded
# by the number of sessions or by condensing (session, lane, fact).
DIVIDED = "divided"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    },
)


def key(name: str) -> Column[object]:
    """A part of the primary key that is one of the 128-bit keys."""
    return Column(name, Uuid, primary_key=True)


def personal(
    name: str, kind: Any, *arguments: Any, sealed: str = "", storage: str | None = None, **options: Any
) -> Column[Any]:
    """A column of what users said or chose as a name, or of what follows from it.

    Postgres keeps no statistics of it: they are samples of the values, and outlive the rows.

    Args:
        sealed: how encrypted namespaces store it: the form (``schemas/sealing/marks.py``), the kind of
            content, and the column that it belongs to, such as ``json message id``; empty: in clear.
        storage: where Postgres keeps long values, if not where its type has them.
    """
    info = {PERSONAL: True, SEALED: sealed, STORAGE: storage}
    return Column(name, kind, *arguments, info=info, **options)


def impersonal(name: str, kind: Any, *arguments: Any, **options: Any) -> Column[Any]:
    """A column of a type that could hold what users said, and does not."""
    return Column(name, kind, *arguments, info={PERSONAL: False}, **options)


def moment(name: str, *, nullable: bool = False, default: bool = False) -> Column[object]:
    """A time with its zone; ``default`` is the moment of the write, not of its transaction's begin."""
    return Column(
        name,
        DateTime(timezone=True),
        nullable=nullable,
        server_default=func.clock_timestamp() if default else None,
    )
