"""The brokers that a campaign can run on, by the name that ``--broker`` takes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from kombu import Connection

from strandline.schemas.values.lanes import STAGES, queue_name
from tests.chaos.servers import BrokerMissingError, BrokerServer, RedisServer
from tests.support.servers.rabbitmq import RabbitNode, server_program


class RabbitServer:
    """A RabbitMQ node on loopback; what it keeps on the disk is removed before each start."""

    def __init__(self, directory: Path) -> None:
        if server_program() is None:
            raise BrokerMissingError(
                "RabbitMQ is not installed (Debian's package is rabbitmq-server); use --broker redis."
            )
        self._directory = directory / "rabbitmq"
        self._node = RabbitNode(self._directory)
        self._entered = False

    @property
    def url(self) -> str:
        return self._node.url

    def start(self) -> None:
        if self._entered:
            shutil.rmtree(self._directory / "data", ignore_errors=True)
            self._node.start()
        else:
            self._entered = True
            self._node.__enter__()

    def kill(self) -> None:
        self._node.kill()

    def empty(self) -> None:
        with Connection(self.url, connect_timeout=5.0) as connection, connection.channel() as channel:
            for stage in STAGES:
                channel.queue_purge(queue_name(stage))

    def refuse(self, *, hints: bool) -> None:
        self._node.alarm(is_on=hints)

    def stop(self) -> None:
        if self._entered:
            self._node.__exit__(None, None, None)


BROKERS: Mapping[str, Callable[[Path], BrokerServer]] = {"rabbitmq": RabbitServer, "redis": RedisServer}
