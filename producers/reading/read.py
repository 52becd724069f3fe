"""Reading: pinned head, memory, tail and window of a session, from one snapshot and within its limit.

A read never waits for a model, except for one embedding of the query if a vector block searches. A block
that fails is left out, and the result says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    Material,
)
from strandline.producers.blocks.resolve import pipelines_of
from strandline.producers.reading.accounting import account_for
from strandline.producers.reading.applicable_blocks import latest_alone, readable_blocks, shorter_window
from strandline.producers.reading.budget.contributions import Contribution
from strandline.producers.reading.budget.filling import Filling
from strandline.producers.reading.budget.fitting import Fitted, fit
from strandline.producers.reading.context import MemoryContext, Omission
from strandline.producers.reading.insertion import assemble_messages
from strandline.producers.reading.rendering import contributions_of, is_quick, render_blocks
from strandline.producers.reading.request import ReadRequest
from strandline.producers.reading.searching.block_search import Shown, without_shown
from strandline.producers.reading.searching.gather import NEWEST_FACTS
from strandline.producers.reading.searching.read_search import (
    by_place,
    gather_filling,
    reading_of,
    search_for_read,
)
from strandline.producers.reading.snapshot import Snapshot, read_snapshot
from strandline.producers.reading.window_cache import NOTHING_KNOWN, KnownWindow, WindowCache
from strandline.producers.sessions import check_unowned
from strandline.schemas.postgres.operations import Operation, Pause, Run, fetch
from strandline.schemas.queries.conversation.read import Coverage, Read
from strandline.schemas.queries.upkeep.erasures import ErasedSince
from strandline.schemas.values.identity import SessionIdentity

# More uncovered messages than this are named as omitted, not read: workers are far behind.
MAX_TAIL_MESSAGES = 1_000
MAX_TAIL_BYTES = 16_000_000


DEFAULT_WAIT_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.01
MAX_PAUSE_SECONDS = 0.2

# Each round takes messages out of the hits that the tail came to show; one is the rule.
_MAX_ROUNDS = 3


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
    hits, facts, failed_searches = yield from search_for_read(request, snapshot)
    material = Material(snapshot.facts, snapshot.states, hits, reading_of(request, snapshot))
    filling = yield from gather_filling(request, snapshot, material, facts)
    fitted, failures = yield from _render_and_fit(request, snapshot, material, filling)
    memory = yield from account_for(request, snapshot, material, fitted)
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
        session_id=request.identity.session_id,
        memory=memory,
        token_limit=request.token_limit,
        window_from=snapshot.window_from,
        pinned_through=snapshot.pinned_through,
    )


def _snapshot(request: ReadRequest, pipelines: tuple[str, ...]) -> Operation[Snapshot]:
    """The session as it is now; of its window, only messages that this process has not cached are fetched."""
    session = (request.identity.shard_key, request.identity.session_key)
    known = NOTHING_KNOWN if request.windows is None else request.windows.find_window(session)
    rows = yield from fetch(_statement(request, pipelines, known))
    snapshot = read_snapshot(rows, known)
    if request.windows is not None:
        if snapshot.erasures != request.windows.erasures:
            yield from _forget_erased(request.windows, snapshot.erasures)
        if snapshot.known is not known:
            request.windows.keep(session, snapshot.known, snapshot.erasures)
    return snapshot


def _forget_erased(windows: WindowCache, erasures: int) -> Operation[None]:
    """Drop what this process has cached of owners who were erased since it last read.

    An earlier number than the one that is known is that of another database, such as one that was restored,
    or of a read that was overtaken: then everything is dropped.
    """
    since = windows.erasures
    if since and erasures > since:
        rows = yield from fetch(ErasedSince(number=since))
        windows.forget_erased({row.shard_key for row in rows}, erasures)
    else:
        windows.forget_erased(None, erasures)


def _statement(request: ReadRequest, pipelines: tuple[str, ...], known: KnownWindow) -> Read:
    return Read(
        **request.identity.keys,
        pipelines=list(pipelines),
        max_facts=_newest_facts(request.blocks),
        tail_rows=MAX_TAIL_MESSAGES,
        tail_bytes=MAX_TAIL_BYTES,
        known_from=known.seqs[0] if known.seqs else None,
        known_through=known.seqs[-1] if known.seqs else None,
        known_seal=known.seal,
    )


def _newest_facts(blocks: Sequence[BaseMemoryBlock]) -> int:
    """How many of the newest facts the blocks may show."""
    counts = [
        block.max_facts or NEWEST_FACTS for block in blocks if isinstance(block, FactExtractionMemoryBlock)
    ]
    return max(counts, default=0)


def _wait(request: ReadRequest, pipelines: tuple[str, ...], seq: int) -> Operation[None]:
    """Wait until ``seq`` was put and every pipeline covers the messages up to it, or the time is over."""
    timeout = DEFAULT_WAIT_SECONDS if request.timeout_seconds is None else request.timeout_seconds
    pauses = pauses_within(timeout)
    while not (yield from is_covered(request.identity, pipelines, seq)):
        seconds = next(pauses, None)
        if seconds is None:
            return
        yield Pause(seconds)


def pauses_within(seconds: float) -> Iterator[float]:
    """The pauses between looks, each longer than the one before, until so many seconds have passed."""
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def is_covered(identity: SessionIdentity, pipelines: Sequence[str], seq: int) -> Operation[bool]:
    """Whether ``seq`` was put, and every pipeline covers the messages up to it that were flushed."""
    rows = yield from fetch(Coverage(**identity.keys, pipelines=list(pipelines), seq=seq))
    return bool(rows) and all(row.from_seq is None and seq <= row.last_seq for row in rows)


def _narrow(request: ReadRequest, snapshot: Snapshot) -> tuple[ReadRequest, Snapshot, list[Omission]]:
    """The read without blocks that cannot be shown, and messages for which the caller left no room."""
    blocks, omissions = readable_blocks(request.blocks, snapshot, request.shared_key)
    request = replace(request, blocks=blocks)
    if request.initial_token_count:
        request = replace(request, token_limit=max(0, request.token_limit - request.initial_token_count))
        snapshot, cut = shorter_window(snapshot, request.token_limit)
        omissions += cut
    if request.latest_tokens is not None:
        snapshot = latest_alone(snapshot, request.latest_tokens)
    return request, snapshot, omissions


def _caught_up(snapshot: Snapshot, covered: Mapping[str, int], wait_for: int | None) -> bool:
    if wait_for is not None and wait_for > snapshot.last_seq:
        return False
    target = snapshot.flushed_through if wait_for is None else min(wait_for, snapshot.flushed_through)
    return all(through >= target for through in covered.values())


def _render_and_fit(
    request: ReadRequest, snapshot: Snapshot, material: Material, filling: Filling
) -> Operation[tuple[Fitted, list[Omission]]]:
    """Render the blocks and fit them in: inline if that is quick, otherwise off the event loop."""
    rendered = [block for block in request.blocks if not block.is_filler]
    contributions, failures = yield from render_blocks(rendered, material)
    fit_in = partial(_fit, request, snapshot, material, contributions, filling)
    if is_quick(contributions, filling.characters):
        return fit_in(), failures
    fitted: Fitted = yield Run(fit_in)
    return fitted, failures


def _fit(
    request: ReadRequest,
    snapshot: Snapshot,
    material: Material,
    contributions: Sequence[Contribution],
    filling: Filling,
) -> Fitted:
    """Fit the blocks in, and remove hits that the tail then shows."""
    fit_in = partial(
        fit,
        token_limit=request.token_limit,
        fixed_tokens=snapshot.fixed_tokens,
        tail=snapshot.tail,
        measure=request.measure,
        order=[block.name for block in request.blocks],
    )
    rendered = [block for block in request.blocks if not block.is_filler]
    fitted = fit_in(contributions=contributions, filling=filling)
    for _ in range(_MAX_ROUNDS):
        if not fitted.tail:
            break  # what the window shows is left out already
        tail = by_place(request, fitted.tail)
        seqs = frozenset(seq for _, seq in tail)
        shown = Shown(request.identity, snapshot.window_from, seqs)
        remaining = {name: without_shown(hits, shown) for name, hits in material.hits.items()}
        if remaining == material.hits:
            break
        material = replace(material, hits=remaining)
        filling = filling.without(tail)
        contributions, _ = contributions_of(rendered, material)
        fitted = fit_in(contributions=contributions, filling=filling)
    return fitted
