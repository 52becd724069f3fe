"""Choosing the facts that a run is shown, if there are too many: matches, and some of the newest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.producers.facts.listing import Fact

# One in so many is among the newest, whatever its subject.
_NEWEST_SHARE = 5


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
