"""The database that this release needs: the oldest server, the oldest pgvector, the tables."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from strandline.schemas.display.shown_text import quote
from strandline.schemas.postgres.migrations import (
    HEAD_REVISION,
    columns_at,
    functions_at,
    is_newer,
    revisions,
)

NAME_ANOTHER_SCHEMA = "name another schema in STRANDLINE_DATABASE_SCHEMA"

OLDEST_SERVER = 14

# The first with halfvec, and with all that the statements do with it; the tables have no index of vectors.
OLDEST_PGVECTOR = (0, 7, 0)


def major_version(server_version: str) -> int:
    """The number before the first dot of what Postgres calls ``server_version``, or of ``18beta1``."""
    digits = itertools.takewhile(str.isdecimal, server_version)
    return int("".join(digits))


def version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


# A finding, and the advice for it.
Trouble = tuple[str, str]


def server_trouble(version: str, encoding: str) -> Trouble | None:
    """Why a server or its database cannot hold the tables."""
    if major_version(version) < OLDEST_SERVER:
        needed = f"Strandline needs PostgreSQL {OLDEST_SERVER} or newer"
        return f"the server is PostgreSQL {version}, and {needed}", "upgrade it, or name another in the URL"
    if encoding != "UTF8":
        finding = f"the database is in the encoding {encoding}, which does not hold every text"
        return finding, "create one WITH ENCODING 'UTF8' TEMPLATE template0"
    return None


def pgvector_trouble(installed: str | None, available: str | None) -> Trouble | None:
    """Why the extension of a database, or of its server, cannot be used."""
    needed = f"Strandline needs {'.'.join(map(str, OLDEST_PGVECTOR))} or newer"
    version = installed or available
    if version is None:
        finding = f"the server does not have the pgvector extension, and {needed}"
        return finding, "install it, as by the package postgresql-NN-pgvector"
    if version_numbers(version) < OLDEST_PGVECTOR:
        finding = f"pgvector {version} is on the server, and {needed}"
        return finding, "upgrade it, and run ALTER EXTENSION vector UPDATE where it is installed"
    return None


def tables_trouble(
    schema: str, numbers: Sequence[str], columns: Collection[str], functions: Collection[str]
) -> Trouble | None:
    """Why a schema with these revisions, columns (``table.column``) and functions cannot be this release's.

    A later release adds to tables, so this one runs on newer ones.
    """
    named = ", ".join(map(quote, numbers))
    if not any(column.startswith("session_owner.") for column in columns):
        if not numbers:
            return None
        finding = (
            f"has another application's Alembic table (at revision {named}), and no tables of Strandline"
        )
        return f"schema {schema} {finding}", NAME_ANOTHER_SCHEMA
    if not numbers:
        finding = f"schema {schema} has tables of Strandline, and no row in {schema}.alembic_version"
        return finding, f"restore that table with the others, or {NAME_ANOTHER_SCHEMA}"
    newer = is_newer(numbers[0])
    if len(numbers) > 1 or (numbers[0] not in revisions() and not newer):
        finding = (
            f"schema {schema} is at revision {named}, which this release does not know: its tables are a"
            " newer Strandline's, or another application migrates them"
        )
        return finding, f"use the release that made them, or {NAME_ANOTHER_SCHEMA}"
    missing = sorted(columns_at(numbers[0]) - {*columns})
    if newer:
        missing += sorted({*functions_at(HEAD_REVISION)} - {*functions})
    if not missing:
        return None
    finding = f"schema {schema} is at revision {named}, without {missing[0]}"
    finding += f" and {len(missing) - 1:,} more" if missing[1:] else ""
    if newer:
        return f"{finding}: a newer release removed it", "use that release"
    advice = f"export its users with the checkout that made it and import them, or {NAME_ANOTHER_SCHEMA}"
    return f"{finding}: a checkout from before this release made it", advice


def newer_tables(number: str) -> str:
    return f"the tables are a newer release's (revision {number}); this release runs on them"
