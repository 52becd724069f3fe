"""The corrections of a session's log: which messages, when and by whom."""

from __future__ import annotations

from uuid import UUID

from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.conversation.sessions import SessionCorrections
from strandline.schemas.wire.explanations import CorrectionTrace


def corrections_of(
    fetcher: Fetcher, shard_key: UUID, session_key: UUID, *, from_seq: int = 0, through_seq: int | None = None
) -> tuple[CorrectionTrace, ...]:
    """The corrections of a session that concern a range of its messages, oldest first; default: all."""
    asked = SessionCorrections(
        shard_key=shard_key, session_key=session_key, from_seq=from_seq, through_seq=through_seq
    )
    return tuple(CorrectionTrace.of(row, at=row.created_at) for row in fetcher.fetch(asked))


def correction_line(correction: CorrectionTrace) -> str:
    """A correction, as a person reads it."""
    by = correction.actor or "someone who gave no name"
    at = time_text(correction.at)
    if correction.kind == "replace":
        what = f"gave message {correction.from_seq} other content"
    else:
        what = f"took back {quantity(correction.messages, 'message')} from {correction.from_seq} on"
    return f"correction {correction.number} {at} by {by}: {what}"
