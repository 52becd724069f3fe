"""Memories in processes that were started and not forked, and commands as process 1 of a container."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg_pool import ConnectionPool

from strandline import ConfigurationError, Memory
from strandline.cli.entry import COMMANDS
from tests.conftest import wait_until
from tests.support.processes.pool_work import count_words, put_text
from tests.support.servers.silent_server import SilentServer
from tests.support.stored import stored_messages


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_memory_goes_to_another_process(method: str, database_url: str) -> None:
    memory = Memory.from_defaults(
        "s",
        user_id="ana",
        database_url=database_url,
        tokenizer_fn=count_words,
        memory_template="{% for s in sections %}{{ s.text }}{% endfor %}",
    )
    memory.put({"role": "user", "content": "here"})
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(put_text, (memory, "there")) == [2]
    assert [message.content for message in memory.get_all()] == ["here", "there"]
    memory.close()
    assert stored_messages(database_url) == 2


def test_one_with_a_pool_says_how() -> None:
    with ConnectionPool("postgresql://127.0.0.1:1/x", open=False) as pool:
        memory = Memory.from_defaults("s", user_id="ana", pool=pool)
        with pytest.raises(ConfigurationError, match="give it database_url="):
            pickle.dumps(memory)


AS_PROCESS_1 = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def start_as_process_1(*arguments: str, **variables: str) -> tuple[subprocess.Popen[bytes], int]:
    """The command as process 1 of a namespace, and its process id outside."""
    if shutil.which("unshare") is None or subprocess.run([*AS_PROCESS_1, "true"], check=False).returncode:
        pytest.skip("this user may make no namespace")
    process = subprocess.Popen(
        [*AS_PROCESS_1, sys.executable, *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_until(children.read_text, timeout=30, what="the namespace")
    return process, int(children.read_text())


@pytest.mark.parametrize("command", ["migrate", "status", "verify"])
def test_a_command_as_process_1_ends_at_sigterm(command: str) -> None:
    """The kernel gives process 1 no signal that it does not handle."""
    with SilentServer() as silent:
        url = f"postgresql://127.0.0.1:{silent.port}/x"
        process, pid = start_as_process_1("-m", "strandline", command, STRANDLINE_DATABASE_URL=url)
        wait_until(lambda: silent.heard, timeout=30, what="the command to connect")
        os.kill(pid, signal.SIGTERM)
        assert process.wait(100) == 128 + signal.SIGTERM


SCRIPT = str(Path(sys.executable).with_name("strandline"))


@pytest.mark.parametrize("command", [[name] for name in sorted(COMMANDS)] + [["--help"]])
@pytest.mark.parametrize("start", [["-m", "strandline"], [SCRIPT]], ids=["module", "script"])
def test_one_that_still_imports_ends_as_well(start: list[str], command: list[str]) -> None:
    process, pid = start_as_process_1(*start, *command, STRANDLINE_EMBEDDED="never")
    wait_until(lambda: handles_sigterm(pid), timeout=30, what="the handler")
    os.kill(pid, signal.SIGTERM)
    assert process.wait(100) == 128 + signal.SIGTERM


def handles_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def test_signals_are_handled_before_anything_else_is_imported() -> None:
    code = "import sys, strandline; print(*[n for n in sys.modules if n.startswith('strandline.')][:2])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["strandline.schemas", "strandline.schemas.process_1"]
