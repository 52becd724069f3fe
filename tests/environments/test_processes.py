"""Memories in processes that were started and not forked, and commands as process 1 of a container."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from psycopg_pool import ConnectionPool

from strandline import ConfigurationError, Memory
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


@pytest.mark.parametrize("command", ["migrate", "status", "verify"])
def test_a_command_as_process_1_ends_at_sigterm(command: str, tmp_path: Path) -> None:
    """The kernel gives process 1 no signal that it does not handle."""
    if shutil.which("unshare") is None or subprocess.run([*AS_PROCESS_1, "true"], check=False).returncode:
        pytest.skip("this user may make no namespace")
    with SilentServer() as silent:
        process = subprocess.Popen(
            [*AS_PROCESS_1, sys.executable, "-m", "strandline", command],
            env={**os.environ, "STRANDLINE_DATABASE_URL": f"postgresql://127.0.0.1:{silent.port}/x"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        wait_until(lambda: silent.heard, timeout=30, what="the command to connect")
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTERM)
        assert process.wait(100) == 128 + signal.SIGTERM, textwrap.shorten(str(process.stdout), 200)
        assert process.stdout is not None
        process.stdout.close()
