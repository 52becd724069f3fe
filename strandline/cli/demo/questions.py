"""Asks questions of the memory, and finds out which messages what it gives came from."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.cli.demo.file import Question
from strandline.cli.demo.play import Samples, timed_get
from strandline.cli.demo.reports import AnswerReport, GivenFact, GivenMessage
from strandline.memory import Memory
from strandline.pipelines.text.lexemes import query_lexemes
from strandline.producers.blocks.render import fact_line, message_line
from strandline.producers.facts.listing import Fact
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.values.message import Message

FACTS_PER_ANSWER = 2


def ask(
    memory: Memory,
    question: Question,
    *,
    history: Sequence[Message],
    facts: Sequence[Fact],
    samples: Samples,
) -> AnswerReport:
    """Read memory with the question, and report what the prompt contains and where it came from."""
    context = timed_get(memory, question.text, samples)
    memory_text = _memory_text(context)
    shown_facts = [fact for fact in facts if fact_line(fact.text) in memory_text]
    shown = {message.id for message in context if message.id is not None and message.seq is not None}
    retrieved = [m for m in history if m.text and m.id not in shown and message_line(m) in memory_text]
    from_facts = {message_id for fact in shown_facts for message_id in fact.message_ids}
    known = from_facts | shown | {message.id for message in retrieved}
    return AnswerReport(
        question=question.text,
        answer=question.answer,
        facts_given=len(shown_facts),
        facts=[
            GivenFact(text=fact.text, message_ids=list(fact.message_ids))
            for fact in _closest(question.text, shown_facts)
        ],
        retrieved=[GivenMessage(id=message.id or "", text=str(message)) for message in retrieved],
        window_message_ids=[message.id or "" for message in context if message.id in shown],
        evidence=list(question.evidence),
        evidence_given=[message_id for message_id in question.evidence if message_id in known],
    )


def _memory_text(context: MemoryContext) -> str:
    """The text that the blocks contributed, in the message that memory made or added to."""
    return "\n".join(message.text for message in context if "<memory>" in message.text)


def _closest(question: str, facts: Sequence[Fact]) -> list[Fact]:
    """The facts that share words with the question, those with most of them first."""
    words = set(query_lexemes(question))
    shared = [(len(words & set(query_lexemes(fact.text))), fact) for fact in facts]
    ranked = sorted((pair for pair in shared if pair[0]), key=lambda pair: -pair[0])
    return [fact for _, fact in ranked[:FACTS_PER_ANSWER]]
