"""A log of which messages are gone: what is derived from the rest would forget what the others said."""

from __future__ import annotations

from uuid import UUID

from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Fetcher


def refuse_truncated(fetcher: Fetcher, shard_key: UUID, way_out: str) -> None:
    """Make sure that every message that an owner's events deliver is still there.

    Args:
        way_out: what to do now, as a sentence.

    Raises:
        ReplayError: some are gone.
    """
    for session_id, from_seq, through_seq, messages, remaining in fetcher.fetch(
        "truncated_event", {"shard_key": shard_key}
    ):
        raise ReplayError(
            f"The log of session {session_id!r} was truncated: of its messages {from_seq} to {through_seq},"
            f" {remaining} of {messages} are left, and memory derived from them would forget the others."
            f" The memory that serves stays as it is. {way_out}"
        )
