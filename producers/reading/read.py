"""Reading: pinned head, memory, tail and window of a session, from one snapshot and within its limit.

A read never waits for a model, except for one embedding of the query if a vector block searches. A block
that fails is left out, and the result says so.

The way of a read, in order: ``read_snapshot`` (one statement; messages that the process has read before stay
out of it), ``narrow`` (the request's filters), ``find_candidates`` (hits of searches, material of blocks),
``choose`` (the pieces that fit the limit), ``make_context``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date

from strandline.pipelines.flush.flush import end_delay
from strandline.producers.blocks.base import (
    BaseMemoryBlock,
    FactExtractionMemoryBlock,
    InsertMethod,
)
from strandline.producers.blocks.resolve import pipelines_of
from strandline.producers.blocks.vector import VectorMemoryBlock
from strandline.producers.reading.assembly import make_context
from strandline.producers.reading.candidates import NEWEST_FACTS, find_candidates
from strandline.producers.reading.choice import choose
from strandline.producers.reading.context import MemoryContext
from strandline.producers.reading.contributions import is_foreign
from strandline.producers.reading.history import recall
from strandline.producers.reading.narrowing import narrow
from strandline.producers.reading.request import ReadRequest
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
from strandline.schemas.errors import UnknownReplayError
from strandline.schemas.postgres.operations import Operation, Pause, content_codec, fetch
from strandline.schemas.queries.conversation.read import Coverage, Read
from strandline.schemas.queries.upkeep.erasures import ErasedSince
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import Ring
from strandline.schemas.values.message import is_unchangeable

# More uncovered messages than this are named as omitted, not read: workers are far behind.
MAX_TAIL_MESSAGES = 1_000
MAX_TAIL_BYTES = 16_000_000

DEFAULT_WAIT_SECONDS = 10.0
FIRST_PAUSE_SECONDS = 0.01
MAX_PAUSE_SECONDS = 0.2

# Omissions that another read of the same state may lack.
_PASSING = frozenset({"block_failed", "search_text_only", "search_failed", "rerank_failed"})


def read(request: ReadRequest) -> Operation[MemoryContext]:
    """Perform a read: one round trip, and one more for messages not cached (docs/architecture/reading.md).

    Raises:
        OwnerError: the session belongs to another owner.
        UnknownReplayError: no block reads the chosen generation, or it is still being filled.
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
    narrowed, visible = narrow(request, snapshot)
    candidates = yield from find_candidates(narrowed, visible)
    choice = yield from choose(narrowed, visible, candidates)
    context = yield from make_context(narrowed, visible, candidates, choice, pipelines)
    if request.windows is not None:
        _keep(request, known, snapshot, context)
    return context


def _snapshot(request: ReadRequest, pipelines: tuple[str, ...]) -> Operation[tuple[KnownSession, Snapshot]]:
    windows = request.windows
    known = UNKNOWN if windows is None else windows.find(_session_key(request))
    most_facts = _newest_facts(request.blocks)
    rows = yield from fetch(_statement(request, pipelines, known, most_facts))
    limits = (None if request.within_own else request.token_limit, request.initial_token_count)
    snapshot = read_snapshot(rows, known, most_facts, limits)
    if request.generation is not None:
        _check_generation(request.generation, snapshot)
    lost = snapshot.lost_calls
    if not known.vain.issuperset(lost):
        recalled = yield from recall(request.identity, lost, snapshot.window_from)
        looked = known if recalled else replace(known, vain=frozenset(lost))
        snapshot = read_snapshot(rows, looked, most_facts, limits, recalled)
    if not snapshot.header["is_sealing"]:
        (yield from content_codec()).note_unused()
    if windows is not None and snapshot.erasures != windows.erasures:
        yield from _forget_erased(windows, snapshot.erasures)
    return known, snapshot


def _check_generation(number: int, snapshot: Snapshot) -> None:
    if number not in [one["generation_id"] for one in snapshot.serving.values()]:
        raise UnknownReplayError(
            f"No block of this memory reads generation {number}: it does not exist, it was pruned, it is"
            " still being filled, or the memory has no block of its pipeline; `strandline generations list`"
            " lists them."
        )


def _session_key(request: ReadRequest) -> SessionKey:
    return request.identity.shard_key, request.identity.session_key


@dataclass(frozen=True, slots=True)
class Answer:
    """A read's result, for an equal read of an unchanged session."""

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
    windows, latest = request.windows, snapshot.known
    if windows is None:
        return
    answer, size = None, latest.window.size + FACT_BYTES * len(latest.facts.facts)
    if _may_be_given_again(request, snapshot, context):
        answer = Answer(request, snapshot, today_in(snapshot.time_zone), context)
        size += sum(len(section.text) for section in context.memory.sections)
        size += FACT_BYTES * (len(context.facts) + len(context.hits))
    elif latest.window is known.window and latest.facts is known.facts and latest.vain is known.vain:
        return
    windows.keep(_session_key(request), replace(latest, answer=answer, size=size), snapshot.erasures)


def _may_be_given_again(request: ReadRequest, snapshot: Snapshot, context: MemoryContext) -> bool:
    # The window's own messages are known, but those ahead of it; the memory may be in one of them.
    is_inside = request.insert_method is InsertMethod.USER or bool(snapshot.ahead)
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
    """Whether its content depends on functions of the application, or on other owners."""
    return isinstance(block, VectorMemoryBlock) and (bool(block.steps) or block.scope == "shared")


def _forget_erased(windows: WindowCache, erasures: int) -> Operation[None]:
    """Drop cached data of owners erased since the last read.

    A lower number than the known one comes from another database, such as a restored one, or from an
    overtaken read: then everything is dropped.
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
        generation_id=request.generation,
    )


def _newest_facts(blocks: Sequence[BaseMemoryBlock]) -> int:
    counts = [
        block.max_facts or NEWEST_FACTS for block in blocks if isinstance(block, FactExtractionMemoryBlock)
    ]
    return max(counts, default=0)


def _wait(request: ReadRequest, pipelines: tuple[str, ...], seq: int) -> Operation[None]:
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
        ring((yield from end_delay(identity.keys)))
    return bool(rows) and all(row.from_seq is None and seq <= row.last_seq for row in rows)
