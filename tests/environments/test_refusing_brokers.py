"""A broker that answers but takes no hints is no broker: work is done, and what is refused is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import pytest
import redis

from strandline.cli.doctor.servers import check_broker, judge_verification
from strandline.cli.servers.targets import Servers
from strandline.schemas.broker.troubles import describe_trouble
from strandline.schemas.values.lanes import Lane
from tests.chaos.servers import RedisServer
from tests.conftest import MakeMemory, Rig, StartWorker, nothing_due, rows_of, wait_until
from tests.support.servers.rabbitmq import RabbitNode, rabbitmq  # noqa: F401  # a fixture
from tests.support.servers.service_server import RunningService

Trouble = Callable[[], AbstractContextManager[None]]

FULL = "takes no hints: its memory is full"
NO_BROKER = "SELECT condition ->> 'no_broker' FROM strandline.worker"
USER, PASSWORD = "limited", "a-password-of-no-worth"

# As docs/operations.md lists them.
RIGHTS = (
    "~strandline* -@all +lpush +brpop +llen +multi +exec +ping +select +hello +auth +client|setinfo"
    " +client|setname"
)
RABBITMQ_RIGHTS = (r"strandline\..*", r"(strandline\.|amq\.default).*", r"strandline\..*")
OPERATIONS = Path(__file__).parent.parent.parent / "docs" / "operations.md"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


class RedisTroubles:
    """What an operator's Redis may refuse; each ends with its context."""

    def __init__(self, url: str) -> None:
        self._admin: Any = redis.Redis.from_url(url)

    @contextmanager
    def full(self) -> Iterator[None]:
        self._admin.config_set("maxmemory", "1mb")
        yield
        self._admin.config_set("maxmemory", "0")

    @contextmanager
    def demoted(self) -> Iterator[None]:
        """A replica of a master that is not there; it answers what it still has."""
        self._admin.replicaof("127.0.0.1", "1")
        yield
        self._admin.replicaof("NO", "ONE")

    @contextmanager
    def without_writing(self) -> Iterator[None]:
        yield from self._without("-lpush")

    @contextmanager
    def without_taking(self) -> Iterator[None]:
        yield from self._without("-brpop")

    def let_in(self) -> None:
        """With the rights that the docs list."""
        rules = ["on", f">{PASSWORD}", "resetkeys", "resetchannels", *RIGHTS.split()]
        self._admin.execute_command("ACL", "SETUSER", USER, *rules)

    def _without(self, rule: str) -> Iterator[None]:
        self._admin.execute_command("ACL", "SETUSER", USER, rule)
        yield
        self.let_in()


def limited_url(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{USER}:{PASSWORD}@{parts.hostname}:{parts.port}"))


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("full", "its memory is full"),
        ("demoted", "read-only replica"),
        ("without_writing", "the right to write"),
        ("without_taking", "the right to write or to take hints"),
    ],
)
def test_a_redis_that_refuses_is_no_broker(rig: Rig, trouble: str, said: str, server: RedisServer) -> None:
    troubles = RedisTroubles(server.url)
    troubles.let_in()
    url = limited_url(server.url)
    worker = rig.start_worker(STRANDLINE_BROKER_URL=url)
    wait_until(lambda: "is ready" in "".join(worker.output), timeout=60, what="the worker")
    work_through_trouble(getattr(troubles, trouble), said, worker, rig.memory, rig.url, url)


def test_a_rabbitmq_with_an_alarm_is_no_broker(
    rabbitmq: RabbitNode,  # noqa: F811
    make_memory: MakeMemory,
    start_worker: StartWorker,
    database_url: str,
) -> None:
    worker = start_worker(STRANDLINE_BROKER_URL=rabbitmq.url)
    wait_until(lambda: "is ready" in "".join(worker.output), timeout=60, what="the worker")
    said = "its alarm for memory or disk is on"
    work_through_trouble(rabbitmq.alarmed, said, worker, make_memory, database_url, rabbitmq.url)


@pytest.fixture
def node(rabbitmq: RabbitNode) -> Iterator[RabbitNode]:  # noqa: F811
    """The node, with a user who has no rights yet."""
    with rabbitmq.user(USER, PASSWORD):
        yield rabbitmq


def test_a_user_of_rabbitmq_who_may_not_write_has_no_broker(
    node: RabbitNode, make_memory: MakeMemory, start_worker: StartWorker, database_url: str
) -> None:
    """From the start: a channel that may write keeps its right for as long as it lives."""
    node.control("set_permissions", USER, ".*", "^$", ".*")
    url = limited_url(node.url)
    start_worker(STRANDLINE_BROKER_URL=url)
    memory = make_memory("s", broker_url=url)
    memory.put({"role": "user", "content": "I live in Bern."})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(database_url), timeout=12, what="the work")
    said = "the right to write"
    wait_until(lambda: said in (rows_of(database_url, NO_BROKER)[0][0] or ""), timeout=20, what="the refusal")
    assert said in check_broker(Servers("", url, "configured", "configured")).found
    node.control("set_permissions", USER, ".*", ".*", ".*")
    wait_until(lambda: rows_of(database_url, NO_BROKER) == [(None,)], timeout=30, what="its end")


@pytest.mark.parametrize("right", ["+lpush", "+brpop", "+llen", "+multi", "+exec", "~strandline*"])
def test_doctor_tries_what_a_worker_does_with_redis(server: RedisServer, right: str) -> None:
    """No worker runs, and what lies in the queues stays there."""
    troubles, admin = RedisTroubles(server.url), cast(Any, redis.Redis.from_url(server.url))
    troubles.let_in()
    servers = Servers("", limited_url(server.url), "configured", "configured")
    assert check_broker(servers).result == "ok"
    left = admin.llen("strandline.extract")
    withdrawn = right.replace("+", "-") if right.startswith("+") else "resetkeys"
    admin.execute_command("ACL", "SETUSER", USER, withdrawn)
    report = check_broker(servers)
    assert (report.result, "the right to write or to take" in report.found) == ("problem", True), report
    assert "docs/operations.md" in (report.advice or "")
    assert left == 1 <= admin.llen("strandline.extract")


def test_doctor_tries_what_a_worker_does_with_rabbitmq(node: RabbitNode) -> None:
    servers = Servers("", limited_url(node.url), "configured", "configured")
    none = "^$"
    for rights in ((none, ".*", ".*"), (".*", none, ".*"), (".*", ".*", none)):
        node.control("set_permissions", USER, *rights)
        report = check_broker(servers)
        assert (report.result, "the right to write or to take" in report.found) == ("problem", True), rights
    node.control("set_permissions", USER, *RABBITMQ_RIGHTS)
    for _twice in range(2):
        report = check_broker(servers)
        assert report.result == "ok", report


def work_through_trouble(
    trouble: Trouble,
    said: str,
    worker: Any,
    make_memory: MakeMemory,
    database_url: str,
    url: str,
) -> None:
    """Work is done before, within and after the trouble; the worker and doctor say what is refused."""

    def work(text: str) -> None:
        memory.put({"role": "user", "content": text})
        memory.flush(all=True)
        wait_until(lambda: nothing_due(database_url), timeout=12, what="the work")

    memory = make_memory("s", broker_url=url)
    work("I live in Bern.")
    with trouble():
        work("My cat is called Mio.")
        wait_until(
            lambda: said in (rows_of(database_url, NO_BROKER)[0][0] or ""), timeout=20, what="the refusal"
        )
        work("I sail in spring.")
        report = check_broker(Servers("", url, "configured", "configured"))
        assert (report.result, said in report.found) == ("problem", True), report
        assert PASSWORD not in report.found
    wait_until(lambda: rows_of(database_url, NO_BROKER) == [(None,)], timeout=30, what="its end")
    work("I moor in autumn.")
    lines = [line for line in "".join(worker.output).splitlines() if "broker" in line and "ready" not in line]
    assert ["broker away" in line for line in lines] == [True, False], lines
    assert said in lines[0]
    assert PASSWORD not in "".join(worker.output)


def test_the_service_says_what_its_broker_refuses(server: RedisServer, database_url: str) -> None:
    """It is ready all the same; and the bell tries by itself, though nothing is put meanwhile."""

    def asked() -> tuple[int, str | None]:
        answer = client.get("/healthz/ready")
        return answer.status_code, answer.json().get("broker")

    with (
        RunningService(database_url, broker_url=server.url) as running,
        running.client(running.make_key(), user="ana") as client,
    ):
        assert asked() == (200, None)
        with RedisTroubles(server.url).full():
            resources = running.service.resources
            resources.database()
            resources.ring([Lane(uuid4(), uuid4(), 1, "summary")])
            wait_until(lambda: asked() == (200, FULL), timeout=20, what="the refusal")
        wait_until(lambda: asked() == (200, None), timeout=20, what="its end")


@pytest.mark.parametrize(
    ("options", "result"),
    [
        ("", "warning"),
        ("?ssl_cert_reqs=none", "warning"),
        ("?ssl_cert_reqs=optional", "warning"),
        ("?ssl_cert_reqs=required", "ok"),
        ("?ssl_cert_reqs=CERT_REQUIRED&ssl_ca_certs=ca.pem", "ok"),
    ],
)
def test_doctor_says_that_a_certificate_is_not_verified(options: str, result: str) -> None:
    report = judge_verification(f"rediss://cache:6380/0{options}", "answered")
    assert (report.result, "not verified" in report.found) == (result, result == "warning")
    assert judge_verification("redis://cache:6379/0", "answered").result == "ok"


@pytest.mark.parametrize(
    "error",
    [
        redis.ResponseError("CROSSSLOT Keys in request don't hash to the same slot"),
        redis.exceptions.MovedError("1234 127.0.0.1:7000"),
        redis.exceptions.ClusterDownError("CLUSTERDOWN Hash slot not served"),
    ],
)
def test_a_redis_cluster_is_named(error: redis.RedisError) -> None:
    assert "belongs to a Redis Cluster" in (describe_trouble(error) or "")


def test_doctor_finds_a_redis_cluster_of_one_node(tmp_path: Path) -> None:
    """It takes each hint by itself, and refuses the command by which workers wait for all queues."""
    cluster = RedisServer(tmp_path, "cluster-enabled yes\n")
    cluster.start()
    try:
        client: Any = redis.Redis.from_url(cluster.url)
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(
            lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", timeout=20, what="it"
        )
        client.close()
        report = check_broker(Servers("", cluster.url, "configured", "configured"))
        assert (report.result, "belongs to a Redis Cluster" in report.found) == ("problem", True)
    finally:
        cluster.stop()


def test_a_trouble_repeats_no_more_than_the_code_of_an_error() -> None:
    error = redis.ResponseError("MISCONF redis://u:secret@host cannot save")
    assert describe_trouble(error) == "refuses commands (MISCONF)"
    assert describe_trouble(redis.ResponseError("redis://u:secret@host")) is None


def test_the_docs_list_the_rights_with_which_it_is_tested() -> None:
    page = OPERATIONS.read_text().replace("\\|", "|")
    assert RIGHTS in page
    assert " ".join(f"'{right}'" for right in RABBITMQ_RIGHTS) in page
