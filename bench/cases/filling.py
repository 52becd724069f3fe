"""Fills tables by COPY, so that a million rows are there in seconds: history, sessions, facts, chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import cycle, islice
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg

from bench.environment import MESSAGE_BYTES, MESSAGE_TOKENS, Ground
from strandline import Memory
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from strandline.pipelines.text.lexemes import length_of, lexemes, to_tsvector_text
from strandline.pipelines.vectors.stage import vector_text
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, SessionIdentity, identify_session

Connection = psycopg.Connection[tuple[Any, ...]]

COPY_MESSAGES = """
COPY strandline.message (shard_key, session_key, incarnation, role, tokens, bytes, digest, metadata, calls,
    answers, created_at, seq, id, envelope) FROM STDIN
"""
COPY_OWNERS = "COPY strandline.session_owner (shard_key, namespace, session_id, owner_key) FROM STDIN"
# The row that a put with the same settings has written; only the keys differ.
COPY_SESSIONS = """
COPY strandline.session (shard_key, session_key, session_id, namespace, next_seq, window_tokens,
    window_messages, window_bytes, token_limit, flush_at_tokens, token_flush_size, max_window_messages,
    max_window_bytes, idle_seconds, watched_until, tokenizer, pipelines) FROM STDIN
"""
POLICY = """
SELECT namespace, next_seq, window_tokens, window_messages, window_bytes, token_limit, flush_at_tokens,
    token_flush_size, max_window_messages, max_window_bytes, idle_seconds, watched_until, tokenizer, pipelines
FROM strandline.session WHERE session_key = %s
"""
MOVE_MARKS = """
UPDATE strandline.session SET window_from = %(below)s + 1, flushed_through = %(below)s,
    next_seq = %(last)s + 1, window_tokens = (%(last)s - %(below)s) * %(tokens)s,
    window_messages = %(last)s - %(below)s, window_bytes = (%(last)s - %(below)s) * %(bytes)s
WHERE session_key = %(session_key)s
"""
COPY_FACTS = """
COPY strandline.fact (shard_key, generation_id, fact_id, text, fingerprint, lexemes, topics, said_at)
FROM STDIN
"""
COPY_CHUNKS = """
COPY strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq, event_id,
    batch_id, length, lexemes, embedding) FROM STDIN
"""
SERVING = "SELECT generation_id FROM strandline.generation WHERE pipeline = %s AND state = 'serving'"
INCARNATIONS = "SELECT session_key, incarnation FROM strandline.session"
LONG_AGO = "2026-01-01T00:00:00+00:00"
FACT_CHARACTERS = 80
_NO_TOPICS: list[str] = []
EMBEDDED_AT_ONCE = 2_000


def history(ground: Ground, memory: Memory, *, below: int, window: int, texts: Sequence[str] = ()) -> None:
    """Put once, then add so many messages below the marks and so many in the window.

    Args:
        texts: what the first of them say; default: pieces of the conversation.
    """
    memory.put(ground.pieces[0])
    identity = identify_session(DEFAULT_NAMESPACE, memory.session_id, None)
    last = below + window
    said = iter(texts) if texts else cycle([piece["content"] for piece in ground.pieces])
    with ground.connection() as connection:
        ((shard_key, incarnation),) = connection.execute(
            "SELECT shard_key, incarnation FROM strandline.session WHERE session_key = %s",
            [identity.session_key],
        ).fetchall()
        # As COPY reads it: written for a million rows, so nothing is done twice.
        start = "\t".join([str(shard_key), str(identity.session_key), str(incarnation), "user"])
        start += f"\t{MESSAGE_TOKENS}\t{MESSAGE_BYTES}\t\\\\x00\t\\N\t\\N\t\\N\t{LONG_AGO}"
        spoken = islice(_envelopes(said, ground), last - 1)
        lines = (f"{start}\t{seq}\t{seq:032x}\t{envelope}\n" for seq, envelope in enumerate(spoken, start=2))
        _copy_text(connection, COPY_MESSAGES, lines)
        connection.execute(
            MOVE_MARKS,
            {
                "below": below,
                "last": last,
                "tokens": MESSAGE_TOKENS,
                "bytes": MESSAGE_BYTES,
                "session_key": identity.session_key,
            },
        )


def sessions(ground: Ground, like: Memory, number: int) -> list[str]:
    """So many sessions that begin as ``like`` did, whose one put made it; their ids."""
    template = identify_session(DEFAULT_NAMESPACE, like.session_id, None)
    identities = [identify_session(DEFAULT_NAMESPACE, f"session-{at}", None) for at in range(number)]
    with ground.connection() as connection:
        ((namespace, *policy),) = connection.execute(POLICY, [template.session_key]).fetchall()
        _copy_rows(
            connection,
            COPY_OWNERS,
            ([one.directory_key, namespace, one.session_id, one.shard_key] for one in identities),
        )
        _copy_rows(
            connection,
            COPY_SESSIONS,
            ([one.shard_key, one.session_key, one.session_id, namespace, *policy] for one in identities),
        )
        incarnations: dict[UUID, UUID] = dict(connection.execute(INCARNATIONS).fetchall())
        _copy_text(connection, COPY_MESSAGES, _first_messages(ground, incarnations, identities))
    return [one.session_id for one in identities]


def facts(ground: Ground, shard_key: UUID, number: int) -> None:
    """So many live facts of an owner."""
    texts = [piece["content"][:FACT_CHARACTERS] for piece in islice(cycle(ground.pieces), number)]
    with ground.connection() as connection:
        ((generation_id,),) = connection.execute(SERVING, ["facts"]).fetchall()
        start = (shard_key, generation_id)
        rows = (
            (*start, uuid4(), f"{at}: {text}", at.to_bytes(8, "big"), _words(text), _NO_TOPICS, _minute(at))
            for at, text in enumerate(texts)
        )
        _copy_rows(connection, COPY_FACTS, rows)


def chunk_texts(ground: Ground, number: int) -> list[str]:
    """So many different texts: the first half of one piece and the second of another."""
    halves = [_halves(piece["content"]) for piece in ground.pieces]
    return [f"{halves[at % len(halves)][0]} {halves[_other(at, len(halves))][1]}" for at in range(number)]


class Chunks(NamedTuple):
    """What is stored of texts: their vectors, and how many lexemes each holds."""

    vectors: list[tuple[float, ...]]
    lengths: list[int]


def chunks(ground: Ground, memory: Memory, texts: Sequence[str]) -> Chunks:
    """A chunk for each of the session's first messages, which say these texts."""
    identity = identify_session(DEFAULT_NAMESPACE, memory.session_id, None)
    embedder = WordLlamaEmbedder()
    vectors: list[tuple[float, ...]] = []
    for at in range(0, len(texts), EMBEDDED_AT_ONCE):
        vectors += embedder.embed(texts[at : at + EMBEDDED_AT_ONCE]).vectors
    words = [lexemes(text) for text in texts]
    lengths = [length_of(each) for each in words]
    event_id, batch_id = uuid4(), uuid4()
    with ground.connection() as connection:
        ((generation_id,),) = connection.execute(SERVING, ["vectors"]).fetchall()
        start = (identity.shard_key, generation_id, identity.session_key)
        rows = (
            (*start, seq, 0, seq, event_id, batch_id, length, to_tsvector_text(each), stored)
            for seq, (each, length, stored) in enumerate(
                zip(words, lengths, map(vector_text, vectors), strict=True), start=1
            )
        )
        _copy_rows(connection, COPY_CHUNKS, rows)
    return Chunks(vectors, lengths)


def _first_messages(
    ground: Ground, incarnations: dict[UUID, UUID], identities: Sequence[SessionIdentity]
) -> Iterator[str]:
    (envelope,) = islice(_envelopes((piece["content"] for piece in ground.pieces), ground), 1)
    for one in identities:
        keys = f"{one.shard_key}\t{one.session_key}\t{incarnations[one.session_key]}"
        yield (
            f"{keys}\tuser\t{MESSAGE_TOKENS}\t{MESSAGE_BYTES}\t\\\\x00\t\\N\t\\N\t\\N\t{LONG_AGO}\t1\tfirst"
            f"\t{envelope}\n"
        )


def _envelopes(said: Iterable[str], ground: Ground) -> Iterator[str]:
    """Each text as its envelope, with its backslashes as COPY wants them; pieces are encoded once."""
    known = {piece["content"]: _envelope(piece["content"]) for piece in ground.pieces}
    for text in said:
        yield known.get(text) or _envelope(text)
    yield from cycle(known.values())


def _envelope(text: str) -> str:
    return json.dumps({"content": text}, ensure_ascii=False).replace("\\", "\\\\")


def _minute(number: int) -> datetime:
    return datetime.fromisoformat(LONG_AGO) + timedelta(minutes=number)


def _words(text: str) -> list[str]:
    return [lexeme for lexeme, _ in lexemes(text)]


def _halves(text: str) -> tuple[str, str]:
    words = text.split()
    middle = len(words) // 2
    return " ".join(words[:middle]), " ".join(words[middle:])


def _other(at: int, count: int) -> int:
    """Another number for each round through the pieces, so that no two texts are the same for long."""
    return (at + at // count + 1) % count


def _copy_rows(connection: Connection, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    with connection.cursor().copy(statement) as copy:
        for row in rows:
            copy.write_row(row)


def _copy_text(connection: Connection, statement: str, lines: Iterator[str]) -> None:
    with connection.cursor().copy(statement) as copy:
        while block := "".join(islice(lines, 1_000)):
            copy.write(block)
