"""What ``strandline up`` says of its port, and as it is stopped while it starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path

from rich.console import Console

from strandline.cli.servers.processes import LocalService
from strandline.cli.servers.targets import Running, Servers
from strandline.cli.up import _Announcement
from strandline.deploy.supervisor import ChildCommand, Supervisor
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.conftest import rows_of, wait_until
from tests.support.processes import forking

SLEEPING = [sys.executable, "-c", "import time; time.sleep(3600)"]
WORKER = """INSERT INTO strandline.worker (worker_id, host, pid, version, stages)
    VALUES (gen_random_uuid(), 'h', %s, '1', '{extract}') RETURNING 1"""


def test_what_is_stopped_before_its_service_is_ready_does_not_say_that_it_is(database_url: str) -> None:
    settings = load_settings(database_url=database_url)
    database = Database.connect(ConnectionOptions.from_settings(database_url, settings))
    servers = Servers(database_url, None, "configured", "configured")
    screen, stopping = StringIO(), threading.Event()
    with (
        Supervisor([ChildCommand("worker", SLEEPING)], say=lambda _line: None) as supervisor,
        socket.create_server(("127.0.0.1", 0)) as listening,
    ):
        rows_of(database_url, WORKER, supervisor.pids()["worker"])
        service = LocalService(ChildCommand("service", SLEEPING), listening.getsockname()[1], "key", "key")
        running = Running(settings, servers, database)
        announcement = _Announcement(Console(file=screen), running, supervisor, service, stopping)
        announcing = threading.Thread(target=announcement.run)
        announcing.start()
        listening.settimeout(60)
        asking, _address = listening.accept()  # whether the service is ready
        stopping.set()
        asking.close()
        announcing.join(60)
    database.close()
    assert screen.getvalue() == ""


def test_up_says_that_its_port_is_taken_and_where_the_service_is(
    database_url: str, broker_url: str, tmp_path: Path
) -> None:
    output = tmp_path / "up.txt"
    with socket.create_server(("127.0.0.1", 0)) as taken, output.open("wb") as stream:
        port = taken.getsockname()[1]
        environment = {"STRANDLINE_DATABASE_URL": database_url, "STRANDLINE_BROKER_URL": broker_url}
        up = forking.Popen(
            [sys.executable, "-m", "strandline", "up"],
            env={**os.environ, **environment, "STRANDLINE_SERVICE_PORT": str(port)},
            stdout=stream,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        wait_until(lambda: up.poll() is not None or "starting" in output.read_text(), what="up", timeout=60)
        wait_until(lambda: up.poll() is not None or "is taken" in output.read_text(), what="it", timeout=60)
        up.send_signal(signal.SIGINT)
        up.wait(400)
    assert f"port {port} is taken; the service is at http://127.0.0.1:" in output.read_text()
