"""Shared parts of the tables: one metadata, names for every constraint, and three kinds of column."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, DateTime, MetaData, Uuid, func

SCHEMA = "strandline"
KEEPS_NO_STATISTICS = "keeps_no_statistics"
SEALED = "sealed"

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


def personal(name: str, kind: Any, *arguments: Any, sealed: str = "", **options: Any) -> Column[Any]:
    """A column of what users said or chose as a name, or of what follows from it.

    Postgres keeps no statistics of it: they are samples of the values, and outlive the rows.

    Args:
        sealed: how encrypted namespaces store it: the form (``schemas/sealing/marks.py``), the kind of
            content, and the column that it belongs to, such as ``json message id``; empty: in clear.
    """
    return Column(name, kind, *arguments, info={KEEPS_NO_STATISTICS: True, SEALED: sealed}, **options)


def moment(name: str, *, nullable: bool = False, default: bool = False) -> Column[object]:
    """A time with its zone; ``default`` is the moment of the write, not of its transaction's begin."""
    return Column(
        name,
        DateTime(timezone=True),
        nullable=nullable,
        server_default=func.clock_timestamp() if default else None,
    )
