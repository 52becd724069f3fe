"""The doorbell: tells workers, through the broker, that lanes have work.

It never delays or fails its caller: hints go through a bounded queue to a thread that publishes them, and are
dropped while the broker is away. The event rows are the outbox; the sweep rings again for lost hints.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from strandline.producers.doorbell.publisher import HintPublisher
from strandline.schemas.broker.troubles import describe_trouble
from strandline.schemas.forking import this_process
from strandline.schemas.values.lanes import Lane

logger = logging.getLogger("strandline.doorbell")
MAX_WAITING_LANES = 10_000
# Hints are gathered for so long.  Publishing takes the GIL for about 0.3 ms a hint: without gathering, the
# p99 of puts that flush at every third message doubled.
GATHER_SECONDS = 0.01
# A lane notified repeatedly, as while one session fills fast, gets one hint in so long: its holder sees the
# rest. Each hint costs a worker half a millisecond to find the lane taken, a third of its time at 200 flushes
# a second.
REPEAT_SECONDS = 0.1
# After this long without a hint the next one goes out at once: a single hint disturbs no worker.
QUIET_SECONDS = 0.1
# After a failed publish nothing is tried for this long: each try may block for the connect time-out.
BACKOFF_SECONDS = 2.0
# An idle connection closes after so long: it would need heartbeats, and a firewall or a proxy forgets it.
IDLE_SECONDS = 30.0


class Pacer:
    """Lets a lane pass at most once in ``seconds``; a lane that comes sooner is kept until then.

    Times are seconds of one clock, which never goes back.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # When a lane may pass again, in this order; old times are dropped.
        self._again: dict[Lane, float] = {}
        self._kept: dict[Lane, None] = {}

    def pass_on(self, lanes: Iterable[Lane], now: float) -> list[Lane]:
        """The lanes, of ``lanes`` and of those kept, that may pass now, each once."""
        self._kept |= dict.fromkeys(lanes)
        while self._again and (first := next(iter(self._again.items())))[1] <= now:
            del self._again[first[0]]
        passing = [lane for lane in self._kept if lane not in self._again]
        for lane in passing:
            del self._kept[lane]
            self._again[lane] = now + self._seconds
        return passing

    def wait_seconds(self, now: float) -> float | None:
        """Seconds until the first lane that is kept may pass; None if no lane is kept."""
        if not self._kept:
            return None
        return max(0.0, min(self._again[lane] for lane in self._kept) - now)

    def take_kept(self) -> list[Lane]:
        """Return all lanes that are kept, and forget them."""
        kept, self._kept = list(self._kept), {}
        return kept


class Doorbell:
    """Publishes hints from a daemon thread, started with the first one; a forked child has its own.

    Args:
        level: the log level for the lines that the broker is away, and that it is back; lower in a worker,
            which logs that itself, than in a producer.
        public_apis_only: see ``HintPublisher``.
        on_refusal: called on the thread with the reason and the lanes not notified; with None once hints pass
            again.  One hint is retried until it passes.
    """

    def __init__(
        self,
        broker_url: str,
        *,
        level: int = logging.WARNING,
        public_apis_only: bool = False,
        on_refusal: Callable[[BaseException | None, Sequence[Lane]], None] = lambda _error, _lanes: None,
    ) -> None:
        self._broker_url = broker_url
        self._public_apis_only = public_apis_only
        self._level = level
        self._on_refusal = on_refusal
        self._open()

    @property
    def trouble(self) -> str | None:
        """Why the broker takes no hints; None if the last ones passed."""
        return self._trouble

    def ring(self, lanes: Iterable[Lane]) -> None:
        """Hand lanes to the thread; returns at once, and drops lanes if the queue is full."""
        if this_process() != self._process:
            self._open()
        for lane in lanes:
            try:
                self._hints.put_nowait(lane)
            except queue.Full:
                return
        if self._thread is None or not self._thread.is_alive():
            self._start()

    def close(self, timeout_seconds: float = 1.0) -> None:
        """Publish the waiting hints, for at most ``timeout_seconds``, and end the thread."""
        if self._thread is None or this_process() != self._process:
            return
        self._closing.set()
        with suppress(queue.Full):
            # It wakes a waiting thread; a working one looks by itself.
            self._hints.put_nowait(None)
        self._thread.join(timeout_seconds)

    def _open(self) -> None:
        self._process = this_process()
        self._hints: queue.Queue[Lane | None] = queue.Queue(MAX_WAITING_LANES)
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._trouble: str | None = None

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="strandline-doorbell", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        publisher = HintPublisher(self._broker_url, public_apis_only=self._public_apis_only)
        pacer = Pacer(REPEAT_SECONDS)
        published_at = -QUIET_SECONDS
        dropped = 0
        while lanes := self._gather(publisher, pacer, published_at):
            tried = new = lanes
            while (error := self._try_to_publish(publisher, tried)) is not None:
                self._say_away(error)
                self._hand_back(error, new)
                dropped += len(new)
                if self._closing.wait(BACKOFF_SECONDS):
                    return
                # A returned hint is retried until it passes, so that an idle producer's doorbell recovers.
                new = [*self._take_waiting(), *pacer.take_kept()]
                tried = [*tried[:1], *new]
            dropped -= tried is not lanes
            published_at = time.monotonic()
            self._say_back(dropped)
            dropped = 0
        publisher.close()

    def _try_to_publish(self, publisher: HintPublisher, lanes: Iterable[Lane]) -> Exception | None:
        try:
            publisher.publish(lanes)
        except Exception as error:  # noqa: BLE001
            # The outermost edge of this thread: transports raise any error, also for a wrong URL.
            return error
        return None

    def _hand_back(self, error: BaseException | None, lanes: Sequence[Lane]) -> None:
        try:
            self._on_refusal(error, lanes)
        except Exception as failure:  # noqa: BLE001  # else this thread would end, and nothing be rung for
            reason = type(failure).__name__
            logger.warning("lanes were not handed back", extra={"action": "ring_failed", "reason": reason})

    def _say_away(self, error: Exception) -> None:
        name = type(error).__name__
        was_away, self._trouble = self._trouble, describe_trouble(error) or name
        if was_away is None:
            logger.log(
                self._level,
                "broker away, hints are dropped",
                extra={"action": "broker_away", "error": name, "reason": self._trouble},
            )

    def _say_back(self, dropped: int) -> None:
        if self._trouble is not None:
            self._trouble = None
            self._hand_back(None, ())
            logger.log(
                self._level,
                "broker is back, and accepts hints again",
                extra={"action": "broker_back", "dropped": dropped},
            )

    def _gather(self, publisher: HintPublisher, pacer: Pacer, published_at: float) -> list[Lane]:
        """Wait for lanes to publish, and if they come in quick succession, briefly for more; each once.

        An empty list means that the doorbell is closing and every hint is published.
        """
        while not self._closing.is_set():
            lanes = self._wait_for_hints(publisher, pacer.wait_seconds(time.monotonic()))
            if lanes and time.monotonic() - published_at < QUIET_SECONDS:
                self._closing.wait(GATHER_SECONDS)
            passing = pacer.pass_on([*lanes, *self._take_waiting()], time.monotonic())
            if passing:
                return passing
        return list(dict.fromkeys([*self._take_waiting(), *pacer.take_kept()]))

    def _wait_for_hints(self, publisher: HintPublisher, seconds: float | None) -> list[Lane]:
        try:
            lane = self._hints.get(timeout=IDLE_SECONDS if seconds is None else seconds)
        except queue.Empty:
            if seconds is not None:
                return []
            publisher.close()
            lane = self._hints.get()
        return [] if lane is None else [lane]

    def _take_waiting(self) -> list[Lane]:
        taken: list[Lane] = []
        with suppress(queue.Empty):
            while True:
                lane = self._hints.get_nowait()
                if lane is not None:
                    taken.append(lane)
        return taken
