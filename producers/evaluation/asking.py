"""Asks a memory a question, by a search and by a plain read, and measures what each gives."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strandline.producers.blocks.base import BaseMemoryBlock
from strandline.producers.blocks.render import escaped
from strandline.producers.blocks.resolve import pipelines_of
from strandline.producers.execution import Resources
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.read import read
from strandline.producers.reading.request import ReadRequest
from strandline.producers.search.hits import SearchScope
from strandline.producers.search.ranking import EmbedQuery, Vectors
from strandline.producers.search.search import FoundMessage, SearchRequest, search_messages
from strandline.producers.tokens import text_counter
from strandline.schemas.queries.conversation.messages import MessagesWithIds
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import VECTORS
from strandline.schemas.values.message import read_rows
from strandline.schemas.values.policy import DEFAULT_TOKEN_LIMIT
from strandline.schemas.wire.report import Report


@dataclass(frozen=True, slots=True)
class Subject:
    """The memory to ask, and how; nothing is written, not even to the audit trail."""

    resources: Resources
    identity: SessionIdentity
    scope: SearchScope = "session"
    embed_query: EmbedQuery | None = None
    blocks: tuple[BaseMemoryBlock, ...] = ()
    token_limit: int = DEFAULT_TOKEN_LIMIT
    vectors: Vectors | None = None

    def search(self, text: str, limit: int) -> list[FoundMessage]:
        """The first messages that ``Memory.search`` finds."""
        request = SearchRequest(
            self.identity,
            text,
            limit,
            self.scope,
            self.embed_query,
            indexes=self.resources.indexes,
            vectors=self.vectors,
        )
        return self.resources.database().run(search_messages(request))

    def read(self, text: str) -> MemoryContext:
        """The read of ``Memory.get``."""
        chosen = self.vectors if VECTORS in pipelines_of(self.blocks) else None
        request = ReadRequest(
            identity=self.identity,
            blocks=self.blocks,
            token_limit=self.token_limit,
            count_text=text_counter(),
            query=text,
            embed_query=self.embed_query,
            windows=self.resources.windows,
            indexes=self.resources.indexes,
            generation=None if chosen is None else chosen.generation_id,
        )
        return self.resources.database().run(read(request))


def flat(text: str) -> str:
    """The text with its letters in one case, and one blank for any white space."""
    return " ".join(text.split()).casefold()


def forms_of(text: str) -> frozenset[str]:
    """How a read may show a text: as the window does, and as memory does."""
    return frozenset({flat(text), flat(escaped(text))})


def count_standing(needed: Iterable[frozenset[str]], texts: Sequence[str]) -> int:
    """How many of the needed texts, each with its forms, stand in the given texts."""
    whole = flat("\n".join(texts))
    return sum(any(form and form in whole for form in forms) for forms in needed)


@dataclass(frozen=True, slots=True)
class Answer:
    """The evidence for a question: messages, by id with the forms of their texts; and words, with theirs."""

    messages: Mapping[str, frozenset[str]]
    words: Sequence[frozenset[str]]

    @classmethod
    def of(cls, subject: Subject, evidence: Sequence[str], expected: Sequence[str]) -> Answer:
        """The subject's messages among the given ones."""
        identity = subject.identity
        scope_key = identity.session_key if subject.scope == "session" else None
        query = MessagesWithIds(shard_key=identity.shard_key, scope_key=scope_key, ids=list(evidence))
        rows = read_rows(subject.resources.database().fetch(query))
        messages = {str(one.id): forms_of(one.text) | forms_of(one.shown_text) for one in rows}
        return cls(messages, [forms_of(text) for text in expected])

    def share(self, ids: set[str | None], texts: Sequence[str]) -> float:
        """The share of it among these ids and texts."""
        words = count_standing(self.words, texts)
        return (len(ids & self.messages.keys()) + words) / (len(self.messages) + len(self.words))


class Measured(Report):
    """A question, asked in a generation of vectors (null: what serves).

    ``recall`` and ``context_recall`` are the shares, 0 to 1, of its answer in the first hits and in the read;
    ``problem`` says why it was compared by words alone.
    """

    generation: int | None
    recall: float
    context_recall: float
    tokens: int
    over_limit: bool
    search_ms: float
    read_ms: float
    problem: str | None


def measure(subject: Subject, question: str, answer: Answer, limit: int) -> Measured:
    """Search for a question, of which the first ``limit`` hits count, then read with it.

    Raises:
        StrandlineError: the database failed.
    """
    began = time.perf_counter()
    hits = subject.search(question, limit)
    searched = time.perf_counter()
    context = subject.read(question)
    ended = time.perf_counter()
    texts = [message.text for message in context]
    shown = {one for one, forms in answer.messages.items() if count_standing([forms], texts)}
    problems = [one.reason for one in context.omitted if one.kind in ("search_text_only", "search_failed")]
    return Measured(
        generation=None if subject.vectors is None else subject.vectors.generation_id,
        recall=answer.share({hit.message.id for hit in hits}, [hit.text for hit in hits]),
        context_recall=answer.share({*shown}, texts),
        tokens=context.tokens,
        over_limit=context.over_budget,
        search_ms=round(1_000 * (searched - began), 2),
        read_ms=round(1_000 * (ended - searched), 2),
        problem=next(iter(problems), None),
    )
