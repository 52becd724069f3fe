"""What is left in the end: the log against the book, and what was derived against fresh sessions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from tests.chaos.corrections.actor import Scene
from tests.chaos.corrections.blocks import states_of
from tests.chaos.corrections.book import Session
from tests.conftest import rows_of
from tests.support.fresh_session import Derived, derived_of


def wrong_logs(scene: Scene) -> Iterator[str]:
    """Sessions that do not show their messages as they stand, and refusals that nothing explains."""
    for session in scene.book.sessions.values():
        shown = {message.seq or 0: message.text for message in session.memory.get_all()}
        lines = session.lines()
        for seq in lines.keys() - shown.keys():
            yield f"lost: message {seq} of {session.name}, {lines[seq]!r}"
        for seq in shown.keys() - lines.keys():
            yield f"doubled or brought back: message {seq} of {session.name}, {shown[seq]!r}"
        for seq in shown.keys() & lines.keys():
            if shown[seq] != lines[seq]:
                yield f"message {seq} of {session.name} is {shown[seq]!r} instead of {lines[seq]!r}"
        for seq in session.refusals:
            if seq in lines and seq >= session.begins_at:
                yield f"message {seq} of {session.name} was not found, and is there"


def wrong_filters(scene: Scene) -> Iterator[str]:
    """Sessions whose history by metadata is not what its messages have as metadata."""
    for session in scene.book.sessions.values():
        for mood in "ab":
            shown = [message.seq for message in session.memory.history(metadata={"mood": mood})]
            messages = session.memory.get_all()
            if shown != [message.seq for message in messages if message.metadata.get("mood") == mood]:
                yield f"history of {session.name} by metadata shows {shown}"


def wrong_facts(scene: Scene) -> Iterator[str]:
    """Owners whose facts are not what their users say in their sessions; all of it is delivered."""
    lines: dict[str, set[str]] = defaultdict(set)
    memories = {}
    for session in scene.book.sessions.values():
        owner = session.user or session.name
        memories[owner] = session.memory
        lines[owner] |= {text for text in session.remembered() if text.startswith("my")}
    for owner, memory in memories.items():
        facts = {fact.text for fact in memory.facts.list(limit=1_000)}
        if facts != lines[owner]:
            lacking, surplus = sorted(lines[owner] - facts), sorted(facts - lines[owner])
            yield f"facts of {owner}: lacks {lacking[:4]}, has {surplus[:4]}"


def differing(scene: Scene, settle: Callable[[], None]) -> Iterator[str]:
    """Sessions whose memory is not that of fresh ones into which the messages are put as they stand."""
    sessions = list(scene.book.sessions.values())
    pairs = list(zip(sessions, _copies(scene, sessions, settle), strict=True))
    settle()
    for session, copy in pairs:
        before, after = derived_of(scene.url, session.memory), derived_of(scene.url, copy.memory)
        if before != after:
            yield f"{session.name} of {session.user}: {_difference(before, after)}"
        folded, expected = states_of(scene.url, session.memory), states_of(scene.url, copy.memory)
        for name in folded:
            if folded[name] != expected[name]:
                lacking = [text for text in expected[name] if text not in folded[name]]
                surplus = [text for text in folded[name] if text not in expected[name]]
                yield f"{session.name} of {session.user}: {name}: lacks {lacking[:9]}, has {surplus[:9]}"


def _copies(scene: Scene, sessions: Sequence[Session], settle: Callable[[], None]) -> Iterator[Session]:
    users: dict[str | None, str] = defaultdict(lambda: f"copy-{uuid4().hex[:8]}")
    for session in sessions:
        copy = scene.open_session(session.user and users[session.user])
        for life in session.past_lives:
            _put(copy, life)
            settle()
            copy.memory.reset()
        _put(copy, [message.to_dict() for message in session.memory.get_all()])
        yield copy


def _put(session: Session, messages: list[dict[str, Any]]) -> None:
    if messages:
        session.memory.put_messages(messages)
        session.memory.flush(all=True)


def _difference(before: Derived, after: Derived) -> str:
    """What is too little and too much, by kind."""
    parts = []
    for kind in ("facts", "chunks"):
        one, other = list(getattr(before, kind)), list(getattr(after, kind))
        lacking = [text for text in other if text not in one]
        surplus = [text for text in one if text not in other]
        if one != other:
            parts.append(f"{kind}: lacks {lacking[:4]}, has {surplus[:4]} ({len(one)} for {len(other)})")
    if before.summary != after.summary:
        parts.append(f"summary: {before.summary[-300:]!r} instead of {after.summary[-300:]!r}")
    return "; ".join(parts)


# With what is known of its events: whether they are there, and which receipts they have.
OPEN_BATCHES = """
SELECT json_build_object(
    'stage', b.stage, 'generation', b.generation_id, 'epoch', b.lease_epoch, 'made', b.created_at,
    'of the owner', b.scope_key = b.shard_key,
    'answers', (SELECT count(*) FROM strandline.answer a
        WHERE a.shard_key = b.shard_key AND a.batch_id = b.batch_id),
    'events', (
        SELECT json_agg(json_build_object(
            'session', s.session_id, 'is current', s.incarnation = e.incarnation,
            'receipts', (
                SELECT json_agg(json_build_array(
                    r.stage, r.generation_id, r.outcome, r.batch_id = b.batch_id))
                FROM strandline.receipt r WHERE r.shard_key = b.shard_key AND r.event_id = u.id)))
        FROM unnest(b.event_ids) AS u (id)
        LEFT JOIN strandline.flush_event e ON e.shard_key = b.shard_key AND e.event_id = u.id
        LEFT JOIN strandline.session s ON s.shard_key = b.shard_key AND s.session_key = e.session_key),
    'lane', (SELECT row_to_json(l) FROM strandline.lane l WHERE l.shard_key = b.shard_key
        AND l.scope_key = b.scope_key AND l.generation_id = b.generation_id AND l.stage = b.stage))::text
FROM strandline.batch b WHERE b.state = 'open'
"""


def stuck(url: str) -> Iterator[str]:
    """Work that is left, and work that was given up."""
    for stage, due in rows_of(url, "SELECT stage, count(*) FROM strandline.due GROUP BY 1"):
        yield f"stuck: {due} events are due in {stage}"
    for stage, reason in rows_of(url, "SELECT stage, reason FROM strandline.dead_letter"):
        yield f"dead letter in {stage}: {reason}"
    for row in rows_of(url, OPEN_BATCHES):
        yield f"a batch is open: {row[0]}"


def corrections_twice(url: str) -> Iterator[str]:
    """Corrections are numbered from 1 without a gap, and each message was superseded once by each."""
    for session_key, counter, rows in rows_of(
        url,
        "SELECT s.session_id, s.corrections, count(c.number) FROM strandline.session s"
        " LEFT JOIN strandline.correction c USING (shard_key, session_key)"
        " GROUP BY 1, 2, s.session_key HAVING count(c.number) > s.corrections",
    ):
        yield f"session {session_key} has {rows} corrections, and counts {counter}"
