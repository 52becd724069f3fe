"""Many consumed sessions, made up in the tables themselves."""

from __future__ import annotations

import psycopg

from tests.support.sql.named_sql import named_statements


def fill(database_url: str, sessions: int) -> None:
    """Add so many sessions of 500 messages, consumed."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in named_statements("many_sessions.sql").values():
            connection.execute(statement.replace("{sessions}", str(sessions)).encode())
        connection.execute("ANALYZE")
