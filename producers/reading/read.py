"""Reading: pinned head, memory, tail and window of a session, from one snapshot and within its limit.

A read never waits for a model, except for one embedding of the query if a vector block searches. A block
that fails is left out, and the result says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    InsertMethod,
    Material,
    Rendered,
)
from strandline.producers.blocks.render import Renderer, render_memory
from strandline.producers.blocks.resolve import max_facts_of, pipelines_of
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.applicable_blocks import readable_blocks, shorter_window
from strandline.producers.reading.block_search import (
    Shown,
    query_text,
    search_for_block,
    sources_of,
    without_shown,
)
from strandline.producers.reading.budget import Contribution, Fitted, Measure, fit, reserved_tail
from strandline.producers.reading.context import MemoryContext, Omission
from strandline.producers.reading.foreign_code import attempt, is_foreign
from strandline.producers.reading.insertion import assemble_messages
from strandline.producers.reading.snapshot import Snapshot, read_snapshot
from strandline.producers.reading.window_cache import NOTHING_KNOWN, KnownWindow, WindowCache
from strandline.producers.search.hits import Hit
from strandline.producers.search.query import EmbedQuery, prepare_query
from strandline.producers.search.ranking import SearchQuery
from strandline.producers.sessions import check_unowned
from strandline.producers.tokens import INLINE_CHARACTERS, PART_TOKENS, is_loaded
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.operations import Operation, Pause, Run, fetch
from strandline.schemas.queries.conversation.read import Coverage, Read
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import VECTORS
from strandline.schemas.values.message import Message

# More uncovered messages than this are named as omitted, not read: workers are far behind.
MAX_TAIL_MESSAGES = 1_000
MAX_TAIL_BYTES = 16_000_000


DEFAULT_WAIT_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.01
MAX_PAUSE_SECONDS = 0.2

# Each round takes messages out of the hits that the tail came to show; one is the rule.
_MAX_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read of one session.

    Attributes:
        token_limit: maximum tokens of the result, memory included.
        count_text: the session's tokenizer.
        part_tokens: tokens of content parts that are not text, by type.
        initial_token_count: tokens of the limit that are already used.
        query: the text that vector blocks search for; without it ``messages``, else the latest of the window.
        wait_for: wait until this ``seq`` has been put and, if it was flushed, the blocks cover it.
        timeout_seconds: how long to wait (default 10 s); after that the read continues anyway.
        embed_query: returns a query's vector as pgvector reads it, from its text and the generation's config
            (``embedder``, ``dimensions``); None if the stored vectors are from another model.
        render: turns sections into text.
        shared_key: the key of the shared scope's rows, if the memory names one.
        windows: the cache of windows read before; None if the read may see uncommitted messages.
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
    shared_key: UUID | None = None
    windows: WindowCache | None = None

    @property
    def measure(self) -> Measure:
        return Measure(self.count_text, self.render, self.part_tokens)


def read(request: ReadRequest) -> Operation[MemoryContext]:
    """Carry out a read: one round trip, and at least one more if vector blocks search.

    Raises:
        OwnerError: the session belongs to another owner.
        StrandlineError: the database failed.
    """
    pipelines = pipelines_of(request.blocks)
    if request.wait_for is not None and pipelines:
        yield from _wait(request, pipelines, request.wait_for)
    snapshot = yield from _snapshot(request, pipelines)
    if not snapshot.exists:
        yield from check_unowned(request.identity)
    request, snapshot, omissions = _narrow(request, snapshot)
    hits, failed_searches = yield from _search(request, snapshot)
    material = Material(facts=snapshot.facts, states=snapshot.states, hits=hits)
    fitted, failures = yield from _render_and_fit(request, snapshot, material)
    covered = snapshot.covered_through(pipelines)
    return MemoryContext(
        messages=assemble_messages(
            pinned=snapshot.pinned,
            tail=fitted.tail,
            window=snapshot.window,
            memory=fitted.memory,
            parts=fitted.parts,
            method=request.insert_method,
        ),
        covered_through=covered,
        caught_up=_caught_up(snapshot, covered, request.wait_for),
        omitted=(*omissions, *failed_searches, *failures, *fitted.omitted),
        tokens=fitted.tokens,
        over_budget=fitted.over_budget,
    )


def _snapshot(request: ReadRequest, pipelines: tuple[str, ...]) -> Operation[Snapshot]:
    """The session as it is now; of its window, only messages that this process has not cached are fetched."""
    session = (request.identity.shard_key, request.identity.session_key)
    known = NOTHING_KNOWN if request.windows is None else request.windows.find_window(session)
    rows = yield from fetch(_statement(request, pipelines, known))
    snapshot = read_snapshot(rows, known)
    if request.windows is not None and snapshot.known is not known:
        request.windows.keep(session, snapshot.known)
    return snapshot


def _statement(request: ReadRequest, pipelines: tuple[str, ...], known: KnownWindow) -> Read:
    return Read(
        **request.identity.keys,
        pipelines=list(pipelines),
        max_facts=max_facts_of(request.blocks) or 0,
        tail_rows=MAX_TAIL_MESSAGES,
        tail_bytes=MAX_TAIL_BYTES,
        known_from=known.seqs[0] if known.seqs else None,
        known_through=known.seqs[-1] if known.seqs else None,
        known_seal=known.seal,
    )


def _wait(request: ReadRequest, pipelines: tuple[str, ...], seq: int) -> Operation[None]:
    """Wait until ``seq`` was put and every pipeline covers the messages up to it, or the time is over."""
    timeout = DEFAULT_WAIT_SECONDS if request.timeout_seconds is None else request.timeout_seconds
    deadline = time.monotonic() + timeout
    uncovered = Coverage(**request.identity.keys, pipelines=list(pipelines), seq=seq)
    pause = FIRST_PAUSE_SECONDS
    while True:
        rows = yield from fetch(uncovered)
        left = deadline - time.monotonic()
        if left <= 0 or (rows and all(row.from_seq is None and seq <= row.last_seq for row in rows)):
            return
        yield Pause(min(pause, left))
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def _narrow(request: ReadRequest, snapshot: Snapshot) -> tuple[ReadRequest, Snapshot, list[Omission]]:
    """The read without blocks that cannot be shown, and messages for which the caller left no room."""
    blocks, omissions = readable_blocks(request.blocks, snapshot, request.shared_key)
    request = replace(request, blocks=blocks)
    if request.initial_token_count:
        request = replace(request, token_limit=max(0, request.token_limit - request.initial_token_count))
        snapshot, cut = shorter_window(snapshot, request.token_limit)
        omissions += cut
    return request, snapshot, omissions


def _caught_up(snapshot: Snapshot, covered: Mapping[str, int], wait_for: int | None) -> bool:
    if wait_for is not None and wait_for > snapshot.last_seq:
        return False
    target = snapshot.flushed_through if wait_for is None else min(wait_for, snapshot.flushed_through)
    return all(through >= target for through in covered.values())


def _search(
    request: ReadRequest, snapshot: Snapshot
) -> Operation[tuple[dict[str, tuple[Hit, ...]], list[Omission]]]:
    """The hits of each vector block; a search that fails is left out, and is among the omissions."""
    hits: dict[str, tuple[Hit, ...]] = {}
    omissions: list[Omission] = []
    blocks = [block for block in request.blocks if isinstance(block, VectorMemoryBlock)]
    if VECTORS not in snapshot.serving or not any(_may_find(block, snapshot) for block in blocks):
        return hits, omissions
    shown = yield from _shown_anyway(request, snapshot)
    prepared: dict[tuple[str, int], SearchQuery] = {}
    for block in blocks:
        text = query_text(request.query, request.messages, snapshot.window, block.retrieval_context_window)
        if not text or not _may_find(block, snapshot):
            continue
        try:
            sources = yield from sources_of(block, snapshot, request.identity, request.shared_key)
            if sources is None:
                continue
            asked = text, sources.vectors.generation_id
            if asked not in prepared:
                prepared[asked] = yield from prepare_query(text, sources.vectors, request.embed_query)
            hits[block.name], of_block = yield from search_for_block(block, prepared[asked], sources, shown)
        except StrandlineError as error:
            if request.in_callers_transaction:
                raise
            of_block = [Omission("search_failed", block.name, f"The search failed: {error}")]
        omissions += of_block
    return hits, omissions


def _may_find(block: VectorMemoryBlock, snapshot: Snapshot) -> bool:
    return block.scope != "session" or snapshot.has_flushed


def _shown_anyway(request: ReadRequest, snapshot: Snapshot) -> Operation[Shown]:
    """The window, the facts, and the reserved part of the tail: the read shows these in any case."""
    if not snapshot.tail.messages:
        return Shown(request.identity, snapshot.window_from, frozenset(), snapshot.fact_ids)
    always = [block for block in request.blocks if block.priority == 0]
    contributions, _ = yield from _render_blocks(
        always, Material(facts=snapshot.facts, states=snapshot.states)
    )
    reserve = partial(
        reserved_tail,
        room=request.token_limit - snapshot.fixed_tokens,
        contributions=contributions,
        tail=snapshot.tail,
        measure=request.measure,
    )
    reserved: tuple[Message, ...]
    if _is_quick(contributions):
        reserved = reserve()
    else:
        reserved = yield Run(reserve)
    seqs = frozenset(message.seq for message in reserved if message.seq is not None)
    visible_from = snapshot.window_from
    while visible_from - 1 in seqs:
        visible_from -= 1
    return Shown(request.identity, visible_from, seqs, snapshot.fact_ids)


def _render_and_fit(
    request: ReadRequest, snapshot: Snapshot, material: Material
) -> Operation[tuple[Fitted, list[Omission]]]:
    """Render the blocks and fit them in: inline if that is quick, otherwise off the event loop."""
    contributions, failures = yield from _render_blocks(request.blocks, material)
    fit_in = partial(_fit, request, snapshot, material, contributions)
    if _is_quick(contributions):
        return fit_in(), failures
    fitted: Fitted = yield Run(fit_in)
    return fitted, failures


def _is_quick(contributions: Sequence[Contribution]) -> bool:
    if not contributions:
        return True
    if any(is_foreign(c.block) for c in contributions):
        return False
    return is_loaded() and sum(len(c.text) for c in contributions) <= INLINE_CHARACTERS


def _fit(
    request: ReadRequest, snapshot: Snapshot, material: Material, contributions: Sequence[Contribution]
) -> Fitted:
    """Fit the blocks in, and remove hits that the tail then shows."""
    fit_in = partial(
        fit,
        token_limit=request.token_limit,
        fixed_tokens=snapshot.fixed_tokens,
        tail=snapshot.tail,
        measure=request.measure,
    )
    fitted = fit_in(contributions=contributions)
    for _ in range(_MAX_ROUNDS):
        seqs = frozenset(message.seq for message in fitted.tail if message.seq is not None)
        shown = Shown(request.identity, snapshot.window_from, seqs)
        remaining = {name: without_shown(hits, shown) for name, hits in material.hits.items()}
        if remaining == material.hits:
            break
        material = replace(material, hits=remaining)
        contributions, _ = _contributions(request.blocks, material)
        fitted = fit_in(contributions=contributions)
    return fitted


def _render_blocks(
    blocks: Sequence[BaseMemoryBlock], material: Material
) -> Operation[tuple[list[Contribution], list[Omission]]]:
    """The contributions of the blocks; made off the event loop if one runs code that is not ours."""
    render = partial(_contributions, blocks, material)
    if not any(is_foreign(block) for block in blocks):
        return render()
    rendered: tuple[list[Contribution], list[Omission]] = yield Run(render)
    return rendered


def _contributions(
    blocks: Sequence[BaseMemoryBlock], material: Material
) -> tuple[list[Contribution], list[Omission]]:
    contributions: list[Contribution] = []
    failures: list[Omission] = []
    for block in blocks:
        shown, failure = attempt("render", block, partial(block.render, material))
        if failure is not None:
            failures.append(failure)
        elif isinstance(shown, Rendered):
            contributions.append(Contribution(block, shown.text, shown.parts))
        elif shown:
            contributions.append(Contribution(block, shown))
    return contributions, failures
