"""Facts for agents of Agno: matches and some of the newest, and the changes of a call in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.producers.facts.listing import Fact
from strandline.producers.writing.sources import FactChanges
from strandline.schemas.display.shown_text import quantity

# One in so many is among the newest, whatever its subject.
_NEWEST_SHARE = 5
_MAX_NAMED = 10


def pick_facts(newest: Sequence[Fact], matches: Iterable[Fact], limit: int) -> list[Fact]:
    """At most ``limit`` facts, oldest first: some of the newest, the matches, more of the newest.

    Args:
        newest: at least ``limit`` facts, the newest first.
        matches: facts that fit the question, the best first.
    """
    always = newest[: min(limit, max(1, limit // _NEWEST_SHARE))]
    chosen = {fact.fact_id: fact for fact in always}
    for fact in [*matches, *newest]:
        if len(chosen) < limit:
            chosen.setdefault(fact.fact_id, fact)
    return sorted(chosen.values(), key=lambda fact: (fact.said_at, fact.fact_id))


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
