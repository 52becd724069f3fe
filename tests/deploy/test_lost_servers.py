"""Embedded servers that are killed under `strandline up`, and workers whose broker stays away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from strandline.deploy.embedded.stack import STATE_FILE
from tests.conftest import Rig, nothing_due, wait_until
from tests.support.processes import forking
from tests.support.servers.broker_proxy import BrokerProxy

PUT = """
from strandline import Memory
memory = Memory.from_defaults("s", user_id="u")
memory.put({"role": "user", "content": "I live in Bern and my cat is called Mio."})
memory.flush(all=True)
print(memory.get(wait_for=1, timeout=300).caught_up)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory in which embedded servers may be started."""
    path = tmp_path / "home"
    monkeypatch.setenv("STRANDLINE_HOME", str(path))
    monkeypatch.setenv("STRANDLINE_EMBEDDED", "auto")
    return path


@contextmanager
def up(home: Path, name: str = "up") -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`strandline up` that is ready, and the file that it writes to."""
    output = home.parent / f"{name}.txt"
    with output.open("wb") as stream:
        process = forking.Popen(
            [sys.executable, "-m", "strandline", "up"],
            stdout=stream,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or "Ctrl-C" in output.read_text(),
            timeout=60,
            what="up to be ready",
        )
        assert process.poll() is None, output.read_text()
        yield process, output
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(400)


def announced(home: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        state: dict[str, Any] = json.loads((home / STATE_FILE).read_text())
        return state
    return {}


def await_another(home: Path, name: str, before: int) -> None:
    wait_until(lambda: announced(home).get(name) not in (None, before), timeout=30, what=f"another {name}")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "strandline", *arguments]
    return forking.run(argv, capture_output=True, check=False)


def test_up_starts_a_server_again_that_was_killed(home: Path) -> None:
    with up(home) as (_process, output):
        before = announced(home)
        for pid in ("broker_pid", "database_pid"):
            os.kill(before[pid], signal.SIGKILL)
            await_another(home, pid, before[pid])
        after = announced(home)
        assert after["broker_url"] == before["broker_url"], "workers and producers look there"
        said = output.read_text()
        assert said.count("embedded broker ended, and was started again") == 1
        assert said.count("embedded database ended, and was started again") == 1
        done = forking.run([sys.executable, "-c", PUT], capture_output=True, check=True)
        assert done.stdout == "True\n"
        wait_until(lambda: not _without_broker(), timeout=30, what="the worker to reach the broker")


def _without_broker() -> bool:
    workers = json.loads(run("status", "--json").stdout)["workers"]
    return not workers or any(worker["no_broker"] for worker in workers)


def test_a_second_up_says_that_it_joins_and_that_the_servers_go_on(home: Path) -> None:
    with up(home) as (_first, first_output):
        with up(home, "second") as (_second, second_output):
            assert f"joining the servers that run in {home} already" in second_output.read_text()
        assert f"the servers in {home} go on, since other processes use them" in second_output.read_text()
        assert announced(home)
    assert "joining" not in first_output.read_text()
    assert "stopped; the data is kept" in first_output.read_text()
    assert not announced(home)


def test_workers_go_on_by_their_sweep_while_there_is_no_broker(rig: Rig) -> None:
    with BrokerProxy(rig.broker_url) as broker:
        rig.start_worker(STRANDLINE_BROKER_URL=broker.url)
        broker.down()
        url = ("--database-url", rig.url, "--json")
        wait_until(
            lambda: json.loads(run("status", *url).stdout)["workers"][0]["no_broker"],
            timeout=30,
            what="the loss to be reported",
        )
        assert "no worker reaches its broker" in run("status", *url[:2]).stdout
        memory = rig.memory(user_id="u", broker_url=rig.broker_url)
        memory.put({"role": "user", "content": "I live in Bern and my cat is called Mio."})
        memory.flush(all=True)
        wait_until(lambda: nothing_due(rig.url), timeout=30, what="the work to be done all the same")
        assert any("Bern" in fact.text for fact in memory.facts.list())
        broker.up()
        wait_until(
            lambda: not json.loads(run("status", *url).stdout)["workers"][0]["no_broker"],
            timeout=30,
            what="the return to be reported",
        )
