"""Moving what retention goes by into the past: rows' times, in place of waiting."""

from __future__ import annotations

from strandline.schemas.values.identity import identify_session
from tests.conftest import rows_of

DAY = 86_400


def age_messages(database_url: str, session_id: str, seconds: int, through_seq: int | None = None) -> int:
    """Let a session's messages be older by so much; returns how many."""
    rows = rows_of(
        database_url,
        "UPDATE strandline.message SET created_at = created_at - make_interval(secs => %s)"
        " WHERE session_key = %s AND seq <= coalesce(%s, seq) RETURNING seq",
        seconds,
        _key(session_id),
        through_seq,
    )
    return len(rows)


def age_session(database_url: str, session_id: str, seconds: int) -> None:
    """Let the last put to a session be longer ago by so much."""
    rows = rows_of(
        database_url,
        "UPDATE strandline.session SET last_put_at = last_put_at - make_interval(secs => %s)"
        " WHERE session_key = %s RETURNING 1",
        seconds,
        _key(session_id),
    )
    assert rows == [(1,)]


def _key(session_id: str) -> object:
    return identify_session("default", session_id, None).session_key
