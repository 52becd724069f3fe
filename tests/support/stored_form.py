"""A message as it comes back from the log, without a database: checked, encoded, and read again."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from strandline.producers.writing.validate import PutLimits, prepare
from strandline.schemas.queries.rows import MessageRow
from strandline.schemas.values.message import Message, read_rows

LIMITS = PutLimits(max_content_bytes=1_000_000, max_metadata_bytes=16_384)

# What Postgres can hold.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=8)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def stored_form(message: Message) -> Message:
    """``message`` as a put stores it and a read returns it.

    Raises:
        InvalidMessageError: as a put would.
    """
    prepared = prepare(message, "message", LIMITS)
    columns = (1, prepared.id, prepared.role, 1, datetime(2026, 1, 31, tzinfo=UTC))
    (read,) = read_rows([MessageRow(*columns, prepared.envelope, prepared.metadata)])
    return read
