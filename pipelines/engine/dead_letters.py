"""Dead letters: the holes that lanes skipped, to be examined, retried, or dropped.

A commutative lane just processes the event again.  An ordered lane folds again from the state before it:
later events were folded onto a state without this one, so they are due again as well, and their stored
answers are not used.  Another dead letter of the lane stays a hole until it is retried itself. ``drain.py``
makes them, where a batch is given up.  After an unusable answer, ``retry.py`` retries a few times, after
minutes and then hours, while the lane continues.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.pipelines.audit.appending import Act, append_query
from strandline.pipelines.engine.stage import Batch
from strandline.schemas.places import place_text, read_place
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.queries.audit.audit import AppendAct
from strandline.schemas.queries.work.dead_letters import (
    DropLetter,
    ListDeadLetters,
    ListDeadLettersRow,
    Refold,
    ReopenLane,
    ReviveEvent,
    RipeLetters,
)
from strandline.schemas.queries.work.lanes import MakeDeadLetter
from strandline.schemas.values.identity import SessionIdentity
from strandline.schemas.values.lanes import DerivationKeys, Lane, pipeline_named
from strandline.schemas.values.same_named import make_from

logger = logging.getLogger("strandline.engine")

Retried = Literal["due", "void", "gone", "retired"]


class LetterKeys(DerivationKeys):
    """A dead letter's primary key, as parameters of statements."""

    session_key: UUID
    stage: str
    from_seq: int
    event_id: UUID


class DeadLetter(ListDeadLettersRow):
    """An event that one stage of one generation could not apply, with the reason.

    ``current`` is False if its session was reset since: nothing is left to retry.  ``dropped_at`` is the time
    at which it was given up on for good; None while it is a hole.  ``retry_at`` is when a worker tries it
    again, None if a person has to; ``retries`` how often workers have.
    """

    __slots__ = ()

    @property
    def lane(self) -> Lane:
        """The lane that skipped it."""
        return Lane(self.shard_key, self.scope_key, self.generation_id, self.stage)

    @property
    def is_ordered(self) -> bool:
        """Whether a retry folds later events again."""
        return pipeline_named(self.pipeline).is_ordered

    @property
    def keys(self) -> LetterKeys:
        """The letter's primary key, as parameters of statements."""
        return {
            "shard_key": self.shard_key,
            "session_key": self.session_key,
            "generation_id": self.generation_id,
            "stage": self.stage,
            "from_seq": self.from_seq,
            "event_id": self.event_id,
        }


@dataclass(frozen=True, slots=True)
class Retry:
    """The outcome of a retry.

    ``outcome`` is ``due`` (it will be tried again), ``void`` (its session was reset since, so it ended),
    ``gone`` (it was retried or dropped in the meantime), or ``retired`` (refused: its generation no longer
    serves); ``refolded`` counts the other events that an ordered lane folds again.
    """

    outcome: Retried
    refolded: int = 0


@dataclass(frozen=True, slots=True)
class LetterPlace:
    """The place of a dead letter in a list of them."""

    at: datetime
    session_key: UUID
    from_seq: int
    generation_id: int
    stage: str

    @classmethod
    def of(cls, letter: DeadLetter) -> LetterPlace:
        return cls(letter.died_at, letter.session_key, letter.from_seq, letter.generation_id, letter.stage)

    @classmethod
    def read(cls, text: str) -> LetterPlace:
        """A place as ``str`` wrote it; raises ValueError for other texts."""
        place = cls(*read_place(text, datetime, UUID, int, int, str))
        if place.generation_id >= 2**31:
            raise ValueError("not a place")
        return place

    def __str__(self) -> str:
        return place_text(*astuple(self))


def make_dead_letter(fetcher: Fetcher, batch: Batch, reason: str, retry_seconds: Sequence[float]) -> None:
    """Go past the only event of a batch; it is retried by itself after these waits, if there are any."""
    (event_id,) = batch.event_ids
    fetcher.fetch(
        MakeDeadLetter(
            **batch.lane.keys,
            event_id=event_id,
            batch_id=batch.batch_id,
            reason=reason[:2000],
            retry_seconds=list(retry_seconds),
        )
    )


def list_dead_letters(
    database: Database,
    *,
    namespace: str | None = None,
    session_id: str | None = None,
    pipeline: str | None = None,
    stage: str | None = None,
    event_id: UUID | None = None,
    dropped: bool = False,
    after: LetterPlace | None = None,
    limit: int | None = None,
) -> list[DeadLetter]:
    """The dead letters that match all filters, oldest first; with ``dropped`` also those given up on.

    ``after``: those behind this place; ``limit``: so many at most.
    """
    behind = (None,) * 5 if after is None else astuple(after)
    statement = ListDeadLetters(
        namespace=namespace,
        session_id=session_id,
        pipeline=pipeline,
        stage=stage,
        event_id=event_id,
        dropped=dropped,
        after_at=behind[0],
        after_session=behind[1],
        after_seq=behind[2],
        after_generation=behind[3],
        after_stage=behind[4],
        limit=limit,
    )
    return [DeadLetter(*row) for row in database.fetch(statement)]


def retry_dead_letter(database: Database, letter: DeadLetter, *, by_itself: bool = False) -> Retry:
    """Make the event due again, and in an ordered lane all events folded after it, in one transaction.

    ``by_itself``: a worker does it, not a person; after a person's retry the letter has all of its own again.

    The lane's row is locked first, as in every write of a worker, so a holder has either committed or finds
    its lease gone. No hint is sent: to have it done at once, ring for ``letter.lane``; otherwise the sweep of
    any worker that serves the stage finds it.
    """
    if letter.generation_state == "retired":
        return Retry("retired")
    with database.transaction() as tx:
        tx.fetch(ReopenLane(**letter.lane.keys, seize=letter.is_ordered))
        rows = tx.fetch(ReviveEvent(**letter.keys, retries=letter.retries + 1 if by_itself else 0))
        if not rows:
            return Retry("gone")
        if not rows[0].current:
            return Retry("void")
        again = tx.fetch(Refold(**letter.lane.keys, event_id=letter.event_id)) if letter.is_ordered else []
        refolded = len(again)
        if not by_itself:
            tx.fetch(_act("dead_letters.retry", letter))
    logger.info("dead letter retried", extra={"action": "dead_letter_retried", **_where(letter)})
    return Retry("due", refolded)


def retry_ripe_letters(database: Database, stages: Sequence[str], limit: int) -> list[Lane]:
    """Retry the dead letters whose time has come; returns the lanes that have work now."""
    lanes = []
    for ripe in database.fetch(RipeLetters(stages=list(stages), limit=limit)):
        for letter in list_dead_letters(database, event_id=ripe.event_id, stage=ripe.stage):
            if letter.generation_id == ripe.generation_id:
                retry = retry_dead_letter(database, letter, by_itself=True)
                lanes += [letter.lane] if retry.outcome == "due" else []
    return lanes


def drop_dead_letter(database: Database, letter: DeadLetter) -> bool:
    """Give up on the event for good: its messages leave the tail, and it is never retried.

    The letter stays on record, with its reason and the time.  Returns False if it was gone already.
    """
    with database.transaction() as tx:
        dropped = bool(tx.fetch(DropLetter(**letter.keys)))
        if dropped:
            tx.fetch(_act("dead_letters.drop", letter))
    if dropped:
        logger.info("dead letter dropped", extra={"action": "dead_letter_dropped", **_where(letter)})
    return dropped


def _act(kind: str, letter: DeadLetter) -> AppendAct:
    session = make_from(SessionIdentity, letter, directory_key=letter.session_key)
    detail = {"stage": letter.stage, "generation": letter.generation_id}
    act = Act.here(kind, seq=letter.from_seq, count=letter.message_count, detail=detail)
    return append_query(session, act)


def _where(letter: DeadLetter) -> dict[str, str]:
    return {"lane": f"{letter.stage}/{letter.generation_id}/{letter.scope_key}"}
