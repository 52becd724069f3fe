"""Postprocessing: an application's functions, applied to a search's hits before a block shows them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial

from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.context import Omission
from strandline.producers.reading.foreign_code import call_within, problem_of
from strandline.producers.search.hits import Hit, Reranker

logger = logging.getLogger("strandline.producers")

# The number of hits that the functions choose from, and the seconds that they may take together.
MAX_CANDIDATES = 20
MAX_SECONDS = 1.0


def postprocess_hits(
    block: VectorMemoryBlock, query: str, hits: tuple[Hit, ...]
) -> tuple[tuple[Hit, ...], list[Omission]]:
    """The hits after each of the block's functions in order; one that fails or is late changes nothing.

    The functions are the application's code, whose failure must not fail the read.
    """
    deadline = time.monotonic() + MAX_SECONDS
    omissions = []
    for keyword, step in block.steps:
        if not hits:
            break
        chosen, problem = _attempt(step, query, hits, deadline - time.monotonic())
        if chosen is not None:
            hits = chosen
            continue
        logger.warning(
            "postprocessor failed", extra={"action": "rerank_failed", "block": block.name, "reason": problem}
        )
        reason = f"Its {keyword}= {problem}; the hits stay as they were."
        omissions.append(Omission("rerank_failed", block.name, reason))
    return hits, omissions


def _attempt(
    step: Reranker, query: str, hits: tuple[Hit, ...], seconds: float
) -> tuple[tuple[Hit, ...] | None, str]:
    """The hits that the function returns, or None and why they are not used."""
    try:
        chosen = tuple(call_within(max(0.0, seconds), partial(step, query, hits)))
    except Exception as error:  # noqa: BLE001  # the edge to foreign code, see above
        return None, problem_of(error, MAX_SECONDS)
    places = [_index_of(hit, hits) for hit in chosen]
    if None in places:
        return None, "returned something that is not one of the hits"
    return tuple(hits[place] for place in dict.fromkeys(places) if place is not None), ""


def _index_of(hit: object, hits: Sequence[Hit]) -> int | None:
    """The index of the hit; None if it is not one of ``hits``."""
    return next((place for place, other in enumerate(hits) if other is hit), None)
