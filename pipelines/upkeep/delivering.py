"""Delivering what is past its time before it leaves a log: what was put is derived once, whatever its age."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

from strandline.pipelines.flush.flush import deliver_by_hand
from strandline.pipelines.flush.plan import Entry, plan_manual
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.conversation.retention import DeliverExpired, ExpiredWindow
from strandline.schemas.values.flush_event import EVENT_VERSION
from strandline.schemas.values.identity import SessionKeys
from strandline.schemas.values.lanes import Ring


def deliver_leaving(database: Database, ring: Ring, session: SessionKeys, incarnation: UUID) -> bool:
    """Deliver what is to be derived before it leaves: of this life, or of the present one.

    Returns whether anything was delivered by this call; ``ring`` is called with lanes that have work now.
    """
    windows = database.fetch(ExpiredWindow(**session, incarnation=incarnation))
    if not windows:
        flushed = database.run(deliver_by_hand(**session))
        if flushed is not None:
            ring(flushed.lanes)
        return flushed is not None
    window = windows[0]
    entries = [
        Entry(seq, role, tokens, (), (), size)
        for seq, role, tokens, _calls, _answers, size in json.loads(window.entries)
    ]
    plan = plan_manual(
        entries,
        flushed_through=window.flushed_through,
        flush_size=window.token_flush_size,
        everything=True,
    )
    events = [] if plan is None else plan.events
    rows = database.fetch(
        DeliverExpired(
            **session,
            incarnation=incarnation,
            old_flushed_through=window.flushed_through,
            event_ids=[uuid4() for _ in events],
            from_seqs=[event.from_seq for event in events],
            through_seqs=[event.through_seq for event in events],
            tokens=[event.tokens for event in events],
            messages=[event.messages for event in events],
            version=EVENT_VERSION,
        )
    )
    return rows[0].is_first
