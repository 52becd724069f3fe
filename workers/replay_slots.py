"""Replay slots: the threads of a worker that derive generations which do not serve yet.

Live work is rung for; the work of a replay is not.  A few dedicated threads look in Postgres for lanes that
no worker holds. So no queue of the broker ever holds a replay's hints, no live hint waits behind them, and a
replay uses only these threads, however large it is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from uuid import UUID, uuid4

from strandline.pipelines.engine.drain import drain
from strandline.pipelines.engine.engine import Engine
from strandline.pipelines.engine.failures import REFUSALS, level_of
from strandline.schemas.errors import ReplayBudgetError, StrandlineError
from strandline.schemas.queries.derived.replay import ReplayLanes, ReplayRate, TakeReplayCall
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import Lane

logger = logging.getLogger("strandline.replay")

LOOK_SECONDS = 1.0
LANES_PER_LOOK = 64
# With live work: twice as long at rest as at work, up to half a second after each lane.
REST_SHARE = 2.0
MAX_REST_SECONDS = 0.5
LIVE_SECONDS = 2.0


def waiting_lanes(engine: Engine, start: UUID) -> list[Lane]:
    """Free lanes with work of generations that do not serve: around all owners, starting at ``start``.

    A search that ended at the last owner would hardly ever reach the first ones while later owners have
    enough work: under steady load they would wait without end.
    """
    behind = _lanes_from(engine, start)
    return behind + [lane for lane in _lanes_from(engine, UUID(int=0)) if lane.shard_key < start]


def _lanes_from(engine: Engine, shard_key: UUID) -> list[Lane]:
    waiting = ReplayLanes(
        stages=list(engine.stages),
        from_shard=shard_key,
        limit=LANES_PER_LOOK,
        dead_after_seconds=engine.terms.dead_after_seconds,
    )
    return [Lane(*row) for row in engine.database.fetch(waiting)]


class ReplaySlots:
    """Threads that drain the lanes of generations that do not serve, within the budget of replays."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        count = settings.replay_concurrency
        self._count = max(1, settings.worker_concurrency // 4) if count is None else count
        self._calls_per_second = settings.replay_calls_per_second
        self._engine = replace(engine, ring=lambda _lanes: None, admit=self._admit)
        self._lanes: deque[Lane] = deque()
        self._replayed: set[int] = set()
        self._live_at = -LIVE_SECONDS
        self._looking = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        if self._count:
            self._threads.append(self._thread(0))

    def start(self) -> None:
        """Begin to look for work, with one thread; the others are started when there is some."""
        for thread in list(self._threads):
            thread.start()

    def stop(self) -> None:
        """Take up no more lanes; those being drained are released after their batch."""
        self._stop.set()

    def await_end(self, timeout_seconds: float) -> None:
        """Wait, for at most ``timeout_seconds``, until no thread is looking for lanes in Postgres."""
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _thread(self, number: int) -> threading.Thread:
        return threading.Thread(target=self._run, name=f"strandline-replay-{number}", daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._work()

    def _work(self) -> None:
        while not self._stop.is_set() and not self._engine.stopping():
            try:
                lane = self._next()
                REFUSALS.settle(self, "replay")
                if lane is None:
                    return
                began = time.monotonic()
                outcome = drain(self._engine, lane).outcome
                self._give_way(time.monotonic() - began, paused=outcome != "drained")
            except StrandlineError as error:
                REFUSALS.note(self, "replay", error)
                level = level_of(error, ending=self._stop.is_set())
                logger.log(level, "replay failed", extra={"action": "replay_failed", "reason": str(error)})
                return
            except Exception:
                # The outermost edge of these threads: a defect must not end them.
                logger.exception("replay broke", extra={"action": "replay_broke"})
                return

    def _give_way(self, worked_seconds: float, *, paused: bool) -> None:
        """If live lanes were drained lately, rest longer than it worked: threads share a processor."""
        in_hand = sum(lane.generation_id in self._replayed for lane in self._engine.active.lanes())
        if len(self._engine.active) > in_hand:
            self._live_at = time.monotonic()
        if paused or time.monotonic() - self._live_at < LIVE_SECONDS:
            self._stop.wait(min(max(REST_SHARE * worked_seconds, 0.05), MAX_REST_SECONDS))

    def _next(self) -> Lane | None:
        with self._looking:
            if not self._lanes:
                self._look()
            if not self._lanes:
                return None
            while len(self._threads) < self._count:
                self._threads.append(self._thread(len(self._threads)))
                self._threads[-1].start()
            return self._lanes.popleft()

    def _look(self) -> None:
        """Look from a random owner on, so that workers rarely look at the same lanes."""
        lanes = waiting_lanes(self._engine, uuid4())
        self._lanes += [lane for lane in lanes if self._is_served(lane)]
        self._replayed = {lane.generation_id for lane in lanes}

    def _is_served(self, lane: Lane) -> bool:
        """Whether it can make progress here: its generation can be built, and its provider answers."""
        stage = self._engine.stages.of(lane.generation_id, lane.stage)
        return stage is not None and stage.wait_seconds() == 0

    def _admit(self, lane: Lane) -> None:
        """Take a model call from the budget of replays; raises ReplayBudgetError if it is used up."""
        rates = self._engine.database.fetch(ReplayRate(generation_id=lane.generation_id))
        begun_with = rates[0].calls_per_second if rates else None
        rate = self._calls_per_second if begun_with is None else begun_with
        if rate is None:
            return
        taken = self._engine.database.fetch(TakeReplayCall(shard_key=lane.shard_key, calls_per_second=rate))
        if taken[0].wait_seconds > 0:
            raise ReplayBudgetError(taken[0].wait_seconds)
