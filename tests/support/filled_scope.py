"""A scope of thousands of pieces, made up, and what an exact scan of it would find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import psycopg
from numpy.typing import NDArray

from strandline.pipelines.text.weighting import K1, NEARBY, WORDS_BESIDE_VECTOR, B, full_text_score
from strandline.pipelines.text.weighting import USUAL_LENGTH as LENGTH
from strandline.pipelines.vectors.stage import vector_text

Floats = NDArray[np.float64]

DIMENSIONS = 256
BESIDE = tuple(NEARBY[distance] for distance in (1, 2, 3))
# As search_v1 has them.
COMMON_PIECES, DAMPING, FULL_LENGTH = 300, 10, 18

COPY = """
COPY strandline.chunk (shard_key, generation_id, session_key, from_seq, piece, through_seq, event_id,
    batch_id, length, lexemes, embedding) FROM STDIN
"""
SEARCH = """
SELECT session_key, from_seq, score
FROM strandline.search_v1(%s, %s, %s, %s, %s, %s::halfvec, %s, %s, %s, true, NULL, '{}', NULL, NULL, NULL,
    false, '{}', '{}', '{}', '{}')
"""
NOTHING_VISIBLE = 2**62


@dataclass(frozen=True, slots=True)
class Filled:
    """One session's pieces: a row of ``words`` and of ``vectors`` for each, and the ``seqs`` they are of.

    Messages have one piece or two, and some seqs none.  Words are numbers, the low ones in many messages.
    """

    seqs: NDArray[np.int64]
    words: tuple[tuple[int, ...], ...]
    vectors: Floats


def made_up(messages: int, *, seed: int) -> Filled:
    """Messages about a few hundred matters, in words of which some are in most and most in few."""
    draw = np.random.default_rng(seed)
    seqs = np.array(
        [seq for seq in range(1, messages + 1) if seq % 97 for _ in range(2 if seq % 50 == 0 else 1)]
    )
    matters = draw.normal(size=(300, DIMENSIONS))
    vectors = matters[draw.integers(300, size=len(seqs))] + draw.normal(size=(len(seqs), DIMENSIONS)) + 0.3
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = tuple(tuple((draw.zipf(1.3, size=12) % 3_000).tolist()) for _ in seqs)
    return Filled(seqs, words, vectors.astype(np.float16).astype(np.float64))


def fill(
    connection: psycopg.Connection[Any],
    shard_key: UUID,
    generation_id: int,
    session_key: UUID,
    filled: Filled,
) -> None:
    """Write the pieces as workers do."""
    pieces = np.concatenate([[False], filled.seqs[1:] == filled.seqs[:-1]]).astype(int).tolist()
    each = dict(zip(*np.unique(filled.seqs, return_counts=True), strict=True))
    start = (shard_key, generation_id, session_key)
    with connection.cursor().copy(COPY) as copy:
        for at, seq in enumerate(filled.seqs.tolist()):
            words = filled.words[at]
            lexemes = " ".join(f"w{word}:{_positions(words, word)}" for word in dict.fromkeys(words))
            length = len(words) * each[seq]
            vector = vector_text(filled.vectors[at].tolist())
            copy.write_row((*start, seq, pieces[at], seq, uuid4(), uuid4(), length, lexemes, vector))


def search(
    connection: psycopg.Connection[Any],
    shard_key: UUID,
    generation_id: int,
    session_key: UUID | None,
    words: Sequence[int],
    vector: Floats | None,
    *,
    top_k: int = 10,
    visible: tuple[UUID | None, int] = (None, NOTHING_VISIBLE),
    cutoff: float = 0.0,
) -> list[tuple[UUID, int, float]]:
    """The hits of the function: session, seq and score."""
    lexemes = [f"w{word}" for word in words]
    embedding = None if vector is None else vector_text(vector.tolist())
    keys = (shard_key, generation_id, session_key, *visible)
    return connection.execute(SEARCH, (*keys, embedding, lexemes, cutoff, top_k)).fetchall()


def exact(filled: Filled, words: Sequence[int], vector: Floats | None) -> dict[int, float]:
    """The score of each message, by a scan of all of them."""
    last = int(np.max(filled.seqs))
    there = np.zeros(last + 1, dtype=bool)
    there[filled.seqs] = True
    lengths = np.zeros(last + 1)
    counts = np.zeros((last + 1, len(words)))
    for seq, said in zip(filled.seqs.tolist(), filled.words, strict=True):
        lengths[seq] += len(said)
        counts[seq] += [said.count(word) for word in words]
    having = np.count_nonzero(counts, axis=0)
    rarity = np.log(1 + (there.sum() - having + 0.5) / (having + 0.5))
    times = counts / (1 - B + B * np.maximum(lengths, 1) / LENGTH)[:, None]
    near = times.copy()
    for distance, share in enumerate(BESIDE, start=1):
        near[distance:] += share * times[:-distance]
        near[:-distance] += share * times[distance:]
    text = (near / (near + K1)) @ rarity
    text[~there] = 0
    contrast = np.zeros(last + 1)
    if vector is not None:
        # Of a few words a vector says little.
        trust = np.minimum(1, lengths[filled.seqs] / FULL_LENGTH)
        np.maximum.at(contrast, filled.seqs, contrasts(filled, vector) * trust)
    contrast = np.minimum(contrast, 1)
    full = full_text_score(max(float(text.max()), 1e-9), float(rarity.sum()), float(contrast.max()))
    scores = text / full * (1 if vector is None else WORDS_BESIDE_VECTOR)
    scores = scores + (1 - WORDS_BESIDE_VECTOR) * contrast
    return {int(seq): float(scores[seq]) for seq in np.flatnonzero(there)}


def contrasts(filled: Filled, vector: Floats) -> Floats:
    """The cosine of each piece to the query, both without what the first pieces have in common.

    Instead of each piece's length without it, the root of the mean square of all.
    """
    first = filled.vectors[:COMMON_PIECES]
    share = len(first) / (len(first) + DAMPING)
    common = first.mean(axis=0)
    rest = vector - share * common
    usual = np.sqrt(max(0.05, 1 - (2 * share - share**2) * (common @ common)))
    nearness: Floats = (filled.vectors - share * common) @ (rest / np.linalg.norm(rest)) / usual
    return nearness


def _positions(words: Sequence[int], word: int) -> str:
    return ",".join(str(at) for at, said in enumerate(words, start=1) if said == word)
