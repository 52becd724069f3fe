"""Sentinels name the Redis that takes hints: also the next one, after its master is gone."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from strandline import ConfigurationError
from strandline.cli.doctor.servers import check_broker
from strandline.cli.servers.targets import Servers
from strandline.deploy.embedded.wheel_binaries import broker_server
from strandline.schemas.broker.settings import client_url, sentinel_options
from strandline.schemas.broker.troubles import describe_trouble
from strandline.schemas.display.shown_url import shown_url
from strandline.schemas.settings import load_settings
from tests.conftest import Rig, nothing_due, rows_of, wait_until

PASSWORD, OWN_PASSWORD = "a-password-of-no-worth", "another-one"
NO_BROKER = "SELECT condition ->> 'no_broker' FROM strandline.worker"

_REDIS = """\
bind 127.0.0.1
port {port}
requirepass {password}
masterauth {password}
dir .
save ""
repl-diskless-sync-delay 0
loglevel warning
"""
_SENTINEL = """\
bind 127.0.0.1
port {port}
requirepass {own_password}
dir .
sentinel monitor strandline 127.0.0.1 {master} 1
sentinel auth-pass strandline {password}
sentinel down-after-milliseconds strandline 500
sentinel failover-timeout strandline 2000
"""


@dataclass(frozen=True)
class Watched:
    """A master, its replica, and the Sentinels that watch them, by their ports."""

    processes: tuple[subprocess.Popen[bytes], ...]
    sentinel: int
    second: int
    replica: int

    @property
    def url(self) -> str:
        query = f"?master_name=strandline&sentinel_password={OWN_PASSWORD}"
        first = f"sentinel://:{PASSWORD}@127.0.0.1:{self.sentinel}/0"
        return f"{first};sentinel://127.0.0.1:{self.second}{query}"

    def client(self, port: int, password: str = PASSWORD) -> Any:
        return redis.Redis(host="127.0.0.1", port=port, password=password, socket_timeout=5)

    def role_of_replica(self) -> Any:
        with closing(self.client(self.replica)) as client:
            return client.role()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def is_answering(port: int, password: str) -> bool:
    try:
        with closing(redis.Redis(host="127.0.0.1", port=port, password=password)) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    master, replica, sentinel, second = free_port(), free_port(), free_port(), free_port()
    values = {"password": PASSWORD, "own_password": OWN_PASSWORD, "master": master}
    started = []

    def start(port: int, config: str, *arguments: str, password: str) -> None:
        directory = tmp_path / str(port)
        directory.mkdir()
        file = directory / "server.conf"
        file.write_text(config.format(port=port, **values))
        with (directory / "log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [str(broker_server()), str(file), *arguments], cwd=directory, stdout=log, stderr=log
                )
            )
        wait_until(lambda: is_answering(port, password), timeout=10, what=f"the server in {directory}")

    try:
        start(master, _REDIS, password=PASSWORD)
        start(replica, _REDIS + f"replicaof 127.0.0.1 {master}\n", password=PASSWORD)
        for port in (sentinel, second):
            start(port, _SENTINEL, "--sentinel", password=OWN_PASSWORD)
        watched = Watched(tuple(started), sentinel, second, replica)
        for port in (sentinel, second):
            with closing(watched.client(port, OWN_PASSWORD)) as client:
                wait_until(
                    lambda: (
                        watched.role_of_replica()[3] == b"connected"
                        and client.sentinel_slaves("strandline")
                        and client.sentinel_sentinels("strandline")
                    ),
                    timeout=20,
                    what="the Sentinels to know the replica and each other",
                )
        yield watched
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_hints_follow_the_master_that_sentinels_name(rig: Rig, watched: Watched) -> None:
    # It sweeps nothing, so only hints bring it work.
    worker = rig.start_worker("--no-sweep", STRANDLINE_BROKER_URL=watched.url)
    wait_until(lambda: "is ready" in "".join(worker.output), timeout=60, what="the worker")
    memory = rig.memory("s", broker_url=watched.url)
    derive(memory, rig.url, "My sister Nora lives in Lisbon.")
    servers = Servers("", watched.url, "configured", "configured")
    assert check_broker(servers).result == "ok"

    master = watched.processes[0]
    master.kill()
    master.wait()
    wait_until(lambda: watched.role_of_replica()[0] == b"master", timeout=30, what="the failover")
    wait_until(lambda: check_broker(servers).result == "ok", timeout=30, what="the Sentinel to tell it")
    wait_until(lambda: rows_of(rig.url, NO_BROKER) == [(None,)], timeout=60, what="the worker to take hints")
    derive(memory, rig.url, "My brother Otto lives in Oslo.")
    assert worker.stop() == 0
    assert PASSWORD not in "".join(worker.output)
    assert OWN_PASSWORD not in "".join(worker.output)


def derive(memory: Any, database_url: str, text: str) -> None:
    memory.put({"role": "user", "content": text})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(database_url), timeout=60, what="the work")


def test_a_master_that_sentinels_do_not_know_is_named(watched: Watched) -> None:
    url = watched.url.replace("master_name=strandline", "master_name=another")
    report = check_broker(Servers("", url, "configured", "configured"))
    assert report.result == "problem"
    assert "has no master" in report.found
    assert PASSWORD not in report.found
    assert OWN_PASSWORD not in report.found


def test_urls_of_sentinels() -> None:
    """The master's user, password and database stand in one of them, and a plus sign is one."""
    url = "sentinel://one:26379;sentinel://:secret@two:26379/2?master_name=m&sentinel_password=own+1"
    settings = load_settings(broker_url=url)
    assert settings.broker_url is not None
    assert client_url(url) == "sentinel://:secret@one:26379/2;sentinel://:secret@two:26379/2"
    options = sentinel_options(url)
    assert (options["master_name"], options["sentinel_kwargs"]["password"]) == ("m", "own+1")
    assert "secret" not in shown_url(url)
    assert "own" not in shown_url(url)
    assert "master_name=m" in shown_url(url)
    assert sentinel_options("redis://one:6379/0?master_name=m") == {}


def test_sentinels_without_a_masters_name_are_refused_by_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match=r"end it with \?master_name=NAME"):
        load_settings(broker_url="sentinel://:secret@one:26379;sentinel://two:26379")


def test_a_missing_master_is_a_trouble_by_name() -> None:
    error = redis.sentinel.MasterNotFoundError("No master found for 'm'")
    assert describe_trouble(error) == "has no master: the Sentinels know none of this name that is up"
