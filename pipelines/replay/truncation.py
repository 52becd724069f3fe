"""Refuses a log that lacks messages: a derivation from the rest would forget what these said."""

from __future__ import annotations

from uuid import UUID

from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.derived.generations import TruncatedEvent


def refuse_truncated(fetcher: Fetcher, shard_key: UUID, way_out: str) -> None:
    """Make sure that every message that an owner's events deliver still exists.

    Args:
        way_out: what to do now, as a sentence.

    Raises:
        ReplayError: some messages are gone.
    """
    for event in fetcher.fetch(TruncatedEvent(shard_key=shard_key)):
        raise ReplayError(
            f"The log of session {event.session_id!r} was truncated: of its messages {event.from_seq} to"
            f" {event.through_seq}, {event.remaining} of {event.message_count} are left, and memory derived"
            f" from them would forget the others. The memory that serves stays as it is. {way_out}",
            for_clients="The log of a session was truncated, and memory derived from what is left would"
            f" forget the rest. The memory that serves stays as it is. {way_out}",
        )
