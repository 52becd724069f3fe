"""The database that this release needs, as constants: the oldest server, the newest migration.

Comparing the migration costs one look, where Alembic takes 0.5 s; a test holds it to the scripts.
"""

from __future__ import annotations

import itertools

HEAD_REVISION = "0001"

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
