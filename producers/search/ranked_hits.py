"""Reads what a search ranked as hits: rows of its statement, or what an index in memory recalls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from uuid import UUID

from strandline.producers.search.hits import Hit, HitFact
from strandline.producers.search.index.indexed_search import Recalled
from strandline.schemas.queries.conversation.search import SearchChunksRow
from strandline.schemas.queries.conversation.sharing import SearchSharedChunksRow
from strandline.schemas.values.message import Message, read_rows

RankedRow = SearchChunksRow | SearchSharedChunksRow

# What makes a hit: the rows of one agree in it.
_place = attrgetter("score", "similarity", "session_key", "from_seq", "through_seq", "fact_id", "fact")


def read_hits(rows: Sequence[RankedRow]) -> list[Hit]:
    """The rows of the statement, best first, as pieces of conversation and facts."""
    messages = iter(read_rows([row for row in rows if row.fact_id is None]))
    return [_hit(list(group), messages) for _, group in groupby(rows, key=_place)]


def _hit(rows: Sequence[RankedRow], messages: Iterator[Message]) -> Hit:
    """One hit; its messages are the next ones."""
    first = rows[0]
    if first.fact_id is not None:
        sources = json.loads(first.sources) if first.sources else ()
        fact = HitFact.read(first.fact_id, first.fact, first.created_at, sources)
        return Hit(first.score, None, (), first.similarity, fact)
    of_hit = list(islice(messages, len(rows)))
    bounds = first.from_seq, first.through_seq
    return _message_hit(first.score, first.similarity, first.session_key, of_hit, *bounds)


def _message_hit(
    score: float,
    similarity: float,
    session_key: UUID | None,
    messages: list[Message],
    from_seq: int,
    through_seq: int,
) -> Hit:
    if len(messages) == 1 and from_seq <= (messages[0].seq or 0) <= through_seq:
        return Hit(score, session_key, tuple(messages), similarity)
    exchange = _exchange(messages, from_seq, through_seq)
    seqs = {message.seq or 0 for message in exchange}
    beside = frozenset(seq for seq in seqs if not from_seq <= seq <= through_seq)
    return Hit(score, session_key, exchange, similarity, beside_seqs=beside)


def recalled_hits(recall: Recalled) -> list[Hit]:
    """The hits of an index; one whose message was deleted has none."""
    ranks, hits = recall.ranks, []
    for place, (number, score, similarity) in enumerate(
        zip(ranks.numbers, ranks.scores, ranks.similarities, strict=True)
    ):
        utterances = recall.messages.get(place)
        if utterances is None:
            continue
        session_key = ranks.sessions[number - 1]
        if len(utterances) == 1 and utterances[0].place[1] == ranks.from_seqs[place]:
            (only,) = utterances
            hits.append(Hit(score, session_key, (only.message,), similarity, utterance=only))
            continue
        bounds = ranks.from_seqs[place], ranks.through_seqs[place]
        messages = [one.message for one in utterances]
        hits.append(_message_hit(score, similarity, session_key, messages, *bounds))
    hits += [Hit(fact.score, None, (), fact.similarity, fact.fact) for fact in recall.facts]
    return hits


def _exchange(messages: Sequence[Message], from_seq: int, through_seq: int) -> tuple[Message, ...]:
    """The messages found; a question with the answer that follows, an answer with the question before it."""
    within = [message for message in messages if from_seq <= (message.seq or 0) <= through_seq]
    if not within:
        return ()
    before = [m for m in messages if (m.seq or 0) < from_seq and m.role != "system"]
    after = [m for m in messages if (m.seq or 0) > through_seq]
    return (*within, *after) if within[0].role == "user" else (*before, *within)
