"""The faults, as a table: each does harm, undoes it, and says what is to be seen afterwards."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE, STAGES, SUMMARY_STAGE, VECTORS_STAGE
from tests.chaos.children import Child
from tests.chaos.faults.hostile_messages import send_hostile_messages
from tests.chaos.judging.recoveries import Connection, HeldLanes, Recovery, consumed_since, lanes_held
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
Act = Callable[[Stack], object]

TRIED_FOR_SECONDS = 60.0
# Rows as a database leaves them whose clock has stepped back by an hour: their times lie ahead.
CLOCK_STEPS = (
    "UPDATE strandline.worker SET heartbeat_at = heartbeat_at + interval '1 hour' WHERE pid = %(pid)s",
    "UPDATE strandline.lane SET leased_at = leased_at + interval '1 hour', deadline_at = deadline_at"
    " + interval '1 hour', next_attempt_at = next_attempt_at + interval '1 hour', postponed_at = postponed_at"
    " + interval '1 hour' WHERE holder IS NOT NULL OR next_attempt_at > clock_timestamp()",
    "UPDATE strandline.due SET ring_at = ring_at + interval '1 hour' WHERE ring_at < 'infinity'",
)

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

    @property
    def worker(self) -> Child:
        """The worker that is hit."""
        return self.stack.workers[self.planned.slot]

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


def repeated_on(url: str, act: Callable[[Connection], None]) -> None:
    """Do it on a connection, again while Postgres is away."""
    deadline = time.monotonic() + TRIED_FOR_SECONDS
    while True:
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
                act(connection)
                return
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


# Harm that is done before the ``yield``, lasts, and is undone after it.
Fault = Callable[[Harm], Iterator[None]]


def worker_killed(harm: Harm) -> Iterator[None]:
    """kill -9, wherever the worker is."""
    if (pid := harm.worker.kill()) is not None:
        harm.lanes_taken_up(pid)
    yield
    harm.worker.start()


def worker_stopped(harm: Harm) -> Iterator[None]:
    """SIGTERM, as in a rolling restart."""
    if (pid := harm.worker.ask_to_end()) is not None:
        harm.lanes_taken_up(pid)
    yield
    try:
        harm.worker.wait_for_end()
    finally:
        harm.worker.start()


def worker_frozen(harm: Harm) -> Iterator[None]:
    """SIGSTOP while it holds lanes, until its leases have run out, then SIGCONT: it finds them taken.

    If it holds none for a while, it is frozen wherever it is.
    """
    deadline = time.monotonic() + FREEZE_WITHIN_SECONDS
    while (pid := harm.worker.freeze()) is not None:
        if lanes_held(harm.stack.postgres.url, pid) or time.monotonic() > deadline:
            break
        harm.worker.thaw()
        time.sleep(0.03)
    with contextlib.ExitStack() as frozen:
        if pid is not None:
            frozen.enter_context(harm.stack.timeline.away(FROZEN_WORKER))
            harm.lanes_taken_up(pid)
        yield
        harm.worker.thaw()


def clock_stepped_back(harm: Harm) -> Iterator[None]:
    """A worker is killed, and all times that were written lie an hour ahead, its heartbeat too."""
    if (pid := harm.worker.kill()) is not None:

        def step_back(connection: Connection) -> None:
            for step in CLOCK_STEPS:
                connection.execute(step.encode(), {"pid": pid})

        repeated_on(harm.stack.postgres.url, step_back)
        harm.lanes_taken_up(pid)
    yield
    harm.worker.start()


def producer_killed(harm: Harm) -> Iterator[None]:
    """kill -9 of a producer; started again, it repeats what was not acknowledged."""
    slot = harm.planned.slot
    harm.stack.producers[slot].kill()
    killed = time.monotonic()
    harm.recovery(done=lambda _connection: harm.last_ack(slot) > killed, needs=(POSTGRES,))
    yield
    harm.stack.producers[slot].start()


def broker_disturbed(disturb: Act, undo: Act = lambda _stack: None) -> Fault:
    """Hints are lost or refused; work goes on within that time."""

    def fault(harm: Harm) -> Iterator[None]:
        disturb(harm.stack)
        harm.consumed_again()
        yield
        undo(harm.stack)

    return fault


def server_away(name: str, end: Act, begin: Act) -> Fault:
    """A server ends at once, stays away, and comes back."""

    def fault(harm: Harm) -> Iterator[None]:
        with harm.stack.timeline.away(name):
            end(harm.stack)
            yield
            begin(harm.stack)
        harm.consumed_again()

    return fault


def model_misbehaves(harm: Harm) -> Iterator[None]:
    """The model is slow, refuses, answers nonsense, or does not answer."""
    with harm.stack.timeline.away(harm.planned.kind):
        harm.stack.control_model(BEHAVIOURS[harm.planned.kind])
        yield
        harm.stack.control_model(WELL)
    harm.consumed_again(stages=MODEL_STAGES, needs=(*CONSUMING, *BEHAVIOURS))


SERVER_FAULTS: Mapping[Kind, Fault] = {
    "worker killed": worker_killed,
    "worker stopped": worker_stopped,
    "worker frozen": worker_frozen,
    "clock stepped back": clock_stepped_back,
    "producer killed": producer_killed,
    "broker emptied": broker_disturbed(lambda stack: stack.broker.empty()),
    # A full Redis, or RabbitMQ's alarm.
    "broker refuses hints": broker_disturbed(
        lambda stack: stack.broker.refuse(hints=True), lambda stack: stack.broker.refuse(hints=False)
    ),
    "broker sent junk": broker_disturbed(lambda stack: send_hostile_messages(stack.broker.url)),
    # It comes back empty on the same port; Postgres ends without a checkpoint, and recovers on the same data.
    "broker restarted": server_away(
        BROKER, lambda stack: stack.broker.kill(), lambda stack: stack.broker.start()
    ),
    "postgres restarted": server_away(
        POSTGRES, lambda stack: stack.postgres.crash(), lambda stack: stack.postgres.start()
    ),
    # Connections stand, or are even accepted, and nothing is answered; then all of them end.
    "postgres black-holed": server_away(
        POSTGRES, lambda stack: stack.line.cut(), lambda stack: stack.line.mend()
    ),
    **dict.fromkeys(BEHAVIOURS, model_misbehaves),
}
