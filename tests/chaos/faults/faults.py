"""The faults: each one knows how to do harm, how to undo it, and what is to be seen afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE, STAGES, SUMMARY_STAGE, VECTORS_STAGE
from tests.chaos.children import Child
from tests.chaos.faults.clock_steps import repeated_on, step_back
from tests.chaos.faults.hostile_messages import send_hostile_messages
from tests.chaos.judging.recoveries import HeldLanes, Recovery, consumed_since, lanes_held
from tests.chaos.judging.timeline import Interval
from tests.chaos.plan import Kind, PlannedFault
from tests.chaos.stack import Stack

# What consuming needs: see ``Timeline.could_begin``.
POSTGRES, BROKER, WORKERS = "postgres", "broker", "workers"
# One of several workers: its work is taken up, so recoveries do not wait for it.
FROZEN_WORKER = "a frozen worker"
CONSUMING = (POSTGRES, BROKER, WORKERS)
PROVIDER_DOWN: tuple[Kind, ...] = (
    "model limits the rate",
    "model fails",
    "model never answers",
    "model answers too much",
    "model drips",
)
MODEL_STAGES = (EXTRACT_STAGE, MERGE_STAGE, SUMMARY_STAGE)

# Well above what a client takes.
TOO_MANY_BYTES = 12_000_000

# For so long a worker that holds lanes is waited for.
FREEZE_WITHIN_SECONDS = 12.0

Expect = Callable[[Recovery], None]
LastAck = Callable[[int], float]

# A model takes its time even when all is well, so that workers hold lanes when a fault hits them.
WELL: Mapping[str, Any] = {"latency": 0.3}

BEHAVIOURS: Mapping[Kind, Mapping[str, Any]] = {
    "model slow": {"latency": 2.0},
    "model limits the rate": {"status": 429, "retry_after": "1", "message": "slow down"},
    "model fails": {"status": 500},
    "model cuts answers": {"truncate": True, **WELL},
    "model answers otherwise": {"wrong_schema": True, **WELL},
    "model never answers": {"hang": True},
    "model answers too much": {"pad": TOO_MANY_BYTES},
    "model drips": {"drip": 0.5},
}


@dataclass
class Harm:
    """The needs of a fault: its plan, the stack, and a callback for the recoveries to watch for.

    ``last_ack`` tells when a producer's newest acknowledgement was.
    """

    planned: PlannedFault
    stack: Stack
    expect: Expect
    last_ack: LastAck

    def recovery(self, **fields: Any) -> None:
        """Have it watched how long it takes until work goes on."""
        fields.setdefault("at", time.monotonic())
        self.expect(Recovery(kind=self.planned.kind, number=self.planned.number, **fields))

    def consumed_again(self, *, stages: tuple[str, ...] = STAGES, needs: tuple[str, ...] = CONSUMING) -> None:
        """Have it watched how long it takes, from now, until a lane is claimed and a receipt written."""
        self.recovery(done=consumed_since(time.time(), stages), needs=needs)

    def lanes_taken_up(self, pid: int) -> None:
        """Have it watched how long it takes until nothing waits in a lane that this worker held.

        While a provider is down, no worker claims lanes of the stages that call its model, so they are
        timed separately; vectors are made without it here, and have no such excuse.
        """
        for stages, needs in (((VECTORS_STAGE,), CONSUMING), (MODEL_STAGES, (*CONSUMING, *PROVIDER_DOWN))):
            for of_replays in (False, True):
                held = HeldLanes(pid, stages, of_replays)
                self.recovery(begin=held.begin, done=held.taken_up, held=held, needs=needs)


class Fault(Protocol):
    """Harm that is done, lasts, and is undone."""

    def inject(self) -> None: ...

    def heal(self) -> None: ...


@dataclass
class WorkerFault:
    """A fault that hits one worker."""

    harm: Harm

    @property
    def worker(self) -> Child:
        return self.harm.stack.workers[self.harm.planned.slot]


class WorkerKilled(WorkerFault):
    """kill -9, wherever the worker is."""

    def inject(self) -> None:
        if (pid := self.worker.kill()) is not None:
            self.harm.lanes_taken_up(pid)

    def heal(self) -> None:
        self.worker.start()


class WorkerStopped(WorkerFault):
    """SIGTERM, as in a rolling restart."""

    def inject(self) -> None:
        if (pid := self.worker.ask_to_end()) is not None:
            self.harm.lanes_taken_up(pid)

    def heal(self) -> None:
        try:
            self.worker.wait_for_end()
        finally:
            self.worker.start()


@dataclass
class WorkerFrozen(WorkerFault):
    """SIGSTOP until its leases have run out, then SIGCONT: it wakes up and finds them taken."""

    _away: Interval | None = field(default=None, init=False)

    def inject(self) -> None:
        """Freeze it while it holds lanes; if it holds none for a while, wherever it is."""
        deadline = time.monotonic() + FREEZE_WITHIN_SECONDS
        while (pid := self.worker.freeze()) is not None:
            if lanes_held(self.harm.stack.postgres.url, pid) or time.monotonic() > deadline:
                self._away = self.harm.stack.timeline.begin(FROZEN_WORKER)
                self.harm.lanes_taken_up(pid)
                return
            self.worker.thaw()
            time.sleep(0.03)

    def heal(self) -> None:
        self.worker.thaw()
        if self._away is not None:
            self.harm.stack.timeline.end(self._away)


@dataclass
class ProducerKilled:
    """kill -9 of a producer; started again, it repeats what was not acknowledged."""

    harm: Harm

    def inject(self) -> None:
        slot = self.harm.planned.slot
        self.harm.stack.producers[slot].kill()
        killed = time.monotonic()
        last_ack = self.harm.last_ack
        self.harm.recovery(done=lambda _connection: last_ack(slot) > killed, needs=(POSTGRES,))

    def heal(self) -> None:
        self.harm.stack.producers[self.harm.planned.slot].start()


@dataclass
class BrokerEmptied:
    """Every hint on its way is gone."""

    harm: Harm

    def inject(self) -> None:
        self.harm.stack.broker.empty()
        self.harm.consumed_again()

    def heal(self) -> None:
        """It refills by itself."""


@dataclass
class BrokerRefusesHints:
    """It answers, and takes no hint: a full Redis, or RabbitMQ's alarm; work goes on within that time."""

    harm: Harm

    def inject(self) -> None:
        self.harm.stack.broker.refuse(hints=True)
        self.harm.consumed_again()

    def heal(self) -> None:
        self.harm.stack.broker.refuse(hints=False)


@dataclass
class ServerRestarted:
    """A server ends at once, stays away, and comes back."""

    harm: Harm
    _away: Interval | None = field(default=None, init=False)
    name: ClassVar[str]

    def inject(self) -> None:
        self._away = self.harm.stack.timeline.begin(self.name)
        self.end()

    def heal(self) -> None:
        self.begin()
        if self._away is not None:
            self.harm.stack.timeline.end(self._away)
        self.harm.consumed_again()

    def end(self) -> None:
        raise NotImplementedError

    def begin(self) -> None:
        raise NotImplementedError


class BrokerRestarted(ServerRestarted):
    """The broker is killed, and comes back empty on the same port."""

    name = BROKER

    def end(self) -> None:
        self.harm.stack.broker.kill()

    def begin(self) -> None:
        self.harm.stack.broker.start()


class PostgresRestarted(ServerRestarted):
    """Postgres ends without a checkpoint, and recovers on the same data."""

    name = POSTGRES

    def end(self) -> None:
        self.harm.stack.postgres.crash()

    def begin(self) -> None:
        self.harm.stack.postgres.start()


@dataclass
class ModelMisbehaves:
    """The model is slow, refuses, answers nonsense, or does not answer."""

    harm: Harm
    _away: Interval | None = field(default=None, init=False)

    def inject(self) -> None:
        kind = self.harm.planned.kind
        self._away = self.harm.stack.timeline.begin(kind)
        self.harm.stack.control_model(BEHAVIOURS[kind])

    def heal(self) -> None:
        self.harm.stack.control_model(WELL)
        if self._away is not None:
            self.harm.stack.timeline.end(self._away)
        self.harm.consumed_again(stages=MODEL_STAGES, needs=(*CONSUMING, *BEHAVIOURS))


class PostgresBlackHoled(ServerRestarted):
    """Connections stand, or are even accepted, and nothing is answered; then all of them end."""

    name = POSTGRES

    def end(self) -> None:
        self.harm.stack.line.cut()

    def begin(self) -> None:
        self.harm.stack.line.mend()


@dataclass
class BrokerSentJunk:
    """Messages that are not hints reach every queue."""

    harm: Harm

    def inject(self) -> None:
        send_hostile_messages(self.harm.stack.broker.url)
        self.harm.consumed_again()

    def heal(self) -> None:
        """The workers drop them."""


class ClockSteppedBack(WorkerFault):
    """A worker is killed, and all times that were written lie an hour ahead, its heartbeat too."""

    def inject(self) -> None:
        if (pid := self.worker.kill()) is not None:
            repeated_on(self.harm.stack.postgres.url, lambda connection: step_back(connection, pid))
            self.harm.lanes_taken_up(pid)

    def heal(self) -> None:
        self.worker.start()


SERVER_FAULTS: Mapping[Kind, Callable[[Harm], Fault]] = {
    "worker killed": WorkerKilled,
    "worker stopped": WorkerStopped,
    "worker frozen": WorkerFrozen,
    "producer killed": ProducerKilled,
    "broker emptied": BrokerEmptied,
    "broker restarted": BrokerRestarted,
    "broker refuses hints": BrokerRefusesHints,
    "postgres restarted": PostgresRestarted,
    "postgres black-holed": PostgresBlackHoled,
    "broker sent junk": BrokerSentJunk,
    "clock stepped back": ClockSteppedBack,
    **dict.fromkeys(BEHAVIOURS, ModelMisbehaves),
}
