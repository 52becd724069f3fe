"""Shared parts of the tables: how a table and each kind of column are declared, and names of constraints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import Column, DateTime, MetaData, Table, Uuid, func
from sqlalchemy.schema import SchemaItem

SCHEMA = "strandline"
PERSONAL = "personal"
SEALED = "sealed"
STORAGE = "storage"
DIVIDED = "divided"
ERASURE = "erasure"
EXPORT = "export"

metadata = MetaData(
    schema=SCHEMA,
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    },
)


@dataclass(frozen=True, slots=True)
class Erasure:
    """How an erasure treats the rows of a table.

    Attributes:
        kind: ``goes``: rows begin with the owner's ``shard_key``, and go with the owner; ``treated``: by a
            step of its own (pipelines/upkeep/erasure); ``kept``: left alone.
        session: the column with the session's or scope's key, by which rows go with a session.
        why: what becomes of the rows, or the reason for which they stay.
    """

    kind: Literal["goes", "treated", "kept"]
    session: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Export:
    """How the rows of a table are exported: a statement and a class of lines follow from it.

    Attributes:
        kind: of the lines.
        meaning: of a line, as it is published.
        title: of the class of lines, if the kind does not name it.
        hides: columns that no line has, besides those of ``owned_by``.
        named: columns that have another name in a line.
        owned_by: the columns that say whose a row is.
        of_session: the condition on a row ``t`` by which it is a session's, if it has no ``session_key``.
    """

    kind: str
    meaning: str
    title: str = ""
    hides: tuple[str, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    owned_by: tuple[str, ...] = ("shard_key",)
    of_session: str = ""


def table(
    name: str,
    *parts: SchemaItem,
    comment: str,
    erasure: Erasure,
    export: Export | None = None,
    divided: bool = False,
    **options: Any,
) -> Table:
    """Declare a table.

    Args:
        export: None: its rows are exported with others, by a statement written by hand, or not at all.
        divided: it grows with each message and stays.  Such tables hold three quarters of all bytes, and
            `strandline migrate --partitions` divides them by owner; others are read across owners (due), or
            small: bounded by the number of sessions or by condensing (session, lane, fact).
    """
    info = {ERASURE: erasure, EXPORT: export, DIVIDED: divided}
    return Table(name, metadata, *parts, comment=comment, info=info, **options)


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
