"""The Celery application: one task per stage, each on its own queue.

A task is a hint to look at a lane; the work itself is recorded in Postgres. Losing a task, or running one
twice, changes only when the work is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from celery import Task
from celery.bootsteps import StartStopStep
from celery.signals import worker_process_shutdown, worker_shutdown
from kombu import Connection, Queue

from strandline.schemas.broker.hints import UnreadableHintError, check_hint
from strandline.schemas.broker.own_celery import OwnCelery
from strandline.schemas.broker.settings import broker_kind, celery_settings, queue_arguments
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import STAGES, queue_name
from strandline.workers.celery_app.broker_connection import BrokerConnection
from strandline.workers.celery_app.broker_watch import BrokerWatch
from strandline.workers.condition import Condition
from strandline.workers.worker import Worker


class WorkerApp(OwnCelery):
    """A Celery application that reads hints for ``stages`` and nothing else from its broker.

    ``condition`` counts dropped messages; ``serve`` makes it the worker's own.  ``on_worker_start`` is called
    when Celery's worker has installed its signal handlers.
    """

    stages: frozenset[str] = frozenset()
    condition: Condition
    is_stopping: Callable[[], bool] = staticmethod(lambda: False)
    on_worker_start: Callable[[], None] = staticmethod(lambda: None)


class _WorkerStart(StartStopStep):  # type: ignore[misc]  # Celery carries no types
    def start(self, worker: Any) -> None:
        worker.app.on_worker_start()


def make_app(settings: Settings, broker_url: str, stages: Sequence[str]) -> WorkerApp:
    """A Celery application that knows the queues of ``stages``; it has no tasks yet."""
    app = WorkerApp("strandline", broker_url)
    app.stages = frozenset(stages)
    app.condition = Condition()
    app.conf.update(celery_settings(broker_url))
    app.conf.task_queues = worker_queues(broker_url, stages)
    app.steps["worker"].add(_WorkerStart)
    if settings.public_apis_only:
        app.steps["consumer"].add(BrokerWatch)
    else:
        app.amqp.Connection = BrokerConnection
        app.conf.worker_consumer = "strandline.workers.celery_app.broker_consumer:BrokerConsumer"
    app.conf.worker_concurrency = settings.worker_concurrency
    # Threads, since the work is waiting for models: hundreds of calls in flight cost little memory.
    app.conf.worker_pool = "threads"
    return app


def worker_queues(broker_url: str, stages: Sequence[str]) -> list[Queue]:
    """The queues of ``stages`` as a worker declares them."""
    arguments = queue_arguments(broker_url)
    return [Queue(name, routing_key=name, queue_arguments=arguments) for name in map(queue_name, stages)]


def serve(app: WorkerApp, worker: Worker, stages: Sequence[str]) -> None:
    """Add a task per stage, and end our worker with Celery's."""
    app.condition = worker.condition
    app.is_stopping = lambda: worker.is_stopping
    for stage in stages:
        app.task(name=queue_name(stage), bind=True, shared=False)(_drain_task(app, worker))

    def stop(**_: Any) -> None:
        # Celery has waited for its own threads, not for take-overs; the grace time bounds this.
        worker.begin_stopping()
        worker.await_idle()
        worker.stop()

    # weak=False: nothing else holds the function.
    worker_shutdown.connect(stop, weak=False)
    worker_process_shutdown.connect(stop, weak=False)


def _drain_task(app: WorkerApp, worker: Worker) -> Callable[..., None]:
    def drain_lane(_task: Task[Any, Any], *arguments: object) -> None:
        if worker.is_stopping:
            return
        try:
            hint = check_hint(arguments, app.stages)
        except UnreadableHintError as error:
            app.condition.drop_hint(str(error))
            return
        if not hint.is_stale(time.time()):
            worker.take_up(hint.lane)

    return drain_lane


def try_taking(connection: Connection, broker_url: str) -> None:
    """Raise, as the broker's client does, where a worker could not take hints of some stage."""
    queues = worker_queues(broker_url, STAGES)
    if broker_kind(broker_url) == "redis":
        _try_redis(connection.default_channel, [queue.name for queue in queues])
        return
    channel = connection.channel()
    try:
        for queue in queues:
            declared = queue(channel)
            declared.declare()
            # RabbitMQ puts an unacknowledged message back where it was, as the channel closes.
            declared.get(no_ack=False)
    finally:
        channel.close()


def _try_redis(channel: Any, names: list[str]) -> None:
    """Redis refuses a command as a transaction queues it; this transaction never runs."""
    client = channel.client
    taking = client.connection_pool.get_connection()
    try:
        for command in (("MULTI",), ("BRPOP", *names, 1)):
            taking.send_command(*command)
            taking.read_response()
    finally:
        taking.disconnect()
        client.connection_pool.release(taking)
    with client.pipeline() as together:
        for name in names:
            together.llen(name)
        together.execute()
