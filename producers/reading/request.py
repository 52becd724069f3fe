"""A read's parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from strandline.pipelines.vectors.chunks import MAX_INDEXED_CHARACTERS
from strandline.producers.blocks.base import BaseMemoryBlock, InsertMethod
from strandline.producers.blocks.render import Renderer, render_memory
from strandline.producers.reading.contributions import Measure
from strandline.producers.reading.window_cache import WindowCache
from strandline.producers.search.index.index_cache import IndexCache
from strandline.producers.search.ranking import EmbedQuery
from strandline.producers.tokens import PART_TOKENS
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import Ring
from strandline.schemas.values.message import NOTHING, Message


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read of one session.

    Attributes:
        token_limit: maximum tokens of the result, memory included.  If they are fewer than the session's own,
            the window is cut to fit.
        within_own: read within the session's own limit; ``token_limit`` applies before its first put.
        named: policy values of this memory, reported if the session has others.
        time_zone: of the session, as the first statement told it; None: UTC.
        count_text: the session's tokenizer.
        part_tokens: tokens of content parts that are not text, by type.
        initial_token_count: tokens of the limit that are already used.
        latest_tokens: read without the pinned head, and only the newest messages of the window within so many
            tokens; None: both whole.
        query: the text that vector blocks search for; without it ``messages``, else the latest of the window.
        wait_for: wait until this ``seq`` has been put and, if it was flushed, the blocks cover it.
        timeout_seconds: how long to wait (default 10 s); after that the read continues anyway.
        embed_query: returns a query's vector as pgvector reads it, from its text and the generation's config
            (``embedder``, ``dimensions``, ``query_prefix``); None if the stored vectors are of another model,
            empty if the model has none for it.
        render: turns sections into text.
        shared_key: the key of the shared scope's rows, if the memory names one.
        block_arguments: for custom blocks, in addition to the query.
        indexed_characters: how much of a message searches know; ``omitted`` names longer ones.
        windows: the cache of windows read before; None if the read may see uncommitted messages.
        indexes: of scopes searched repeatedly; None as for ``windows``.
        ring: notifies workers of work that a read waits for; None: no notification.
        generation: read as if this one served its pipeline; None: what serves.
        in_callers_transaction: a search that fails then fails the read, since Postgres has ended that
            transaction.
    """

    identity: SessionIdentity
    blocks: tuple[BaseMemoryBlock, ...]
    token_limit: int
    count_text: Callable[[str], int]
    insert_method: InsertMethod = InsertMethod.SYSTEM
    query: str | Message | None = None
    messages: Sequence[Message] | None = None
    wait_for: int | None = None
    timeout_seconds: float | None = None
    embed_query: EmbedQuery | None = None
    render: Renderer = render_memory
    in_callers_transaction: bool = False
    part_tokens: Mapping[str, int] = field(default_factory=lambda: PART_TOKENS)
    initial_token_count: int = 0
    latest_tokens: int | None = None
    within_own: bool = False
    time_zone: str | None = None
    named: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    shared_key: UUID | None = None
    windows: WindowCache | None = None
    indexes: IndexCache | None = None
    block_arguments: Mapping[str, Any] = field(default_factory=dict)
    indexed_characters: int = MAX_INDEXED_CHARACTERS
    ring: Ring | None = None
    generation: int | None = None

    @property
    def measure(self) -> Measure:
        return Measure(self.count_text, self.render, self.part_tokens)
