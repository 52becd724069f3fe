"""Agno's ways to look up memories, and one more."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.producers.facts.listing import MAX_LIMIT, Fact
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

DEFAULT_CHOSEN = 10


def search_memories(
    facts: OwnerFacts, query: str | None, limit: int | None, method: str | None
) -> Sequence[Fact]:
    """The facts that a method gives.

    Raises:
        ConfigurationError: the method is unknown, or needs a query.
    """
    if method in (None, "last_n"):
        return facts.list(last_n=MAX_LIMIT if limit is None else limit)
    if method == "first_n":
        return facts.list(first_n=MAX_LIMIT if limit is None else limit)
    if method not in ("agentic", "semantic"):
        raise ConfigurationError(
            f"retrieval_method is {quote(str(method))}; it must be 'last_n', 'first_n', 'agentic' or"
            " 'semantic'."
        )
    if not query:
        raise ConfigurationError(f"retrieval_method='{method}' needs a query.")
    size = DEFAULT_CHOSEN if limit is None else limit
    if method == "agentic":
        return list(facts.choose(query, limit=size))
    return [hit.fact for hit in facts.search(query, limit=size)]
