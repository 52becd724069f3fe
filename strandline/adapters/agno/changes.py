"""What workers changed, in a sentence for an agent; and what an optimization would leave."""

from __future__ import annotations

from collections.abc import Sequence

from agno.db.schemas import UserMemory

from strandline.producers.facts.optimizing import Optimization
from strandline.producers.writing.sources import FactChanges
from strandline.schemas.display.shown_text import quantity

_MAX_NAMED = 10


def changes_text(changes: FactChanges) -> str:
    """The changes as an agent's tool returns them: additions and updates in words, deletions by number."""
    if changes.failure is not None:
        return "The request could not be carried out, and no memories were changed; an operator is needed."
    if not changes.is_complete:
        return "The request was accepted; memories follow from it in the background."
    sentences = [
        f"{verb}: {'; '.join(fact.text.rstrip('.') for fact in facts[:_MAX_NAMED])}"
        for verb, facts in (("Added", changes.added), ("Updated", changes.updated))
        if facts
    ]
    if changes.deleted:
        sentences.append(f"Deleted: {quantity(len(changes.deleted), 'memory', 'memories')}")
    return ". ".join(sentences) + "." if sentences else "No memories were changed."


def optimized_memories(
    before: Sequence[UserMemory], proposal: Optimization, user_id: str
) -> list[UserMemory]:
    """The memories as they would be: those that stay, and the sentences in the place of several."""
    replaced = {str(fact_id) for merged in proposal.merged for fact_id in merged.fact_ids}
    stays = [memory for memory in before if memory.memory_id not in replaced]
    sentences = [
        UserMemory(memory=merged.text, topics=list(merged.topics) or None, user_id=user_id)
        for merged in proposal.merged
    ]
    return [*stays, *sentences]
