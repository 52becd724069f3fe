"""The vector block: pieces of flushed conversation, and facts, that match the query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    CountText,
    Material,
    checked_count,
    pieces_to_cut,
)
from strandline.producers.blocks.render import fact_line, message_line
from strandline.producers.search.hits import (
    MESSAGES_ALONE,
    Hit,
    HitKind,
    Reranker,
    SearchScope,
    check_scope,
    checked_kinds,
)
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.values.foreign_values import plain_list, plain_number, plain_scalar
from strandline.schemas.values.lanes import VECTORS

# As LlamaIndex's documents have it.
DOCUMENTED_TOP_K = 2

# Escaped text holds no "<", so this mark is found between hits and never inside one.
_BETWEEN_HITS = re.compile(r"\n\n(?=<(?:message |fact>))")


@dataclass(frozen=True, init=False)
class VectorMemoryBlock(BaseMemoryBlock):
    """Pieces of flushed conversation that match the query; facts as well, if asked for.

    Without ``similarity_top_k``, ``priority`` and facts among ``kinds``: as many messages as there is room
    for, in the order in which they were said.  Otherwise: the ``similarity_top_k`` best hits, best first.

    Attributes:
        similarity_top_k: how many hits; None: as many as there is room for. With a priority, or facts among
            ``kinds``, the default is 2.
        retrieval_context_window: how many of the latest messages form the query: of the window, or of the
            ``messages`` given to a read. If ``input`` is given, only ``input`` is searched for.
        similarity_cutoff: the minimum cosine similarity, 0 to 1; not applied if only words are compared.
        scope: search this ``session``, all sessions of its ``owner``, or the messages ``shared`` in the
            scope that ``Memory(shared_scope=…)`` names.
        kinds: ``"message"``, ``"fact"`` or both; by default only messages, because facts have their own
            block. A fact that a facts block of the same read shows is not repeated.
        exclude_current: leave out this session, and facts that come only from it.
        postprocessors: functions, called in order with the query and the hits that the previous one returned
            (the first gets up to 20); the first ``similarity_top_k`` hits of the last result are shown.  A
            ``Hit`` has ``messages``, or a ``fact``.  They run in the process that calls ``get``, for at most
            a second together; if one fails, the hits stay as they were, and ``.omitted`` says so.  They may
            be called in several threads.
        rerank: one more such function, called last.
    """

    similarity_top_k: int | None
    retrieval_context_window: int
    similarity_cutoff: float
    scope: SearchScope
    kinds: tuple[HitKind, ...]
    exclude_current: bool
    postprocessors: tuple[Reranker, ...]
    rerank: Reranker | None

    _keywords = (
        "name",
        "similarity_top_k",
        "retrieval_context_window",
        "similarity_cutoff",
        "scope",
        "kinds",
        "exclude_current",
        "postprocessors",
        "rerank",
        "priority",
    )

    def __init__(
        self,
        *,
        name: str = "vector_memory",
        similarity_top_k: int | None = None,
        retrieval_context_window: int = 5,
        similarity_cutoff: float = 0.0,
        scope: SearchScope = "session",
        kinds: Sequence[HitKind] = MESSAGES_ALONE,
        exclude_current: bool = False,
        postprocessors: Sequence[Reranker] = (),
        rerank: Reranker | None = None,
        priority: int | None = None,
        **unknown: Any,
    ) -> None:
        self._refuse(unknown)
        super().__init__(name=name, priority=3 if priority is None else priority, pipeline=VECTORS)
        scope = plain_scalar(scope)
        kinds = checked_kinds(kinds)
        # A subclass renders and shortens in its own way, and facts among the hits are ranked with them.
        is_counted = priority is not None or "fact" in kinds or type(self) is not VectorMemoryBlock
        if similarity_top_k is None and is_counted:
            similarity_top_k = DOCUMENTED_TOP_K
        self._set(
            similarity_top_k=None
            if similarity_top_k is None
            else checked_count("similarity_top_k", similarity_top_k, least=1),
            retrieval_context_window=checked_count(
                "retrieval_context_window", retrieval_context_window, least=1
            ),
            similarity_cutoff=_checked_cutoff(similarity_cutoff),
            scope=scope,
            kinds=kinds,
            exclude_current=exclude_current,
            postprocessors=_checked_functions(postprocessors),
            rerank=rerank,
        )
        check_scope(scope, self.kinds, exclude_current)
        if rerank is not None and not callable(rerank):
            raise ConfigurationError("rerank must be a callable that takes the query and a list of hits.")

    @property
    def is_filler(self) -> bool:
        return self.similarity_top_k is None

    @property
    def steps(self) -> tuple[tuple[str, Reranker], ...]:
        """The functions applied to the hits, in order, each with the keyword that named it."""
        last = () if self.rerank is None else (("rerank", self.rerank),)
        return (*(("postprocessors", step) for step in self.postprocessors), *last)

    def render(self, material: Material) -> str | None:
        """A line per message that has text, or the fact; a blank line separates the hits."""
        pieces = (_lines(hit) for hit in material.hits.get(self.name, ()))
        return "\n\n".join(piece for piece in pieces if piece) or None

    def truncate(self, content: str, tokens_to_cut: int, count: CountText) -> str | None:
        """``content`` without the hits that scored lowest."""
        hits = _BETWEEN_HITS.split(content)
        worst_first = hits[::-1]
        return "\n\n".join(hits[: len(hits) - pieces_to_cut(worst_first, tokens_to_cut, count)]) or None


def _lines(hit: Hit) -> str:
    if hit.fact is not None:
        return fact_line(hit.fact.text)
    return "\n".join(message_line(message) for message in hit.messages if message.shown_text)


def _checked_cutoff(cutoff: object) -> float:
    if isinstance(cutoff, bool) or not isinstance(cutoff, (int, float)) or not 0 <= plain_number(cutoff) <= 1:
        raise ConfigurationError(f"similarity_cutoff is {quote(cutoff)}; it must be from 0 to 1.")
    return float(plain_number(cutoff))


def _checked_functions(functions: object) -> tuple[Reranker, ...]:
    callables = plain_list(functions) if isinstance(functions, (list, tuple)) else [None]
    if not all(callable(one) for one in callables):
        raise ConfigurationError(
            "postprocessors must be a list of callables that take the query and a list of hits."
        )
    return tuple(callables)
