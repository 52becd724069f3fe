"""Derives a new generation next to the serving one, and switches owner by owner.

Once begun, it is fed by every flush that sees its row.  When all earlier transactions have ended, no flush
misses it any more, and the replay goes through the log: owner by owner, it makes events due that the
generation has not seen.  Workers derive it (``workers.replay_slots``); a covered owner is switched,
and when all are, it serves every owner.  Each step can be repeated, so a replay may be stopped anywhere and
resumed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from strandline.pipelines.admission import admit
from strandline.pipelines.facts.edits import apply_fact_events, open_fact_lanes
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.recipe import differences
from strandline.pipelines.generations.registry import (
    Generation,
    find,
    find_serving,
    recipe_params,
)
from strandline.pipelines.generations.stages import build
from strandline.pipelines.replay.filling import (
    ProvideInput,
    carry_base,
    forget_input,
    make_due,
    refuse_truncated,
)
from strandline.pipelines.replay.records import OWNERS_PER_PAGE, Replay, Selection, begin, each_owner, report
from strandline.pipelines.replay.switching import pause_owner, serve_everybody, switch_owner
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ErasedError, ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.generations import (
    BeginGeneration,
    EndBackfill,
    FeedGeneration,
    LockOwnerLanes,
    LockPipeline,
    OpenBackfilled,
    OwnersAfter,
    TransactionsBegun,
    TransactionsUnderWay,
    UncoveredOwners,
)
from strandline.schemas.queries.derived.replay import GenerationBacklog, OlderBacklog, OwnersBacklog
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import FACTS, pipeline_named


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is.

    Attributes:
        phase: ``waiting`` for older transactions, ``filling`` from the log, ``deriving``, ``switching``,
            then ``held`` or ``done``.
        owners, events, tokens: made due so far.
        carried: events whose messages retention has removed: their memory was taken over.
        due: events that workers have not done yet.
        switched, remaining: owners for whom it serves, and owners whom it does not cover yet.
        eta_seconds: until nothing is due, at the pace so far; None if unknown.
    """

    phase: str
    owners: int = 0
    events: int = 0
    tokens: int = 0
    due: int = 0
    switched: int = 0
    remaining: int = 0
    eta_seconds: float | None = None
    carried: int = 0


OnProgress = Callable[[Progress], None]


NOBODY = UUID(int=0)

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.2


def begin_generation(
    database: Database,
    pipeline: str,
    settings: Settings,
    *,
    hold: bool = False,
    force: bool = False,
    calls_per_second: float | None = None,
    from_archive: bool = False,
) -> Replay:
    """Begin a generation by the current settings; from its commit on, flushes feed it.

    Args:
        hold: derive it, and leave it to ``promote`` to let it serve.
        force: begin it even if nothing differs from the serving one.
        calls_per_second: model calls of workers for it, per namespace; None: as their settings say.
        from_archive: derive removed messages from the archive, instead of taking over the serving
            generation's memory of them.

    Raises:
        ReplayError: nothing serves, nothing differs, or another replay is not finished.
        ConfigurationError: a generation with these settings cannot be built here.
    """
    recipe = recipe_for(pipeline, settings)
    if from_archive and pipeline_named(pipeline).derives == "chunks":
        raise ReplayError(
            "Vectors of messages that were removed would find nothing that could be shown. Derive vectors"
            " without --from-archive, or restore the sessions: strandline retention restore."
        )
    with database.transaction() as tx:
        tx.fetch(LockPipeline(pipeline=pipeline))
        before = find_serving(tx, pipeline)
        if not force and not list(differences(before.recipe, recipe)):
            raise ReplayError(
                f"The settings match generation {before.generation_id} of {pipeline}, so there is nothing"
                " new to derive. Leave out --new to check it in place, or add --force to derive it again."
            )
        (begun,) = tx.fetch(BeginGeneration(**recipe_params(pipeline, recipe)))
        generation_id = begun.generation_id
        build(Generation(generation_id, pipeline, "preparing", recipe, is_filled=False), settings)
        return begin(
            tx,
            "new",
            pipeline,
            generation_id,
            Selection(from_archive=from_archive),
            held=hold,
            calls_per_second=calls_per_second,
        )


def derive_generation(
    database: Database,
    replay: Replay,
    *,
    on_progress: OnProgress = lambda _progress: None,
    stop: threading.Event | None = None,
    wait_seconds: float = WAIT_SECONDS,
    provide_input: ProvideInput | None = None,
) -> Progress:
    """Run a replay until it serves (or is held), or until ``stop`` is set; returns the progress.

    Args:
        provide_input: gives an owner's archived messages to the generation; for a replay from the archive.

    Raises:
        ReplayError: an older transaction does not end, or dead letters prevent it.
        ArchiveError: an archive cannot be read.
    """
    run = _Run(database, replay, on_progress, stop or threading.Event(), wait_seconds, provide_input)
    try:
        return run.resume()
    except BaseException:
        run.write("stopped")
        raise


class _Run:
    def __init__(
        self,
        database: Database,
        replay: Replay,
        on_progress: OnProgress,
        stop: threading.Event,
        wait_seconds: float,
        provide_input: ProvideInput | None,
    ) -> None:
        generation = find(database, replay.generation_id)
        if generation is None or generation.state == "retired":
            raise ReplayError(f"Generation {replay.generation_id} was pruned; begin a new one.")
        self._database = database
        self._replay = replay
        self._generation = generation
        self._stage = pipeline_named(replay.pipeline).last_stage
        self._on_progress = on_progress
        self._stop = stop
        self._wait_seconds = wait_seconds
        self._provide_input = provide_input
        if replay.selection.from_archive and provide_input is None:
            raise ReplayError("This replay was begun from the archive, and needs access to it here.")
        self._began = time.monotonic()
        self._due_at_first: int | None = None
        kept = {name: replay.counts.get(name, 0) for name in ("owners", "events", "tokens", "carried")}
        self._progress = Progress("waiting", **kept)

    def resume(self) -> Progress:
        if self._generation.state == "preparing":
            self._wait_for_older()
        if not self._stop.is_set() and self._fill():
            if self._replay.held:
                self._derive_held()
            else:
                self._switch_all()
        is_done = self._progress.phase in ("held", "done")
        if is_done and self._replay.selection.from_archive:
            forget_input(self._database, self._generation.generation_id)
        self.write("done" if is_done else "stopped")
        return self._progress

    def write(self, state: str) -> None:
        counts = {
            name: getattr(self._progress, name)
            for name in ("phase", "owners", "events", "tokens", "due", "switched", "remaining", "carried")
        }
        if report(self._database, self._replay, state, counts, None):  # type: ignore[arg-type]
            self._stop.set()

    def _tell(self, **changes: object) -> None:
        self._progress = replace(self._progress, **changes)  # type: ignore[arg-type]
        self._on_progress(self._progress)

    def _wait_for_older(self) -> None:
        """Wait for flushes that began before the generation's row existed, and may not have seen it."""
        self._tell(phase="waiting")
        (target,) = self._database.fetch(TransactionsBegun())
        deadline = time.monotonic() + self._wait_seconds
        while not self._stop.is_set():
            (oldest,) = self._database.fetch(TransactionsUnderWay())
            if oldest.number >= target.number:
                self._database.fetch(FeedGeneration(generation_id=self._generation.generation_id))
                return
            if time.monotonic() > deadline:
                raise ReplayError(
                    f"A transaction that was open before the replay has still not ended after"
                    f" {self._wait_seconds:.0f} s, and might flush past the new generation. End it (see"
                    f" pg_stat_activity), then: strandline replay --resume {self._replay.replay_id}."
                )
            self.write("running")
            self._stop.wait(POLL_SECONDS)

    def _fill(self) -> bool:
        """Read the log from where the last run ended; False if stopped before its end."""
        self._tell(phase="filling")
        for shard_key in each_owner(
            self._database,
            lambda after: OwnersAfter(after=after, limit=OWNERS_PER_PAGE),
            self._replay.position,
        ):
            if self._stop.is_set():
                return False
            self._fill_owner(shard_key)
        if self._stop.is_set():
            return False
        self._database.fetch(EndBackfill(generation_id=self._generation.generation_id))
        return True

    def _fill_owner(self, shard_key: UUID) -> None:
        """Fill in an owner's events; an owner being erased is skipped."""
        try:
            self._fill_admitted(shard_key)
        except ErasedError:
            generation_id = self._generation.generation_id
            self._database.fetch(OpenBackfilled(generation_id=generation_id, through=shard_key))

    def _fill_admitted(self, shard_key: UUID) -> None:
        """Fill in all of one owner's events, and people's edits of facts; only then may workers begin."""
        generation_id = self._generation.generation_id
        if self._generation.pipeline == FACTS:
            self._database.run(open_fact_lanes(shard_key))
        with self._database.transaction() as tx:
            tx.run(admit(shard_key))
            # In one order, as resets and retention lock them before they come to the events.
            tx.fetch(LockOwnerLanes(shard_key=shard_key))
            refuse_truncated(
                tx, shard_key, f"To give up the new one: strandline generations prune {generation_id}."
            )
            if self._generation.pipeline == FACTS:
                tx.run(apply_fact_events(shard_key, generation_id))
            carried = 0
            if self._provide_input is not None and self._replay.selection.from_archive:
                self._provide_input(tx, shard_key, generation_id)
            else:
                carried = carry_base(tx, self._generation, shard_key)
            events, tokens = make_due(tx, self._generation, shard_key, Selection())
            tx.fetch(OpenBackfilled(generation_id=generation_id, through=shard_key))
            self._progress = replace(
                self._progress,
                owners=self._progress.owners + 1,
                events=self._progress.events + events,
                tokens=self._progress.tokens + tokens,
                carried=self._progress.carried + carried,
            )
            names = ("owners", "events", "tokens", "carried")
            counts = {name: getattr(self._progress, name) for name in names}
            if report(tx, self._replay, "running", counts, shard_key):
                self._stop.set()
        self._on_progress(self._progress)

    def _derive_held(self) -> None:
        """Wait until everything flushed so far is derived; live flushes continue to feed it."""
        now: datetime | None = None
        while not self._stop.is_set():
            self._look_at_backlog()
            (older,) = self._database.fetch(
                OlderBacklog(generation_id=self._generation.generation_id, before=now)
            )
            now = older.moment
            if not older.due:
                self._tell(phase="held")
                return
            self._tell(phase="deriving")
            self.write("running")
            self._stop.wait(POLL_SECONDS)

    def _switch_all(self) -> None:
        idle_passes = 0
        while not self._stop.is_set():
            self._look_at_backlog()
            before = self._progress.switched
            lacking, blocked, dead = self._switch_covered()
            if self._stop.is_set():
                return  # perhaps before all owners were looked at
            if not lacking:
                serve_everybody(self._database, self._generation)
                self._tell(phase="done")
                return
            self.write("running")
            # Owners who talk all the time have something due at every moment; that takes no dead letter away.
            due = 0 if len(blocked) == len(lacking) else self._due_of(lacking)
            idle_passes = 0 if due or self._progress.switched > before else idle_passes + 1
            if idle_passes == 2:
                # Memory voided by a concurrent reset is derived again for owners who still have it.
                self._fill_lacking(lacking)
            elif idle_passes > 3:
                raise ReplayError(self._in_the_way(len(lacking), dead))
            self._stop.wait(POLL_SECONDS)

    def _due_of(self, owners: list[UUID]) -> int:
        (backlog,) = self._database.fetch(
            OwnersBacklog(shard_keys=owners, generation_id=self._generation.generation_id)
        )
        return backlog.due

    def _switch_covered(self) -> tuple[list[UUID], list[UUID], int]:
        """One pass over all owners: uncovered ones, those blocked by dead letters alone, and their number."""
        lacking: list[UUID] = []
        blocked: list[UUID] = []
        dead = switched = 0
        after = NOBODY
        while not self._stop.is_set():
            page = self._database.fetch(
                UncoveredOwners(
                    generation_id=self._generation.generation_id,
                    last_stage=self._stage,
                    after=after,
                    limit=OWNERS_PER_PAGE,
                )
            )
            for owner in page:
                # Owners share one derivation's search: they are switched when everybody is.
                if not owner.events and owner.is_shared:
                    continue
                if owner.is_settled or (
                    not owner.events and switch_owner(self._database, self._generation, owner.shard_key)
                ):
                    switched += 1
                    continue
                lacking.append(owner.shard_key)
                dead += owner.dead
                if owner.dead and not owner.older:
                    blocked.append(owner.shard_key)
                elif owner.events and not owner.older:
                    pause_owner(self._database, self._generation.pipeline, owner.shard_key)
            self._tell(phase="switching", switched=switched, remaining=len(lacking))
            if len(page) < OWNERS_PER_PAGE:
                break
            after = page[-1].shard_key
        return lacking, blocked, dead

    def _fill_lacking(self, owners: list[UUID]) -> None:
        for shard_key in owners:
            with suppress(ErasedError), self._database.transaction() as tx:
                tx.run(admit(shard_key))
                make_due(tx, self._generation, shard_key, Selection())

    def _look_at_backlog(self) -> int:
        rows = self._database.fetch(GenerationBacklog(generation_id=self._generation.generation_id))
        due = sum(row.due for row in rows)
        if self._due_at_first is None:
            self._due_at_first, self._began = due, time.monotonic()
        done = self._due_at_first - due
        pace = done / max(0.001, time.monotonic() - self._began)
        self._progress = replace(self._progress, due=due, eta_seconds=due / pace if pace > 0 else None)
        return due

    def _in_the_way(self, owners: int, dead: int) -> str:
        generation_id = self._generation.generation_id
        whose = quantity(owners, "owner")
        if not dead:
            have = "has" if owners == 1 else "have"
            return (
                f"{whose} {have} events that generation {generation_id} has neither done nor due."
                f" Continue later: strandline replay --resume {self._replay.replay_id}."
            )
        are = "is a dead letter" if dead == 1 else "are dead letters"
        return (
            f"{quantity(dead, 'event')} of {whose} {are} in generation {generation_id}; the earlier one"
            " keeps serving them. Show them: strandline dead-letters list --pipeline"
            f" {self._replay.pipeline}; retry or drop them, then: strandline replay --resume"
            f" {self._replay.replay_id}."
        )
