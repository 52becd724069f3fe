"""The interface between a stage and the engine: load, calls, effect and write, four plain steps.

The engine wraps them with leases, batches, stored answers, receipts and retries; a stage knows none of
these.  ``load`` and ``write`` talk to Postgres through named statements; ``calls`` names the model calls,
which the engine makes while no connection is held.  ``effect`` computes all that is written, before the
transaction: the server ends a transaction that waits for a computation, so an expensive effect would never
commit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.work.states import InsertState, LatestState
from strandline.schemas.values.flush_event import FlushEvent
from strandline.schemas.values.lanes import Lane

W = TypeVar("W")
E = TypeVar("E")

# Of the worker that is making a model call: models keep the pace of their provider in it, with other workers.
database_of_call: ContextVar[Database | None] = ContextVar("database_of_call", default=None)


@dataclass(frozen=True, slots=True)
class Batch:
    """The events that one model call covers, fixed in a row before the call.

    ``made_at``: seconds on this process's monotonic clock when it was made; long ago if it was found.
    """

    lane: Lane
    batch_id: UUID
    events: tuple[FlushEvent, ...]
    made_at: float = -math.inf

    @property
    def event_ids(self) -> list[UUID]:
        return [event.event_id for event in self.events]


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """A model's answer as stored: bytes, and their cost."""

    model: str
    prompt_hash: str
    body: bytes
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """One model call of a batch: a step name, unique in the batch, and what makes the call.

    ``follow`` gets the answer, new or stored, before the next call of the batch is made, and gives the calls
    for lines that it leaves open.  ``parts`` are smaller calls that take its place if it gets no answer that
    can be used; if there are none, it is left out while others are answered.  None: its batch fails with it.
    """

    step: str
    make: Callable[[], RawAnswer]
    follow: Callable[[RawAnswer], Sequence[Call]] = lambda _answer: ()
    parts: Callable[[], Sequence[Call]] | None = None


class Stage(Protocol, Generic[W, E]):
    """One stage of a pipeline; ``W`` is its loaded work, ``E`` its effect.

    Implemented by ``ExtractStage`` and ``MergeStage`` (``pipelines/facts``), ``SummaryStage``,
    ``VectorsStage``, ``OverflowStage``, ``CustomStage``; built by ``pipelines/generations/definitions.py``.
    """

    @property
    def name(self) -> str:
        """The stage's name, which is also its queue's."""
        ...

    def wait_seconds(self) -> float:
        """Seconds until its provider may be called again; 0 if it needs no provider, or all is well."""
        ...

    def load(self, fetcher: Fetcher, batch: Batch) -> W:
        """Read the batch's inputs; runs without a lock."""
        ...

    def calls(self, batch: Batch, work: W) -> Sequence[Call]:
        """The model calls that the batch needs; none if the write can do without."""
        ...

    def effect(self, batch: Batch, work: W, answers: Mapping[str, RawAnswer]) -> E:
        """Compute the effect, without a connection; PermanentModelError: an answer cannot be used."""
        ...

    def write(self, fetcher: Fetcher, batch: Batch, work: W, effect: E) -> list[Lane]:
        """Write the effect in the transaction of the receipts; return lanes that have work now."""
        ...


@runtime_checkable
class Sharing(Protocol):
    """A stage that writes outside its derivation before its effect is applied: copies for other owners, or
    instructions, which concern every derivation of the owner.
    """

    def share(
        self, database: Database, batch: Batch, effect: Any, check_lease: Callable[[Fetcher], None]
    ) -> None:
        """Write in a separate transaction; written twice, it must not change.

        ``check_lease`` raises LeaseLostError if the lane was taken away: to be called under the lock by which
        a correction removes copies, and before they are written.
        """
        ...


@runtime_checkable
class Stepping(Protocol):
    """A stage that loads step by step, which may take longer in all than a lease lasts."""

    def load_stepping(self, fetcher: Fetcher, batch: Batch, between: Callable[[], None]) -> Any:
        """As ``load``, with a call of ``between`` before each step; its error ends the loading."""
        ...


class Stages(Protocol):
    """The stages that a process serves, as each generation was made."""

    def of(self, generation_id: int, stage: str) -> Stage[Any, Any] | None:
        """The stage that works in a lane; None if this process cannot serve it."""
        ...

    def unbuildable(self) -> list[int]:
        """The generations that it was asked to serve, and cannot."""
        ...

    def __iter__(self) -> Iterator[str]:
        """The names of the stages that are served."""
        ...


@runtime_checkable
class OrderedStage(Stage[Any, Any], Protocol):
    """A stage that folds a lane's batches into a state, in order; its effect is the state, as JSON text.

    The effect is None if the batch leaves the state as it was.
    """

    def load_onto(
        self, state: str | None, fetcher: Fetcher, batch: Batch, between: Callable[[], None] = lambda: None
    ) -> Any:
        """As ``load``, onto the given state instead of the lane's latest; None: from the beginning."""
        ...


def latest_state(fetcher: Fetcher, lane: Lane) -> str | None:
    """The latest state of a lane, as JSON text; None if nothing was folded yet."""
    for row in fetcher.fetch(LatestState(**lane.state_keys)):
        return row.state
    return None


def add_state(fetcher: Fetcher, batch: Batch, state: str) -> None:
    """Write the state after a batch."""
    through_seq = batch.events[-1].through_seq
    fetcher.fetch(
        InsertState(**batch.lane.state_keys, through_seq=through_seq, state=state, batch_id=batch.batch_id)
    )
