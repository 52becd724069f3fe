"""Asks questions of the memory, and finds out which messages what it gives came from."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.cli.demo.file import Question
from strandline.cli.demo.play import Samples, timed_get
from strandline.cli.demo.reports import (
    AnswerReport,
    EvidencePlaces,
    EvidenceReport,
    GivenFact,
    GivenMessage,
)
from strandline.memory import Memory
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.producers.reading.given import GivenFact as FactOfRead
from strandline.schemas.values.message import Message

FACTS_PER_ANSWER = 2
# A shorter sentence may be the same by chance.
MIN_QUOTED_CHARACTERS = 12


def ask(memory: Memory, question: Question, *, history: Sequence[Message], samples: Samples) -> AnswerReport:
    """Read memory with the question, and report what the prompt contains and where it came from."""
    context = timed_get(memory, question.text, samples)
    ids = {message.seq: message.id or "" for message in history}
    shown = {message.id for message in context if message.id is not None and message.seq is not None}
    facts = [
        GivenFact(text=fact.text, message_ids=[ids[seq] for seq in _seqs(fact, memory) if seq in ids])
        for fact in context.facts
    ]
    summary = "" if context.summary is None else context.summary.text
    # The prompt has them in the order in which they were said; only the first few are printed.
    best_first = sorted(context.hits, key=lambda hit: -hit.score)
    retrieved = [GivenMessage(id=hit.message.id or "", text=str(hit.message)) for hit in best_first]
    places: dict[str, set[str | None]] = {
        "messages": {message.id for message in retrieved},
        "facts": {message_id for fact in facts for message_id in fact.message_ids},
        "summary": {message.id for message in history if _quotes(summary, message)},
        "window": {*shown},
    }
    known = {message_id for ids in places.values() for message_id in ids}
    evidence = list(dict.fromkeys(question.evidence))
    return AnswerReport(
        question=question.text,
        answer=question.answer,
        facts_given=len(facts),
        facts=_closest(question.text, facts),
        retrieved=retrieved,
        window_message_ids=[message.id or "" for message in context if message.id in shown],
        evidence=evidence,
        evidence_given=[message_id for message_id in evidence if message_id in known],
        evidence_from=EvidencePlaces(**{name: len(ids & set(evidence)) for name, ids in places.items()}),
    )


def add_up(
    answers: Sequence[AnswerReport], *, token_limit: int, conversation_tokens: int
) -> EvidenceReport | None:
    """The evidence of all questions together; None if no question names its own."""
    answers = [answer for answer in answers if answer.evidence]
    if not answers:
        return None
    evidence = sum(len(answer.evidence) for answer in answers)
    evidence_given = sum(len(answer.evidence_given) for answer in answers)
    return EvidenceReport(
        token_limit=token_limit,
        conversation_tokens=conversation_tokens,
        questions=len(answers),
        questions_with_all=sum(len(one.evidence_given) == len(one.evidence) for one in answers),
        evidence=evidence,
        evidence_given=evidence_given,
        share_given=round(evidence_given / evidence, 4),
    )


def _quotes(summary: str, message: Message) -> bool:
    """Whether a line of the summary, with or without its speaker, is in the message in the same words."""
    lines = [line.strip() for line in summary.splitlines()]
    quotations = [*lines, *(line.partition(": ")[2] for line in lines)]
    return any(len(words) >= MIN_QUOTED_CHARACTERS and words in message.text for words in quotations)


def _seqs(fact: FactOfRead, memory: Memory) -> list[int]:
    """The messages of this session that the fact comes from."""
    return [seq for source in fact.sources if source.session_id == memory.session_id for seq in source.seqs]


def _closest(question: str, facts: Sequence[GivenFact]) -> list[GivenFact]:
    """The facts that share words with the question, those with most of them first."""
    words = set(query_lexemes(question))
    shared = [(len(words & set(query_lexemes(fact.text))), fact) for fact in facts]
    ranked = sorted((pair for pair in shared if pair[0]), key=lambda pair: -pair[0])
    return [fact for _, fact in ranked[:FACTS_PER_ANSWER]]
