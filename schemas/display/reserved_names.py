"""The names that Postgres does not take for a schema, as they stand unquoted in every statement."""

from __future__ import annotations

# Reserved in Postgres 14 to 18, some of them as names of types and functions alone; a test asks the server.
RESERVED_WORDS = frozenset(
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate
    collation column concurrently constraint create cross current_catalog current_date current_role
    current_schema current_time current_timestamp current_user default deferrable desc distinct do else end
    except false fetch for foreign freeze from full grant group having ilike in initially inner intersect into
    is isnull join lateral leading left like limit localtime localtimestamp natural not notnull null offset on
    only or order outer overlaps placing primary references returning right select session_user similar some
    symmetric system_user table tablesample then to trailing true union unique user using variadic verbose
    when where window with
    """.split()
)


def check_schema_name(name: str) -> str:
    """Return the name.

    Raises:
        ValueError: Postgres keeps it for itself.
    """
    if name in RESERVED_WORDS or name.startswith("pg_") or name == "information_schema":
        raise ValueError("it is a name that Postgres keeps for itself; use another, such as strandline")
    return name
