"""RabbitMQ beside Redis: the same tests on it, and what only it can do to us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.cli.doctor.servers import check_broker
from strandline.cli.servers.targets import Servers
from strandline.producers.doorbell import doorbell
from strandline.producers.doorbell import publisher as hint_publisher
from strandline.producers.doorbell.doorbell import Doorbell
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.lanes import STAGES, Lane, queue_name
from tests.conftest import PUBLIC_APIS_ONLY, MakeMemory, Rig, StartWorker, nothing_due, rows_of, wait_until
from tests.faults.test_faults import test_a_worker_that_is_told_to_stop_leaves_nothing_behind  # noqa: F401
from tests.producers.doorbell.test_doorbell import (  # noqa: F401  # tests that run once more here
    await_hints,
    broker,
    some_lane,
    test_a_connection_that_is_not_used_is_closed_and_opened_again,
    test_a_forked_child_rings_by_itself,
    test_a_hint_holds_ids_only,
    test_close_publishes_what_is_waiting,
    test_hints_pass_again_when_the_broker_is_back,
    test_many_threads_ring_at_once,
)
from tests.support.servers.broker_queues import BrokerQueues
from tests.support.servers.model_server import ModelServer
from tests.support.servers.rabbitmq import RabbitNode, rabbitmq  # noqa: F401  # a fixture, as `broker` is
from tests.support.workers.busy_workers import check_done_once, converse, environment
from tests.support.workers.hand_worker import contents
from tests.workers.test_hostile_messages import (  # noqa: F401
    test_a_worker_drops_and_counts_what_is_no_hint_and_goes_on,
)
from tests.workers.test_workers import (  # noqa: F401
    test_a_worker_serves_the_queues_it_is_given,
    test_the_others_take_over_from_a_killed_worker,
    test_two_workers_share_the_work,
)

LANES = "SELECT shard_key, scope_key, generation_id, stage FROM strandline.lane"


@pytest.fixture
def broker_url(rabbitmq: RabbitNode) -> Iterator[str]:  # noqa: F811
    """RabbitMQ, in place of the Redis of ``conftest``; without queues before and after."""
    yield rabbitmq.url
    with BrokerQueues(rabbitmq.url):
        """Entered and left, it deletes them."""


def declared_queues(node: RabbitNode) -> list[str]:
    """The node's queues, each with its type."""
    return sorted(filter(None, node.control("list_queues", "name", "type").split("\n")[1:]))


def test_a_node_that_is_replaced_by_an_empty_one_is_given_its_queues_by_the_worker(
    make_memory: MakeMemory,
    start_worker: StartWorker,
    model_server: ModelServer,
    database: Database,
    database_url: str,
    broker_url: str,
    rabbitmq: RabbitNode,  # noqa: F811
) -> None:
    """The work may be done before that: a worker that has no broker finds it in Postgres."""
    worker = start_worker(**environment(model_server))
    converse(make_memory, 1, 1, about="boat", broker_url=broker_url)
    wait_until(lambda: nothing_due(database_url), timeout=15, what="the first event")
    rabbitmq.kill()
    converse(make_memory, 3, 2, broker_url=broker_url)
    rabbitmq.replace()
    wait_until(lambda: nothing_due(database_url), timeout=15, what="what no hint was published for")
    check_done_once(database, database_url, 7)
    wait_until(lambda: "broker is back" in "".join(worker.output), timeout=15, what="the worker to connect")
    wait_until(lambda: len(declared_queues(rabbitmq)) >= len(STAGES), timeout=15, what="its queues")
    # The worker's own declarations, and nothing else that Celery would have declared, and does if it may.
    own = {f"{queue_name(stage)}\tquorum" for stage in STAGES}
    declared = declared_queues(rabbitmq)
    assert own <= set(declared) if PUBLIC_APIS_ONLY else sorted(own) == declared
    assert PUBLIC_APIS_ONLY or "strandline" not in rabbitmq.control("list_exchanges", "name")
    converse(make_memory, 1, 1, about="later", broker_url=broker_url)
    wait_until(lambda: nothing_due(database_url), timeout=15, what="what came later")
    check_done_once(database, database_url, 8)
    assert worker.stop() == 0


def test_a_batch_that_takes_longer_than_the_node_waits_for_its_hint(
    make_memory: MakeMemory,
    start_worker: StartWorker,
    model_server: ModelServer,
    database: Database,
    database_url: str,
    broker_url: str,
    rabbitmq: RabbitNode,  # noqa: F811
) -> None:
    """The node closes the worker's channel, and delivers again what is being worked on."""
    model_server.behave(latency=3.0)
    with rabbitmq.impatient():
        worker = start_worker(**environment(model_server))
        converse(make_memory, 2, 1, broker_url=broker_url)
        wait_until(lambda: nothing_due(database_url), timeout=25, what="its batches to be done")
        lost = "RecoverableConnectionError" if PUBLIC_APIS_ONLY else "PreconditionFailed"
        assert lost in "".join(worker.output), "the node closed its channel"
        check_done_once(database, database_url, 2)
        model_server.behave()
        converse(make_memory, 2, 1, about="later", broker_url=broker_url)
        wait_until(lambda: nothing_due(database_url), timeout=15, what="what came later")
        assert worker.stop() == 0


def test_delivering_every_hint_again_changes_nothing(rig: Rig) -> None:
    worker = rig.start_worker(**environment(rig.model))
    converse(rig.memory, 2, 3, broker_url=rig.broker_url)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="everything to be consumed")
    before = contents(rig.url)
    lanes = [Lane(*row) for row in rows_of(rig.url, LANES)]
    assert {lane.stage for lane in lanes} == set(STAGES)
    for _time in range(3):
        bell = Doorbell(rig.broker_url)
        bell.ring(lanes)
        bell.close(timeout_seconds=60)
    # Its hints come after them in each queue.
    memory = rig.memory("another", broker_url=rig.broker_url)
    memory.put({"role": "user", "content": "another boat"})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the hints to be worked off")
    assert worker.stop() == 0
    after = contents(rig.url)
    assert before <= after
    keys = {str(lane.shard_key) for lane in lanes}
    assert not [row for _table, row in after - before if any(key in row for key in keys)]


@pytest.mark.parametrize("trouble", ["alarmed", "hung"])
def test_a_node_that_takes_nothing_delays_nobody(
    trouble: str,
    make_memory: MakeMemory,
    broker: BrokerQueues,  # noqa: F811
    broker_url: str,
    rabbitmq: RabbitNode,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connections stand, or are even accepted, and nothing is answered."""
    monkeypatch.setattr(doorbell, "BACKOFF_SECONDS", 0.1)
    monkeypatch.setattr(hint_publisher, "ANSWER_SECONDS", 0.5)
    bell = Doorbell(broker_url)
    bell.ring([some_lane()])
    await_hints(broker, 1)
    memory = make_memory("s", broker_url=broker_url)
    with getattr(rabbitmq, trouble)():
        # They are made while nothing is answered; how long they take is measured by `make soak`.
        for number in range(20):
            bell.ring([some_lane() for _ in range(100)])
            memory.put({"role": "user", "content": f"harbour {number} was fine"})
            memory.flush(all=True)
        wait_until(bell._hints.empty, timeout=20, what="the hints to be dropped")
        assert bell._thread is not None
        assert bell._thread.is_alive()

    def passes() -> bool:
        bell.ring([some_lane("merge")])
        return broker.waiting("merge") > 0

    wait_until(passes, timeout=10, what="hints to pass again")
    bell.close(timeout_seconds=60)


def test_a_url_of_several_hosts_is_tried_through(broker: BrokerQueues, broker_url: str) -> None:  # noqa: F811
    bell = Doorbell(f"amqp://127.0.0.1:1//;{broker_url}")
    bell.ring([some_lane()])
    await_hints(broker, 1)
    bell.close()


def test_more_hints_than_are_confirmed_at_once(
    broker: BrokerQueues,  # noqa: F811
    broker_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hint_publisher, "MAX_UNCONFIRMED_HINTS", 7)
    bell = Doorbell(broker_url)
    bell.ring([some_lane() for _ in range(100)])
    bell.close(timeout_seconds=60)
    await_hints(broker, 100)


def checked(url: str) -> tuple[str, str]:
    """What doctor says of a broker, and how."""
    report = check_broker(Servers("", url, "configured", "configured"))
    return report.result, f"{report.found}; {report.advice}"


def test_doctor_knows_rabbitmq(rabbitmq: RabbitNode) -> None:  # noqa: F811
    result, said = checked(rabbitmq.url)
    assert result == "ok"
    assert "RabbitMQ 3." in said or "RabbitMQ 4." in said
    secret = rabbitmq.url.split(":")[2].split("@")[0]
    assert secret not in said
    result, said = checked(rabbitmq.url.replace(secret, "wrong"))
    assert (result, "user" in said) == ("problem", True)
    result, said = checked(rabbitmq.url + "nowhere")
    assert (result, "virtual host" in said) == ("problem", True)
    assert secret not in said
    with rabbitmq.hung():
        result, said = checked(rabbitmq.url)
    assert result == "problem"
