"""The changes of a session: corrections of its log, and changes of its policy, with their time and actor."""

from __future__ import annotations

import json
from uuid import UUID

from strandline.schemas.display.shown_text import quantity, time_text
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.conversation.sessions import (
    PolicyChanges,
    PolicyChangesRow,
    SessionCorrections,
)
from strandline.schemas.wire.explanations import CorrectionTrace, PolicyChangeTrace


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


def policy_changes(fetcher: Fetcher, shard_key: UUID, session_key: UUID) -> tuple[PolicyChangeTrace, ...]:
    rows = fetcher.fetch(PolicyChanges(shard_key=shard_key, session_key=session_key))
    return tuple(map(_trace, rows))


def change_line(change: PolicyChangeTrace) -> str:
    """A change, as a person reads it."""
    what = "; ".join(
        f"{name.replace('_', ' ')} {_value_text(change.before[name])} -> {_value_text(change.after[name])}"
        for name in change.after
    )
    by = change.actor or "someone who gave no name"
    at = time_text(change.at)
    return f"policy change {change.number} {at} by {by}, after message {change.flushed_through}: {what}"


def _trace(row: PolicyChangesRow) -> PolicyChangeTrace:
    old, new = json.loads(row.before), json.loads(row.after)
    changed = [name for name in new if old.get(name) != new[name]]
    return PolicyChangeTrace.of(
        row,
        at=row.created_at,
        before={name: old.get(name) for name in changed},
        after={name: new[name] for name in changed},
    )


def _value_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
