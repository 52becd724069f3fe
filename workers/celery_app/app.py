"""The Celery application: one task per stage, each on its own queue.

A task is a hint to look at a lane; the work itself is recorded in Postgres. Losing a task, or running one
twice, changes only when the work is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, Task
from celery.signals import worker_process_shutdown, worker_shutdown
from kombu import Queue

from strandline.schemas.broker.settings import celery_settings, queue_arguments
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import Lane, queue_name
from strandline.workers.celery_app.broker_connection import BrokerConnection
from strandline.workers.condition import Condition
from strandline.workers.worker import Consumer


class WorkerApp(Celery):  # type: ignore[misc]  # Celery carries no types
    """A Celery application that reads hints for ``stages`` and nothing else from its broker.

    ``condition`` counts what it drops; ``serve`` makes it the worker's own.
    """

    stages: frozenset[str] = frozenset()
    condition: Condition


def make_app(settings: Settings, broker_url: str, stages: Sequence[str]) -> WorkerApp:
    """A Celery application that knows the queues of ``stages``; it has no tasks yet."""
    app = WorkerApp("strandline", broker=broker_url, set_as_current=False)
    app.stages = frozenset(stages)
    app.condition = Condition()
    app.amqp.Connection = BrokerConnection
    app.conf.update(celery_settings(broker_url))
    arguments = queue_arguments(broker_url)
    app.conf.task_queues = [
        Queue(name, routing_key=name, queue_arguments=arguments) for name in map(queue_name, stages)
    ]
    app.conf.worker_consumer = "strandline.workers.celery_app.broker_consumer:BrokerConsumer"
    app.conf.worker_concurrency = settings.worker_concurrency
    # Threads, since the work is waiting for models: hundreds of calls in flight cost little memory.
    app.conf.worker_pool = "threads"
    return app


def serve(app: WorkerApp, consumer: Consumer, stages: Sequence[str]) -> None:
    """Add a task per stage, and end the consumer with the worker."""
    app.condition = consumer.condition
    for stage in stages:
        app.task(name=queue_name(stage), bind=True, shared=False)(_drain_task(consumer))

    def stop(**_: Any) -> None:
        # Celery has waited for its own threads, not for those that take over; the grace time bounds this.
        consumer.begin_stopping()
        consumer.await_idle()
        consumer.stop()

    # weak=False: nothing else holds the function.
    worker_shutdown.connect(stop, weak=False)
    worker_process_shutdown.connect(stop, weak=False)


def _drain_task(consumer: Consumer) -> Callable[..., None]:
    def drain_lane(
        _task: Task[Any, Any], shard_key: str, scope_key: str, generation_id: int, stage: str
    ) -> None:
        if consumer.stopping:
            return
        consumer.take_up(Lane.from_args(shard_key, scope_key, generation_id, stage))

    return drain_lane
