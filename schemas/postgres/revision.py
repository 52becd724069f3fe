"""The database that this release needs, as constants: the oldest server, the oldest pgvector."""

from __future__ import annotations

import itertools

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


# What is wrong, and what to do about it.
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
