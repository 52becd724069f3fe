"""A RabbitMQ node of our own: loopback, its own ports and files, no system service.

Debian's package ``rabbitmq-server`` brings the server; where it is missing, what needs it is skipped.  One
node is started per run, when the first test asks for it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest
from kombu import Connection

READY_SECONDS = 300.0
_END_SECONDS = 100.0

# Debian's name on the PATH is a wrapper that changes to the user `rabbitmq` and its directories.
_PROGRAMS = "/usr/lib/rabbitmq/bin"

_CONFIG = """\
listeners.tcp.local = 127.0.0.1:{port}
default_user = strandline
default_pass = {password}
loopback_users = none
raft.wal_max_size_bytes = 16777216
disk_free_limit.absolute = 10MB
vm_memory_high_watermark.absolute = {memory}
"""
_MEMORY = "4GB"

_PATIENCE = (
    "application:set_env(rabbit, consumer_timeout, {timeout}),"
    " application:set_env(rabbit, channel_tick_interval, {tick})."
)

# Schedulers that sleep when they have nothing to do: the tests beside it need the cores.
_ERLANG = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}"


def server_program() -> str | None:
    """The RabbitMQ server as this user may run it, or None where it is not installed."""
    return shutil.which("rabbitmq-server", path=_PROGRAMS) or shutil.which("rabbitmq-server")


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitNode]:
    """A node for the whole run."""
    if server_program() is None:
        pytest.skip("RabbitMQ's server is not installed (Debian's package is rabbitmq-server)")
    with RabbitNode(tmp_path_factory.mktemp("rabbitmq")) as node:
        yield node


class RabbitNode:
    """One node under ``directory``, with the port mapper that Erlang wants; ends with the context."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._password = secrets.token_hex(8)
        self._port, self._distribution_port, self._mapper_port = _free_ports(3)
        self._mapper: subprocess.Popen[bytes] | None = None
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The node's AMQP URL, for the virtual host that it begins with."""
        return f"amqp://strandline:{self._password}@127.0.0.1:{self._port}//"

    def __enter__(self) -> RabbitNode:
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "rabbitmq.conf").write_text(
            _CONFIG.format(port=self._port, password=self._password, memory=_MEMORY)
        )
        (self._directory / "enabled_plugins").write_text("[].\n")
        self._mapper = self._start("epmd", "-address", "127.0.0.1", "-port", str(self._mapper_port))
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait(_END_SECONDS)

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        program = server_program()
        assert program is not None
        self._server = self._start(program)
        deadline = time.monotonic() + READY_SECONDS
        while not self.answers():
            assert self._server.poll() is None, f"RabbitMQ ended; see {self._directory}"
            assert time.monotonic() < deadline, f"RabbitMQ is not ready; see {self._directory}"
            time.sleep(0.05)

    def answers(self) -> bool:
        """Whether a connection is accepted."""
        try:
            with Connection(self.url, connect_timeout=1.0) as connection:
                connection.connect()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        if self._server is not None:
            os.killpg(self._server.pid, signal.SIGKILL)
            self._server.wait(_END_SECONDS)
            self._server = None

    def control(self, *arguments: str) -> str:
        """Run ``rabbitmqctl`` on this node; returns what it prints."""
        program = shutil.which("rabbitmqctl", path=_PROGRAMS) or "rabbitmqctl"
        node = ("--node", self._environment["RABBITMQ_NODENAME"], "--quiet")
        ended = subprocess.run(
            [program, *node, *arguments],
            env=self._environment,
            cwd=self._directory,
            capture_output=True,
            check=True,
            timeout=300,
            text=True,
        )
        return ended.stdout

    @contextmanager
    def user(self, name: str, password: str) -> Iterator[None]:
        """A user without rights, until the end of the context."""
        self.control("add_user", name, password)
        try:
            yield
        finally:
            self.control("delete_user", name)

    @contextmanager
    def hung(self) -> Iterator[None]:
        """The server's processes stand still: connections stay, and nothing is answered."""
        assert self._server is not None
        os.killpg(self._server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self._server.pid, signal.SIGCONT)

    @contextmanager
    def alarmed(self) -> Iterator[None]:
        """Its memory alarm is on: it accepts connections, and reads nothing more from who publishes."""
        self.alarm(is_on=True)
        try:
            yield
        finally:
            self.alarm(is_on=False)

    def alarm(self, *, is_on: bool) -> None:
        """Begin or end its memory alarm."""
        self.control("set_vm_memory_high_watermark", "absolute", "1" if is_on else _MEMORY)

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """It waits a second for a message to be acknowledged, instead of 30 minutes."""
        self.control("eval", _PATIENCE.format(timeout=1_000, tick=500))
        try:
            yield
        finally:
            self.control("eval", _PATIENCE.format(timeout=1_800_000, tick=60_000))

    def replace(self) -> None:
        """End the server, and start one in its place that knows of no queue."""
        self.kill()
        shutil.rmtree(self._directory / "data")
        self.start()

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{Path(command[0]).name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=self._environment,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A separate group, for the shell script and the server below it.
                process_group=0,
            )

    @property
    def _environment(self) -> dict[str, str]:
        directory = str(self._directory)
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            # The cookie by which tools and server know each other lies there.
            "HOME": directory,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"strandline{self._port}@localhost",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{directory}/none.config",
            "RABBITMQ_GENERATED_CONFIG_DIR": directory,
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/enabled_plugins",
            "RABBITMQ_MNESIA_BASE": f"{directory}/data",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": f"{directory}/pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
            # Without the shell that would stand between us and the server, and pass signals on.
            "RUNNING_UNDER_SYSTEMD": "true",
        }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listening.getsockname()[1] for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports
