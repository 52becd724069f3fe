"""The steps by which messages leave the log: planned, archived, read back, removed.

Each step is a row with its progress, so any process can resume another's.  An object in an archive is named
by the step and created once, so a retry finds its own; and the removal checks, under the lanes' locks, that
the rows are still the archived ones.  No transaction is open while an archive is written to.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Literal
from uuid import UUID, uuid4

from strandline.pipelines.audit.appending import Act, append_act
from strandline.pipelines.facts.edits import take_away_again
from strandline.pipelines.flush.flush import deliver_by_hand
from strandline.pipelines.flush.plan import Entry, plan_manual
from strandline.pipelines.upkeep.archive import Archive, LeavingRange, delete_own
from strandline.schemas.errors import ArchiveError, StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.operations import Operation, atomic, fetch
from strandline.schemas.queries.conversation.retention import (
    ArchiveIsUsed,
    BeginAttempt,
    BeginAttemptRow,
    DatabaseMark,
    DeliverExpired,
    DropStep,
    ExpiredWindow,
    GiveUpAttempt,
    IsStepGivenUp,
    LeavingMessages,
    LeavingMessagesRow,
    LeftObjects,
    MarkArchived,
    MarkReadBack,
    NameObject,
    PlanRemoval,
    RemoveMessages,
    RemoveMessagesRow,
    TryLeftObject,
)
from strandline.schemas.queries.conversation.sharing import ClearShared, LockSharedSession
from strandline.schemas.queries.upkeep.erasures import FindFence, LookAtFence
from strandline.schemas.queries.work.lanes import RangeMessages
from strandline.schemas.values.flush_event import EVENT_VERSION
from strandline.schemas.values.identity import SessionKeys, identify_session
from strandline.schemas.values.lanes import Ring
from strandline.schemas.values.message import Message, read_rows
from strandline.schemas.values.same_named import make_from

logger = logging.getLogger("strandline.retention")

# So long after an attempt to delete an object it is tried again.
RETRY_SECONDS = 3_600.0


def delete_left_objects(
    database: Database, open_archive: Callable[[str], Archive | None], session: SessionKeys
) -> None:
    """Delete what given-up steps of a session left in archives; what cannot be deleted stays named."""
    for left in database.fetch(LeftObjects(**session, retry_seconds=RETRY_SECONDS)):
        is_deleted = True
        try:
            archive = open_archive(left.archive)
            if archive is not None:
                delete_own(archive, left.object_name, database.fetch(DatabaseMark())[0].mark)
        except ArchiveError as error:
            is_deleted = False
            _log_archive_failure("an object of a step that was given up cannot be deleted", session, error)
        database.fetch(TryLeftObject(**session, step_id=left.step_id, is_deleted=is_deleted))


def _log_archive_failure(problem: str, session: SessionKeys, error: ArchiveError) -> None:
    where = {"reason": str(error), "session_key": str(session["session_key"])}
    logger.warning(problem, extra={"action": "archive_failed", **where})


def deliver_leaving(database: Database, ring: Ring, session: SessionKeys, incarnation: UUID) -> bool:
    """Deliver undelivered messages before they leave: of this life, or of the present one.

    Returns whether anything was delivered by this call; ``ring`` is called with lanes that have work now.
    """
    windows = database.fetch(ExpiredWindow(**session, incarnation=incarnation))
    if not windows:
        flushed = database.run(deliver_by_hand(session))
        if flushed is not None:
            ring(flushed.lanes)
        return flushed is not None
    window = windows[0]
    entries = [
        Entry(seq, role, tokens, (), (), size)
        for seq, role, tokens, _calls, _answers, size in json.loads(window.entries)
    ]
    plan = plan_manual(
        entries,
        flushed_through=window.flushed_through,
        flush_size=window.token_flush_size,
        everything=True,
    )
    events = [] if plan is None else plan.events
    rows = database.fetch(
        DeliverExpired(
            **session,
            incarnation=incarnation,
            old_flushed_through=window.flushed_through,
            event_ids=[uuid4() for _ in events],
            from_seqs=[event.from_seq for event in events],
            through_seqs=[event.through_seq for event in events],
            tokens=[event.tokens for event in events],
            messages=[event.messages for event in events],
            version=EVENT_VERSION,
        )
    )
    return rows[0].is_first


# Most messages removed in one step: some tenths of a second of one connection, and one object.
MAX_STEP_MESSAGES = 1_000
MAX_STEP_BYTES = 4_000_000
# Attempts in a row at a session whose messages keep changing.
MAX_ATTEMPTS = 3
# A step that another process has begun is left to it for so long; a failed one is tried again after that.
BUSY_SECONDS = 60.0
# Rest after a step, in multiples of its duration, to leave the machine to puts.
REST = 3.0

StepPoint = Literal[
    "removal_planned", "removal_stored", "removal_archived", "removal_read_back", "removal_done"
]
OpenArchive = Callable[[str], Archive]


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome for a session: each state counts once.

    Attributes:
        removed: messages that left the log; ``kept`` important ones among theirs that stay.
        archived: messages that were put into an archive.
        steps: ranges that were removed.
        waiting: sessions whose messages workers still derive.
        failed: attempts that an archive or the database ended.
        busy: steps that another process works on.
        given_up: steps that had removed nothing when the retention was changed, and were given up.
    """

    removed: int = 0
    kept: int = 0
    archived: int = 0
    steps: int = 0
    waiting: int = 0
    failed: int = 0
    busy: int = 0
    given_up: int = 0

    def __add__(self, other: Removal) -> Removal:
        return Removal(*map(sum, zip(astuple(self), astuple(other), strict=True)))


class Remover:
    """Removes expired data from logs, session by session.

    Args:
        open_archive: opens the archive that an act names.
        ring: called with lanes that have work, since messages were delivered first.
        reach: called at each point of a step; tests stop there.
        busy_seconds: how long a step that another process has begun is left to it.
        rest: how many times as long as a step took to wait after it, by ``wait``.
    """

    def __init__(
        self,
        database: Database,
        open_archive: OpenArchive,
        *,
        ring: Ring = lambda _lanes: None,
        reach: Callable[[StepPoint], None] = lambda _point: None,
        busy_seconds: float = BUSY_SECONDS,
        rest: float = REST,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._database = database
        self._open_archive = open_archive
        self._archives: dict[str, Archive] = {}
        self._used: set[str] = set()
        self._ring = ring
        self._reach = reach
        self._busy_seconds = busy_seconds
        self._rest = rest
        self._wait = wait

    def retain(self, session: SessionKeys, *, max_steps: int | None = None) -> Removal:
        """Remove a session's expired data, range by range, within ``max_steps``."""
        done = Removal()
        unchanged = 0
        delete_left_objects(self._database, self._archive, session)
        while (max_steps is None or done.steps < max_steps) and unchanged < MAX_ATTEMPTS:
            (plan,) = self._database.fetch(
                PlanRemoval(
                    **session,
                    max_messages=MAX_STEP_MESSAGES,
                    max_bytes=MAX_STEP_BYTES,
                    busy_seconds=self._busy_seconds,
                )
            )
            if plan.has_given_up:
                done += Removal(given_up=1)
                delete_left_objects(self._database, self._archive, session)
            if plan.status == "undelivered" and plan.incarnation is not None:
                if not deliver_leaving(self._database, self._ring, session, plan.incarnation):
                    return done
                continue
            if plan.status != "step" or plan.from_seq is None:
                return replace(done, waiting=done.waiting + int(plan.status == "waiting"))
            outcome = self.resume(session, plan.from_seq)
            done += outcome
            # Nothing came of it: a correction changed the messages, or took them; they are planned again.
            unchanged = 0 if outcome.steps else unchanged + 1
            if outcome.waiting or outcome.failed or outcome.busy:
                return done
        return done

    def resume(self, session: SessionKeys, from_seq: int) -> Removal:
        """Take a step from where it is to its end."""
        rows = self._database.fetch(
            BeginAttempt(**session, from_seq=from_seq, busy_seconds=self._busy_seconds)
        )
        if not rows:
            return Removal(busy=1)
        step = _Step(session, from_seq, rows[0])
        self._reach("removal_planned")
        began = time.monotonic()
        try:
            outcome = self._attempt(step)
        except ArchiveError as error:
            _log_archive_failure("messages cannot be archived", session, error)
            self._give_up(step, str(error), at_once=False)
            return Removal(failed=1)
        except StrandlineError as error:
            self._give_up(step, f"{type(error).__name__}", at_once=False)
            raise
        if self._rest:
            self._wait(self._rest * (time.monotonic() - began))
        return outcome

    def _attempt(self, step: _Step) -> Removal:
        archive = self._archive(step.row.archive)
        stored = self._store(step, archive)
        if stored is None:
            # Nothing of the range is left in the log: a correction took it.
            self._database.fetch(DropStep(**step.keys))
            return Removal()
        self._reach("removal_archived")
        if archive is not None and stored.name is not None and stored.digest is not None:
            archive.check(stored.name, stored.digest)
        if not self._database.fetch(MarkReadBack(**step.keys)):
            return Removal(busy=1)
        self._reach("removal_read_back")
        self._clear_shared(step)
        act = Act.here("expire", seq=step.from_seq, detail={"cause": step.row.cause})
        outcome: RemoveMessagesRow = self._database.run(_remove_range(step, act))
        if outcome.status == "removed":
            self._reach("removal_done")
            kept = stored.messages - outcome.removed
            archived = 0 if archive is None else stored.messages
            return Removal(removed=outcome.removed, kept=kept, archived=archived, steps=1)
        # If it changed, it is another step now, which may begin at once. That one deletes the object, whose
        # words a correction took back.
        if outcome.status == "waiting":
            self._give_up(step, "an event is due again", at_once=True)
        if outcome.status == "outdated":
            self._give_up(step, "the retention was changed", at_once=True)
        return Removal(waiting=int(outcome.status == "waiting"))

    def _store(self, step: _Step, archive: Archive | None) -> _Stored | None:
        """Put the messages into the archive; an earlier attempt's object is the same, or goes.

        None: no messages are left.  The name is recorded first, so that no object is in an archive unknown.
        """
        rows = self._database.fetch(
            LeavingMessages(**step.session, from_seq=step.from_seq, through_seq=step.row.through_seq)
        )
        (database,) = self._database.fetch(DatabaseMark())
        is_first = not self._is_used(step.row.archive)
        leaving = replace(step.range_of(rows), is_first=is_first, database_mark=database.mark)
        before = step.row.object_name
        if before is not None and archive is not None and (not rows or before != leaving.object_name):
            delete_own(archive, before, leaving.database_mark)
        if not rows:
            return None
        digest = None
        if archive is not None:
            name = leaving.object_name if archive.has_objects else None
            if not self._name_object(step, name):
                raise ArchiveError(
                    "Another process has taken over this step, or its session is being erased; nothing was"
                    " put into the archive."
                )
            digest = archive.store(leaving, partial(self._messages, step))
        self._reach("removal_stored")
        marked = self._database.fetch(
            MarkArchived(
                **step.keys, object_digest=digest, rows_digest=rows[0].rows_digest, messages=len(rows)
            )
        )
        if not marked and archive is not None and self._is_over(step):
            # An erasure, or giving the step up, deleted earlier objects; this one came after.
            archive.delete(leaving.object_name)
        if not marked and step.row.state != "read_back":
            raise ArchiveError("Another process has taken over this step.")
        return _Stored(leaving.object_name if digest is not None else None, digest, len(rows))

    def _is_used(self, archive: str | None) -> bool:
        """Whether an archive is known to hold anything; asked until it does."""
        if archive is None or archive in self._used:
            return True
        if self._database.fetch(ArchiveIsUsed(archive=archive))[0].is_used:
            self._used.add(archive)
        return archive in self._used

    def _name_object(self, step: _Step, name: str | None) -> bool:
        """False if another process has the step, or its owner or session is being erased."""
        shard_key, session_key = step.session["shard_key"], step.session["session_key"]
        with self._database.transaction() as tx:
            (fence,) = tx.fetch(LookAtFence(shard_key=shard_key, scope_key=session_key))
            return fence.erasure is None and bool(tx.fetch(NameObject(**step.keys, object_name=name)))

    def _is_over(self, step: _Step) -> bool:
        """Whether the step is over, so that its archived object stays unnamed."""
        shard_key, session_key = step.session["shard_key"], step.session["session_key"]
        is_erased = bool(self._database.fetch(FindFence(shard_key=shard_key, scope_key=session_key)))
        given_up = IsStepGivenUp(**step.session, step_id=step.row.step_id)
        return is_erased or self._database.fetch(given_up)[0].is_given_up

    def _messages(self, step: _Step) -> list[Message]:
        rows = self._database.fetch(
            RangeMessages(**step.session, from_seq=step.from_seq, through_seq=step.row.through_seq)
        )
        return read_rows(rows)

    def _clear_shared(self, step: _Step) -> None:
        if step.row.shared_key is None:
            return
        rows = self._database.fetch(
            LeavingMessages(**step.session, from_seq=step.from_seq, through_seq=step.row.through_seq)
        )
        leaving = [row.seq for row in rows if not row.is_important]
        lock = LockSharedSession(
            shard_key=step.row.shared_key,
            session_key=step.session["session_key"],
            incarnation=step.row.incarnation,
            owner_key=step.session["shard_key"],
            session_id=step.row.session_id,
        )
        with self._database.transaction() as tx:
            tx.fetch(lock)
            tx.fetch(
                ClearShared(
                    shard_key=step.row.shared_key, session_key=step.session["session_key"], seqs=leaving
                )
            )

    def _archive(self, name: str | None) -> Archive | None:
        if name is None:
            return None
        if name not in self._archives:
            self._archives[name] = self._open_archive(name)
        return self._archives[name]

    def _give_up(self, step: _Step, reason: str, *, at_once: bool) -> None:
        self._database.fetch(GiveUpAttempt(**step.keys, reason=reason, at_once=at_once))


class _StepKeys(SessionKeys):
    from_seq: int
    step_id: UUID


@dataclass(frozen=True, slots=True)
class _Stored:
    name: str | None
    digest: str | None
    messages: int


@dataclass(frozen=True, slots=True)
class _Step:
    session: SessionKeys
    from_seq: int
    row: BeginAttemptRow

    @property
    def keys(self) -> _StepKeys:
        return {**self.session, "from_seq": self.from_seq, "step_id": self.row.step_id}

    def range_of(self, rows: list[LeavingMessagesRow]) -> LeavingRange:
        return make_from(LeavingRange, self.row, **self.session, from_seq=self.from_seq, rows=rows)


@atomic
def _remove_range(step: _Step, act: Act) -> Operation[RemoveMessagesRow]:
    (outcome,) = yield from fetch(RemoveMessages(**step.keys))
    yield from take_away_again(step.session["shard_key"], outcome.touched)
    if outcome.status == "removed":
        row = step.row
        session = identify_session(row.namespace, row.session_id, row.user_id)
        yield from append_act(session, replace(act, count=outcome.removed))
    return outcome
