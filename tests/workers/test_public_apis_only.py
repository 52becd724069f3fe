"""Workers and producers that use nothing undocumented of their libraries, beside those that do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from kombu import Connection

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.postgres.own_connection import OwnConnection
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import SUMMARY_STAGE
from strandline.workers.celery_app.app import make_app
from tests.conftest import Rig, rows_of, wait_until
from tests.support.servers.broker_proxy import BrokerProxy
from tests.support.servers.broker_queues import BrokerQueues
from tests.support.servers.rabbitmq import RabbitNode, rabbitmq  # noqa: F401  # a fixture

SUMMARIES = "SELECT count(*) FROM strandline.receipt WHERE stage = 'summary' AND outcome = 'applied'"
# Both as usual is what tests/workers/test_workers.py tries.
MODES = (("false", "true"), ("true", "false"), ("true", "true"))


@pytest.fixture(params=["redis", "rabbitmq"])
def either_broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of each kind of broker, without queues of ours before and after."""
    name = "broker_url" if request.param == "redis" else "rabbitmq"
    server: str | RabbitNode = request.getfixturevalue(name)
    url = server if isinstance(server, str) else server.url
    with ExitStack() as after:
        if isinstance(server, RabbitNode):
            after.enter_context(BrokerQueues(url))
        yield url


@pytest.mark.parametrize(("producer_mode", "worker_mode"), MODES)
def test_hints_of_either_producer_lead_either_worker_to_its_work(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, either_broker: str, producer_mode: str, worker_mode: str
) -> None:
    """Without a sweep, so that only a hint can lead the worker to the work."""
    worker = rig.start_worker(
        "--no-sweep",
        f"--queues={SUMMARY_STAGE}",
        STRANDLINE_BROKER_URL=either_broker,
        OPENAI_BASE_URL=rig.model.base_url,
        STRANDLINE_PUBLIC_APIS_ONLY=worker_mode,
    )
    monkeypatch.setenv("STRANDLINE_PUBLIC_APIS_ONLY", producer_mode)
    memory = rig.memory("s", broker_url=either_broker)
    for done in (1, 2, 3):
        memory.put({"role": "user", "content": f"I sail in spring, for the {done}th time."})
        memory.flush(all=True)
        wait_until(
            lambda done=done: rows_of(rig.url, SUMMARIES) == [(done,)],  # type: ignore[misc]
            timeout=30,
            what=f"summary {done}",
        )
    assert worker.stop() == 0
    assert "dropped" not in "".join(worker.output)


def test_a_broker_that_was_away_is_used_again(rig: Rig) -> None:
    """While it is away, the worker drains what its own sweep finds."""
    with BrokerProxy(rig.broker_url) as proxy:
        worker = rig.start_worker(
            f"--queues={SUMMARY_STAGE}",
            STRANDLINE_BROKER_URL=proxy.url,
            OPENAI_BASE_URL=rig.model.base_url,
            STRANDLINE_PUBLIC_APIS_ONLY="true",
        )
        memory = rig.memory("s")
        wait_until(lambda: "is ready" in "".join(worker.output), timeout=60, what="the worker to listen")
        proxy.down()
        wait_until(lambda: "broker away" in "".join(worker.output), timeout=30, what="the loss to be told")
        memory.put({"role": "user", "content": "I sail in spring."})
        memory.flush(all=True)
        wait_until(lambda: rows_of(rig.url, SUMMARIES) == [(1,)], timeout=60, what="the work to be done")
        proxy.up()
        wait_until(lambda: "broker is back" in "".join(worker.output), timeout=60, what="its return")
        assert worker.stop() == 0


def test_a_broker_that_goes_before_celery_connects_is_reported(rig: Rig) -> None:
    """A worker asks for its broker once before Celery does: that one connection is all that it gets."""
    reported = "SELECT condition ->> 'no_broker' FROM strandline.worker"
    with BrokerProxy(rig.broker_url) as proxy:
        proxy.down()
        proxy.up(connections=1)
        worker = rig.start_worker(
            "--queues=summary", STRANDLINE_BROKER_URL=proxy.url, STRANDLINE_PUBLIC_APIS_ONLY="true"
        )
        wait_until(lambda: rows_of(rig.url, reported) == [("ConnectionError",)], timeout=30, what="the loss")
        assert "is ready" not in "".join(worker.output)
        proxy.up()
        wait_until(lambda: rows_of(rig.url, reported) == [(None,)], timeout=60, what="the return")


def test_statements_run_by_cursors_that_psycopg_prepares(database_url: str, settings: Settings) -> None:
    plain = settings.model_copy(update={"public_apis_only": True})
    database = Database.connect(ConnectionOptions.from_settings(database_url, plain))
    try:
        with database.transaction() as transaction:
            connection = transaction._connection
            assert isinstance(connection, OwnConnection)
            assert type(connection).wait is psycopg.Connection.wait
            assert type(connection).run is OwnConnection.run
            assert connection.prepare_threshold == 2
    finally:
        database.close()


def test_celery_and_kombu_are_as_they_come(settings: Settings, stack: EmbeddedStack) -> None:
    assert stack.broker_url is not None
    plain = settings.model_copy(update={"public_apis_only": True})
    app = make_app(plain, stack.broker_url, [SUMMARY_STAGE])
    assert app.amqp.Connection is Connection
    assert app.conf.worker_consumer == "celery.worker.consumer:Consumer"
