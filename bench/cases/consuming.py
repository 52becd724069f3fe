"""How fast a worker applies events when models take no time, against tasks that do nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from uuid import uuid4

from redis import Redis

from bench.cases.backlog import PIPELINES, close, fill, wait_until_applied
from bench.environment import Ground, NotMeasuredError
from bench.figures import Figure, Goal, of_values
from bench.processes import LOCAL, idle_worker, worker
from bench.size import Size
from strandline.producers.doorbell.publisher import HintPublisher
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import Lane, queue_name

EVENTS_EACH = 10
SECONDS = 120.0
TAKEN = """
SELECT extract(epoch FROM max(applied_at) - min(applied_at))::float8 FROM strandline.receipt
WHERE applied_at > %s
"""


def measure_applications(ground: Ground, size: Size) -> Iterator[Figure]:
    """Applications of events by pipelines per second, against empty Celery tasks."""
    tasks = size.backlog * EVENTS_EACH * PIPELINES
    several: list[tuple[float, float]] = []
    single: list[tuple[float, float]] = []
    for _ in range(size.repetitions):
        empty = _empty_tasks(ground, tasks)
        several.append((_applications(ground, size.backlog, EVENTS_EACH), empty))
        single.append((_applications(ground, size.backlog * EVENTS_EACH // 4, 1), empty))
    goal = Goal(0.5, at_least=True)
    against = "empty Celery tasks"
    name = f"applications, {EVENTS_EACH} events due per session"
    yield of_values("applications", name, against, "/s", several, goal=goal)
    yield of_values("applications", "applications, one event per session", against, "/s", single, goal=goal)


def _applications(ground: Ground, sessions: int, events_each: int) -> float:
    """Fill, with the hints in the broker; then start the worker, and look at when it wrote its receipts."""
    ((began,),) = ground.rows("SELECT clock_timestamp()")
    close(fill(ground, sessions=sessions, events_each=events_each))
    ground.analyze()
    concurrency = load_settings().worker_concurrency
    with worker(ground, LOCAL, "-m", "bench.worker_process", "derive", concurrency=concurrency):
        wait_until_applied(ground, seconds=SECONDS)
    ((seconds,),) = ground.rows(TAKEN, began)
    return sessions * events_each * PIPELINES / float(seconds)


def _empty_tasks(ground: Ground, tasks: int) -> float:
    """Tasks that do nothing, per second: the queue is filled, and watched while it empties."""
    settings = load_settings()
    queue = queue_name("nothing")
    publisher = HintPublisher(ground.broker_url)
    publisher.publish(Lane(uuid4(), uuid4(), 1, "nothing") for _ in range(tasks))
    publisher.close()
    with idle_worker(ground, concurrency=settings.worker_concurrency):
        return _emptied(ground, queue, tasks)


def _emptied(ground: Ground, queue: str, tasks: int) -> float:
    waiting: list[tuple[float, int]] = []
    deadline = time.monotonic() + SECONDS
    with Redis.from_url(ground.broker_url) as broker:
        while not waiting or waiting[-1][1] > 0:
            waiting.append((time.monotonic(), int(broker.llen(queue))))
            time.sleep(0.002)
            if waiting[-1][0] > deadline:
                raise NotMeasuredError(f"the queue of empty tasks did not empty within {SECONDS:.0f} s")
    began, left = next(before for before, now in pairwise(waiting) if now[1] < before[1])
    return left / (waiting[-1][0] - began)
