"""What the tables hold of a token that a read may not show: printed beside it, since the database goes."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from strandline.schemas.values.identity import identify_user
from tests.chaos.tokens.book import Token
from tests.support.opened_rows import rows_in_clear

SERVING = """
SELECT g.generation_id, g.state, g.served_until, o.generation_id IS NOT NULL FROM strandline.generation g
LEFT JOIN strandline.scope_generation o ON o.shard_key = %s AND o.generation_id = g.generation_id
WHERE g.pipeline = 'facts' ORDER BY 1
"""
# The rows of a table that hold a token, in every generation, and of facts also their other rows.
HELD = """
SELECT to_jsonb(t) - 'lexemes' - 'own_lexemes' FROM strandline.{} t WHERE shard_key = %s AND {}
ORDER BY t::text
"""
OF_FACTS = (
    "fact_id IN (SELECT r.fact_id FROM strandline.fact_revision r WHERE r.shard_key = t.shard_key"
    " AND concat(r.text, ' ', r.own_text) LIKE %s)"
)
EVENTS = """
SELECT number, kind, fact_id, created_at, payload, traces FROM strandline.fact_event
WHERE shard_key = %s ORDER BY number DESC LIMIT 60
"""
PLACES = {"fact": OF_FACTS, "fact_revision": OF_FACTS, "fact_candidate": "text LIKE %s"}


def rows_about(url: str, keys: str, token: Token) -> Iterator[str]:
    """Its facts with their revisions, its candidates, and its owner's events, a line each."""
    owner = identify_user(token.owner.namespace, token.owner.user).shard_key
    try:
        yield from _rows(url, keys, owner, token.name)
    except Exception as error:  # noqa: BLE001 - of what is looked at beside a run: it is told
        yield f"no rows: {type(error).__name__}: {error}"


def _rows(url: str, keys: str, owner: UUID, name: str) -> Iterator[str]:
    for row in rows_in_clear(url, "SELECT clock_timestamp()", (), keys):
        yield f"the database's clock: {row[0]}"
    for row in rows_in_clear(url, SERVING, (owner,), keys):
        yield f"generation, state, served_until, serves this owner: {row}"
    for table, condition in PLACES.items():
        for (held,) in rows_in_clear(url, HELD.format(table, condition), (owner, f"%{name}%"), keys):
            yield f"{table}: {held}"
    for row in rows_in_clear(url, EVENTS, (owner,), keys):
        yield f"fact_event: {row}"
