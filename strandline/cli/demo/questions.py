"""Asks questions of the memory, and finds out which messages what it gives came from."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.cli.demo.file import Question
from strandline.cli.demo.play import Samples, timed_get
from strandline.cli.demo.reports import AnswerReport, GivenFact, GivenMessage
from strandline.memory import Memory
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.producers.reading.given import GivenFact as FactOfRead
from strandline.schemas.values.message import Message

FACTS_PER_ANSWER = 2


def ask(memory: Memory, question: Question, *, history: Sequence[Message], samples: Samples) -> AnswerReport:
    """Read memory with the question, and report what the prompt contains and where it came from."""
    context = timed_get(memory, question.text, samples)
    ids = {message.seq: message.id or "" for message in history}
    shown = {message.id for message in context if message.id is not None and message.seq is not None}
    facts = [
        GivenFact(text=fact.text, message_ids=[ids[seq] for seq in _seqs(fact, memory) if seq in ids])
        for fact in context.facts
    ]
    # The prompt has them in the order in which they were said; only the first few are printed.
    best_first = sorted(context.hits, key=lambda hit: -hit.score)
    retrieved = [GivenMessage(id=hit.message.id or "", text=str(hit.message)) for hit in best_first]
    from_facts = {message_id for fact in facts for message_id in fact.message_ids}
    known = from_facts | shown | {message.id for message in retrieved}
    return AnswerReport(
        question=question.text,
        answer=question.answer,
        facts_given=len(facts),
        facts=_closest(question.text, facts),
        retrieved=retrieved,
        window_message_ids=[message.id or "" for message in context if message.id in shown],
        evidence=list(question.evidence),
        evidence_given=[message_id for message_id in question.evidence if message_id in known],
    )


def _seqs(fact: FactOfRead, memory: Memory) -> list[int]:
    """The messages of this session that the fact comes from."""
    return [seq for source in fact.sources if source.session_id == memory.session_id for seq in source.seqs]


def _closest(question: str, facts: Sequence[GivenFact]) -> list[GivenFact]:
    """The facts that share words with the question, those with most of them first."""
    words = set(query_lexemes(question))
    shared = [(len(words & set(query_lexemes(fact.text))), fact) for fact in facts]
    ranked = sorted((pair for pair in shared if pair[0]), key=lambda pair: -pair[0])
    return [fact for _, fact in ranked[:FACTS_PER_ANSWER]]
