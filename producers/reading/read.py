"""Reading: pinned head, memory, tail and window of a session, from one snapshot and within its limit.

A read never waits for a model, except for one embedding of the query if a vector block searches. A block
that fails is left out, and the result says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial

from strandline.pipelines.flush.flush import end_delay
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    InsertMethod,
    Material,
)
from strandline.producers.blocks.resolve import pipelines_of
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.accounting import account_for, searched_in_part
from strandline.producers.reading.applicable_blocks import (
    latest_alone,
    readable_blocks,
    shorter_question,
    shorter_window,
)
from strandline.producers.reading.budget.contributions import Contribution
from strandline.producers.reading.budget.filling import Filling
from strandline.producers.reading.budget.fitting import Fitted, fit
from strandline.producers.reading.context import MemoryContext, Omission
from strandline.producers.reading.foreign_code import is_foreign
from strandline.producers.reading.history.call_pairs import NOTE_TOKENS, begins_with_user, wants_user_first
from strandline.producers.reading.insertion import assemble_messages, question_in_order
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
from strandline.producers.reading.window_cache import (
    FACT_BYTES,
    UNKNOWN,
    KnownSession,
    SessionKey,
    WindowCache,
)
from strandline.producers.sessions import check_unowned, tell_stored_policy
from strandline.schemas.display.local_time import today_in
from strandline.schemas.postgres.operations import Operation, Pause, Run, fetch, note_unsealed
from strandline.schemas.queries.conversation.read import Coverage, Read
from strandline.schemas.queries.upkeep.erasures import ErasedSince
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import VECTORS, Ring
from strandline.schemas.values.message import Message, is_unchangeable

# More uncovered messages than this are named as omitted, not read: workers are far behind.
MAX_TAIL_MESSAGES = 1_000
MAX_TAIL_BYTES = 16_000_000


DEFAULT_WAIT_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.01
MAX_PAUSE_SECONDS = 0.2

# Of omissions, those that another read of the same state may be without.
_PASSING = frozenset({"block_failed", "search_text_only", "search_failed", "rerank_failed"})

# Each round takes messages out of the hits that the tail came to show; one is the rule.
_MAX_ROUNDS = 3


def read(request: ReadRequest) -> Operation[MemoryContext]:
    """Carry out a read: one round trip, and one more for what is not kept (docs/architecture/reading.md).

    Raises:
        OwnerError: the session belongs to another owner.
        StrandlineError: the database failed.
    """
    pipelines = pipelines_of(request.blocks)
    if request.wait_for is not None and pipelines:
        yield from _wait(request, pipelines, request.wait_for)
    known, snapshot = yield from _snapshot(request, pipelines)
    if not snapshot.exists:
        yield from check_unowned(request.identity)
    elif request.named:
        tell_stored_policy(request.named, snapshot.header["session"])
    answer: Answer | None = known.answer
    if answer is not None and answer.fits(request, snapshot):
        return replace(answer.context, covered_through=dict(answer.context.covered_through))
    context = yield from _context(request, snapshot, pipelines)
    if request.windows is not None:
        _keep(request, known, snapshot, context)
    return context


def _context(asked: ReadRequest, snapshot: Snapshot, pipelines: tuple[str, ...]) -> Operation[MemoryContext]:
    request, snapshot, omissions = _narrow(asked, snapshot)
    hits, facts, failed_searches = yield from search_for_read(request, snapshot)
    material = Material(snapshot.fact_texts, snapshot.states, hits, reading_of(request, snapshot))
    filling = gather_filling(request, snapshot, material, facts)
    fitted, failures = yield from _render_and_fit(request, snapshot, material, filling)
    memory = yield from account_for(request, snapshot, material, fitted)
    covered = snapshot.covered_through(pipelines)
    messages, added = _assemble(request, snapshot, fitted)
    tokens = fitted.tokens + NOTE_TOKENS * len(added)
    return MemoryContext(
        messages=messages,
        covered_through=covered,
        caught_up=_caught_up(snapshot, covered, request.wait_for),
        omitted=(
            *omissions,
            *snapshot.omitted,
            *failed_searches,
            *failures,
            *fitted.omitted,
            *added,
            *searched_in_part(memory, request.indexed_characters),
        ),
        tokens=tokens,
        over_budget=tokens > request.token_limit,
        session_id=request.identity.session_id,
        memory=memory,
        token_limit=request.token_limit,
        window_from=snapshot.window_from,
        pinned_through=snapshot.pinned_through,
        time_zone=snapshot.time_zone,
        prompt_seq=snapshot.prompt,
    )


def _assemble(
    request: ReadRequest, snapshot: Snapshot, fitted: Fitted
) -> tuple[tuple[Message, ...], list[Omission]]:
    """The messages in order; where they are in the form of a provider that wants it, a user's line first."""
    tail = snapshot.with_note(fitted.tail)
    tail, window = question_in_order(tail, snapshot.window, snapshot.question)
    messages = assemble_messages(
        pinned=snapshot.head,
        tail=tail,
        window=window,
        memory=fitted.memory,
        parts=fitted.parts,
        method=request.insert_method,
    )
    begun = begins_with_user(messages)
    if len(begun) == len(messages) or not wants_user_first(messages):
        return messages, []
    why = "The first message shown is not a user's, so a line stands before it."
    return begun, [Omission("user_added", "window", why)]


def _snapshot(request: ReadRequest, pipelines: tuple[str, ...]) -> Operation[tuple[KnownSession, Snapshot]]:
    """What is known of the session, and the session as it is now; what is known already is not fetched."""
    windows = request.windows
    known = UNKNOWN if windows is None else windows.find(_place(request))
    most_facts = _newest_facts(request.blocks)
    rows = yield from fetch(_statement(request, pipelines, known, most_facts))
    snapshot = read_snapshot(rows, known, most_facts)
    if not snapshot.header["is_sealing"]:
        yield from note_unsealed()
    if windows is not None and snapshot.erasures != windows.erasures:
        yield from _forget_erased(windows, snapshot.erasures)
    return known, snapshot


def _place(request: ReadRequest) -> SessionKey:
    return request.identity.shard_key, request.identity.session_key


@dataclass(frozen=True, slots=True)
class Answer:
    """What a read gave, for one that asks for the same of a session that has not changed."""

    request: ReadRequest
    snapshot: Snapshot
    day: date
    context: MemoryContext

    def fits(self, request: ReadRequest, snapshot: Snapshot) -> bool:
        before = self.snapshot
        return (
            snapshot.header == before.header
            and snapshot.known.window is before.known.window
            and snapshot.pinned == before.pinned
            and request == self.request
            and self.day == today_in(snapshot.time_zone)
        )


def _keep(request: ReadRequest, known: KnownSession, snapshot: Snapshot, context: MemoryContext) -> None:
    """Keep what was found for the next read, and what was given if that read may give it again."""
    windows, latest = request.windows, snapshot.known
    if windows is None:
        return
    answer, size = None, latest.window.size + FACT_BYTES * len(latest.facts.facts)
    if _may_be_given_again(request, snapshot, context):
        answer = Answer(request, snapshot, today_in(snapshot.time_zone), context)
        size += sum(len(section.text) for section in context.memory.sections)
        size += FACT_BYTES * (len(context.facts) + len(context.hits))
    elif latest.window is known.window and latest.facts is known.facts:
        return
    windows.keep(_place(request), replace(latest, answer=answer, size=size), snapshot.erasures)


def _may_be_given_again(request: ReadRequest, snapshot: Snapshot, context: MemoryContext) -> bool:
    """Whether it follows from the snapshot alone, and whoever gets it can change nothing in it."""
    # The window's own messages are known, but its question; the memory may be in one of them.
    is_inside = request.insert_method is InsertMethod.USER or bool(snapshot.question)
    own = context.messages[: None if is_inside else len(context.messages) - len(snapshot.window)]
    return (
        # Hardly anybody asks the same question again.
        request.query is None
        and not request.messages
        and not snapshot.standing.is_bounded
        and not snapshot.tail.messages
        and _PASSING.isdisjoint([omission.kind for omission in context.omitted])
        and not any(is_foreign(block) or _asks_others(block) for block in request.blocks)
        and snapshot.known.window.is_shareable
        and all(map(is_unchangeable, own))
        and all(is_unchangeable(hit.message) for hit in context.hits)
    )


def _asks_others(block: BaseMemoryBlock) -> bool:
    """Whether what it shows depends on functions of the application, or on other owners."""
    return isinstance(block, VectorMemoryBlock) and (bool(block.steps) or block.scope == "shared")


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


def _statement(
    request: ReadRequest, pipelines: tuple[str, ...], known: KnownSession, most_facts: int
) -> Read:
    seqs = known.window.seqs
    return Read(
        **request.identity.keys,
        pipelines=list(pipelines),
        max_facts=most_facts,
        tail_rows=MAX_TAIL_MESSAGES,
        tail_bytes=MAX_TAIL_BYTES,
        known_from=seqs[0] if seqs else None,
        known_through=seqs[-1] if seqs else None,
        known_seal=known.window.seal,
        known_facts=known.facts.version if known.facts.most == most_facts else None,
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
    while not (yield from is_covered(request.identity, pipelines, seq, request.ring)):
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


def is_covered(
    identity: SessionIdentity, pipelines: Sequence[str], seq: int, ring: Ring | None
) -> Operation[bool]:
    """Whether ``seq`` was put, and every pipeline covers the messages up to it that were flushed.

    Turns that wait for others to share their calls wait no longer, if workers can be told (``ring``).
    """
    rows = yield from fetch(Coverage(**identity.keys, pipelines=list(pipelines), seq=seq))
    if ring is not None and any(row.waits for row in rows):
        ring((yield from end_delay(identity.shard_key, identity.session_key)))
    return bool(rows) and all(row.from_seq is None and seq <= row.last_seq for row in rows)


def _narrow(request: ReadRequest, snapshot: Snapshot) -> tuple[ReadRequest, Snapshot, list[Omission]]:
    """The read without blocks that cannot be shown, and messages for which the caller left no room."""
    blocks, omissions = readable_blocks(request.blocks, snapshot, request.shared_key)
    own = request.token_limit if snapshot.token_limit is None else snapshot.token_limit
    limit = (own if request.within_own else request.token_limit) - request.initial_token_count
    request = replace(request, blocks=blocks, token_limit=max(0, limit), time_zone=snapshot.time_zone)
    if (own_vectors := request.vectors) is not None and VECTORS in snapshot.serving:
        serving = {"generation_id": own_vectors.generation_id, "config": own_vectors.config}
        snapshot = replace(snapshot, serving={**snapshot.serving, VECTORS: serving})
    if limit < own:
        snapshot, cut = shorter_window(snapshot, request.token_limit)
        omissions += cut
    if request.latest_tokens is not None:
        snapshot = latest_alone(snapshot, request.latest_tokens)
    elif snapshot.question and snapshot.fixed_tokens > request.token_limit:
        snapshot, cut = shorter_question(snapshot, request.token_limit)
        omissions += cut
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
        seqs = frozenset([*(seq for _, seq in tail), snapshot.question])
        shown = Shown(request.identity, snapshot.window_from, seqs)
        remaining = {name: without_shown(hits, shown) for name, hits in material.hits.items()}
        if remaining == material.hits:
            break
        material = replace(material, hits=remaining)
        filling = filling.without(tail)
        contributions, _ = contributions_of(rendered, material)
        fitted = fit_in(contributions=contributions, filling=filling)
    return fitted
