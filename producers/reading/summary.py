"""A session's summary by itself: its text, its topics, and how far it goes."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime

from strandline.producers.sessions import check_unowned
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError, NotFoundError
from strandline.schemas.postgres.operations import Operation, Pause, fetch
from strandline.schemas.queries.conversation.read import Coverage
from strandline.schemas.queries.work.states import SessionSummary, SessionSummaryRow
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import SUMMARY

_FIRST_PAUSE_SECONDS = 0.01
_MAX_PAUSE_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Summary:
    """The rolling summary of a session.

    Attributes:
        topics: up to eight short words for its subject, in lower case.
        through_seq: it tells of the messages up to this one.
        is_complete: whether it covers all delivered messages.
        model, prompt_hash: of the newest step.
        created_at: when workers made it.
    """

    text: str
    topics: tuple[str, ...]
    through_seq: int
    is_complete: bool
    model: str
    prompt_hash: str
    created_at: datetime


def wait_for_summary(identity: SessionIdentity, wait_seconds: float | None) -> Operation[Summary | None]:
    """The summary, once it covers all messages delivered now, or after so many seconds; or None.

    Raises:
        NotFoundError: the session has no messages yet.
        ConfigurationError: the session does not feed summaries.
        OwnerError: the session belongs to another owner.
    """
    row = yield from _read(identity)
    if not row.is_fed:
        raise ConfigurationError(
            f"Session {quote(identity.session_id)} does not feed summaries; give it a summary block with"
            " set_policy(memory_blocks=…).",
            for_clients="This session does not feed summaries: its policy has no block `summary`.",
        )
    uncovered = Coverage(**identity.keys, pipelines=[SUMMARY], seq=row.flushed_through)
    until, pause = time.monotonic() + (wait_seconds or 0), _FIRST_PAUSE_SECONDS
    while not (is_complete := all(left.from_seq is None for left in (yield from fetch(uncovered)))):
        if (left_seconds := until - time.monotonic()) <= 0:
            break
        yield Pause(min(pause, left_seconds))
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    return _summary((yield from _read(identity)), is_complete)


def _read(identity: SessionIdentity) -> Operation[SessionSummaryRow]:
    rows = yield from fetch(SessionSummary(**identity.keys))
    if not rows:
        yield from check_unowned(identity)
        raise NotFoundError(f"Nothing has been put yet to session {quote(identity.session_id)}.")
    return rows[0]


def _summary(row: SessionSummaryRow, is_complete: bool) -> Summary | None:
    if row.state is None:
        return None
    state = json.loads(row.state)
    return Summary(
        text=state["text"],
        topics=tuple(state.get("topics") or ()),
        through_seq=row.through_seq,
        is_complete=is_complete,
        model=state.get("model", ""),
        prompt_hash=state.get("prompt_hash", ""),
        created_at=row.created_at,
    )
