"""The judge: holds the tables against the journals, and every effect against what it is to be.

All of it runs after the load has stopped and the work is done.  A violation is a sentence; nothing is
weighed: one is enough for the campaign to fail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from strandline import Memory
from strandline.schemas.values.lanes import STAGES
from tests.chaos.conversation import digest_of, user_of
from tests.chaos.faults.meanwhile import Conversation
from tests.chaos.judging.journal import Ack
from tests.chaos.judging.owners_book import OwnersBook

Connection = psycopg.Connection[Any]

# Histories read through the public interface as well; the table is compared in whole.
HISTORIES = 12
SHOWN = 5

LOG = """
SELECT s.session_id, m.id, m.seq, m.role, m.envelope->>'content'
FROM strandline.message m JOIN strandline.session s USING (shard_key, session_key)
"""
COUNTS = """
SELECT (SELECT count(*) FROM strandline.flush_event), (SELECT count(*) FROM strandline.receipt
        WHERE outcome = 'applied'),
    (SELECT count(*) FROM strandline.fact WHERE live), (SELECT count(*) FROM strandline.model_call)
"""

# Each check gives rows of one text; a row is a violation.
CHECKS = {
    "events that did not reach a stage's end": """
        SELECT e.event_id || ' in ' || w.stage FROM strandline.flush_event e
        CROSS JOIN unnest(%(stages)s::text[]) AS w (stage)
        WHERE NOT EXISTS (SELECT FROM strandline.receipt r WHERE r.shard_key = e.shard_key
            AND r.event_id = e.event_id AND r.stage = w.stage AND r.outcome = 'applied')""",
    "events applied by more than one batch": """
        SELECT e.event_id || ' in ' || b.stage FROM strandline.batch b
        CROSS JOIN unnest(b.event_ids) AS e (event_id)
        WHERE b.state = 'applied' GROUP BY e.event_id, b.generation_id, b.stage HAVING count(*) > 1""",
    "receipts of something else than the batch that was applied": """
        SELECT r.event_id || ' in ' || r.stage FROM strandline.receipt r
        LEFT JOIN strandline.batch b ON b.shard_key = r.shard_key AND b.batch_id = r.batch_id
        WHERE r.outcome = 'applied' AND b.state IS DISTINCT FROM 'applied'""",
    "batches that were never closed": "SELECT batch_id::text FROM strandline.batch WHERE state = 'open'",
    "model answers that were paid for twice": """
        SELECT batch_id || '/' || step FROM strandline.model_call
        GROUP BY batch_id, step HAVING count(*) > 1""",
    "facts that an owner has twice": """
        SELECT text FROM strandline.fact WHERE live
        GROUP BY shard_key, generation_id, text HAVING count(*) > 1""",
    "facts that nobody said": """
        SELECT f.text FROM strandline.fact f WHERE f.live AND NOT EXISTS (
            SELECT FROM strandline.message m WHERE m.shard_key = f.shard_key AND m.role = 'user'
                AND m.envelope->>'content' = f.text)""",
    "facts that were said, flushed and lost": """
        SELECT DISTINCT m.envelope->>'content' FROM strandline.flush_event e
        JOIN strandline.message m ON m.shard_key = e.shard_key AND m.session_key = e.session_key
            AND m.seq BETWEEN e.from_seq AND e.through_seq
        WHERE m.role = 'user' AND m.envelope->>'content' <> ALL (%(gone)s::text[])
            AND NOT EXISTS (SELECT FROM strandline.fact f WHERE f.shard_key = m.shard_key
                AND f.live AND f.text = m.envelope->>'content')""",
    "sessions whose flushed messages are not each in one searchable piece": """
        SELECT s.session_id FROM strandline.session s WHERE
            (SELECT coalesce(sum(message_count), 0) FROM strandline.flush_event e
                WHERE e.shard_key = s.shard_key AND e.session_key = s.session_key)
            <> (SELECT coalesce(sum(through_seq - from_seq + 1), 0) FROM strandline.chunk c
                WHERE c.shard_key = s.shard_key AND c.session_key = s.session_key AND c.piece = 0)""",
    "sessions whose summary does not reach their last flush": """
        SELECT s.session_id FROM strandline.session s WHERE s.flushed_through > s.pinned_through
            AND s.flushed_through IS DISTINCT FROM (SELECT max(b.through_seq) FROM strandline.block_state b
                WHERE b.shard_key = s.shard_key AND b.scope_key = s.session_key)""",
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The journals against the message table."""

    accepted: int
    lost: int
    doubled: int
    violations: tuple[str, ...]


def compare(connection: Connection, acks: Sequence[Ack]) -> Comparison:
    """Each acknowledged message is in the log once, under its seq, in its words, in its order."""
    stored: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for session, message_id, seq, role, content in connection.execute(LOG):
        stored[session, message_id].append((seq, digest_of(role, content)))
    acked = {(ack.session, ack.id): ack for ack in acks}
    lost = [f"{session}/{id_}" for session, id_ in acked if (session, id_) not in stored]
    doubled = [f"{session}/{id_}" for (session, id_), rows in stored.items() if len(rows) > 1]
    violations = [
        *_listed("acknowledged messages that are lost", lost),
        *_listed("messages that are in the log twice", doubled),
        *_listed("messages that nobody acknowledged", [f"{s}/{i}" for s, i in stored if (s, i) not in acked]),
        *_listed("acknowledgements that differ from the log", _different(stored, acks)),
        *_listed("messages out of order", _out_of_order(acks)),
    ]
    return Comparison(len(acked), len(lost), len(doubled), tuple(violations))


def compare_histories(acks: Sequence[Ack], database_url: str) -> list[str]:
    """The same for some sessions, through ``Memory.get_all``."""
    by_session: dict[str, list[Ack]] = defaultdict(list)
    for ack in acks:
        by_session[ack.session].append(ack)
    violations = []
    for session in sorted(by_session, key=lambda name: -len(by_session[name]))[:HISTORIES]:
        memory = Memory.from_defaults(session, user_id=user_of(session), database_url=database_url)
        history = [(str(message.id), message.seq) for message in memory.get_all()]
        wanted = {ack.id: ack.seq for ack in by_session[session]}
        if dict(history) != wanted or [seq for _id, seq in history] != list(range(1, len(wanted) + 1)):
            violations.append(f"The history of session {session} is not what was acknowledged.")
        memory.close()
    return violations


def check_tables(connection: Connection, gone: Sequence[str] = ()) -> list[str]:
    """Everything was applied, once, and what was derived is what was said; of ``gone`` texts nothing is."""
    found = []
    for name, sql in CHECKS.items():
        given = {"stages": list(STAGES), "gone": list(gone)}
        rows = connection.execute(sql.encode(), given).fetchall()
        found += _listed(name, [str(row[0]) for row in rows])
    return found


def deleted_and_live(book: OwnersBook, database_url: str) -> list[str]:
    """Texts that a person deleted or a reset took back, and that their owner's facts say all the same."""
    found = []
    for user, gone in sorted(book.gone.items()):
        live = Conversation(database_url, "nobody", user).live_texts()
        found += [f"{user}: {text}" for text in sorted(live & gone)]
    return _listed("facts that were deleted and are live", found)


def counts(connection: Connection) -> dict[str, int]:
    """How much there is."""
    events, applied, facts, calls = connection.execute(COUNTS).fetchall()[0]
    return {"events": events, "applied": applied, "facts": facts, "model_calls": calls}


def _different(stored: dict[tuple[str, str], list[tuple[int, str]]], acks: Iterable[Ack]) -> Iterator[str]:
    for ack in acks:
        for seq, digest in stored.get((ack.session, ack.id), [])[:1]:
            if seq != ack.seq:
                yield f"{ack.session}/{ack.id}, acknowledged as {ack.seq}, is {seq}"
            if digest != ack.digest:
                yield f"{ack.session}/{ack.id} has other words than were put"


def _out_of_order(acks: Iterable[Ack]) -> Iterator[str]:
    """Of one speaker each message was put after the one before it was acknowledged."""
    by_speaker: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for ack in acks:
        by_speaker[ack.session, ack.writer][ack.number] = ack.seq
    for (session, writer), seqs in by_speaker.items():
        in_order = [seqs[number] for number in sorted(seqs)]
        if in_order != sorted(set(in_order)):
            yield f"{session} of {writer}"


def _listed(name: str, found: Iterable[str]) -> list[str]:
    """A violation as a sentence: how many, and the first of them."""
    all_found = list(found)
    if not all_found:
        return []
    shown = ", ".join(all_found[:SHOWN]) + (", …" if len(all_found) > SHOWN else "")
    return [f"{len(all_found):,} {name}: {shown}"]
