"""Plain use: a script in a separate process with nothing configured, as a newcomer writes it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from strandline.deploy.embedded.processes import is_running

ROOT = Path(__file__).parent.parent.parent.parent

SCRIPT = """
    import sys
    from strandline import Memory

    memory = Memory.from_defaults("trip", user_id="maren", token_limit=2_000, token_flush_size=300)
    known = len(memory.get_all())
    print("known", known)
    for number in range(known, known + 300):
        speaker = "user" if number % 2 == 0 else "assistant"
        text = f"My cousin Tomke number {number} lives in Husum." if speaker == "user" else "I see."
        seq = memory.put({"role": speaker, "content": text})
    context = memory.get("Who lives in Husum?", wait_for=seq, timeout=60)
    covered = min(context.covered_through.values())
    print("covered", context.caught_up, covered > known, context.tokens <= 2_000)
    print("facts", "<fact>" in str(context), len(memory.facts.list()) > 10)
"""

ASYNC_SCRIPT = """
    import asyncio
    from strandline import Memory

    async def main():
        memory = Memory.from_defaults("trip")
        await asyncio.gather(*(memory.aput({"role": "user", "content": f"m{n}"}) for n in range(50)))
        print(len(await memory.aget_all()))
        await memory.aclose()

    asyncio.run(main())
"""

# Some come at the same moment, others while the server is starting or the tables are being made.
THREADED_SCRIPT = """
    from concurrent.futures import ThreadPoolExecutor, wait
    from strandline import Memory

    def put(number):
        return Memory.from_defaults("trip").put({"role": "user", "content": f"m{number}"})

    with ThreadPoolExecutor(200) as threads:
        puts = [threads.submit(put, number) for number in range(8)]
        while wait(puts, timeout=0.04, return_when="FIRST_COMPLETED").not_done:
            if any(put.done() for put in puts):
                break
            puts.append(threads.submit(put, len(puts)))
        assert sorted(put.result() for put in puts) == list(range(1, len(puts) + 1))
    print("all")
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home whose name has a space, as on macOS."""
    with TemporaryDirectory(prefix="plain ") as place:
        Path(place).chmod(0o755)
        yield Path(place) / "home"


def said_by(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines on standard error."""
    return done.stderr.splitlines()


def run(script: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script from another directory, with a home and no other setting."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STRANDLINE_")}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        env={**plain, "STRANDLINE_HOME": str(home), "PYTHONPATH": str(ROOT), **environment},
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def processes_of(home: Path) -> list[str]:
    """The command lines of processes that have to do with this home; Linux only."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = str((folder / "cwd").readlink())
        except OSError:
            continue
        if str(home) in command or place.startswith(str(home)):
            found.append(command)
    return found


def pids_recorded_in(home: Path) -> list[int]:
    return [
        int(first)
        for file in home.rglob("*.pid")
        if (first := file.read_text(errors="replace").split("\n")[0].strip()).isdigit()
    ]


def test_a_script_with_nothing_configured_just_works(home: Path) -> None:
    for round_ in range(2):
        done = run(SCRIPT, home)
        lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
        assert done.returncode == 0, done.stderr
        announced = said_by(done)
        assert len(announced) == 1, done.stderr
        assert "embedded PostgreSQL" in announced[0]
        assert str(home) in announced[0]
        assert lines["known"] == str(300 * round_), "what the first run put is there in the second"
        assert lines["covered"] == "True True True"
        assert lines["facts"] == "True True"
        assert not any(is_running(pid) for pid in pids_recorded_in(home))
        if sys.platform == "linux":
            assert processes_of(home) == []


def test_what_a_script_leaves_undone_is_done_by_the_next(home: Path) -> None:
    """Nothing is waited for but what is in hand, and ``make soak`` measures for how long."""
    script = SCRIPT.replace('"Who lives in Husum?", wait_for=seq, timeout=60', "")
    done = run(script, home)
    assert done.returncode == 0, done.stderr
    again = run(
        "from strandline import Memory\n"
        'memory = Memory.from_defaults("trip", user_id="maren")\n'
        "print(memory.get(wait_for=300, timeout=60).caught_up, len(memory.get_all()))",
        home,
    )
    assert again.stdout == "True 300\n", again.stderr
    if sys.platform == "linux":
        assert processes_of(home) == []


@pytest.mark.parametrize(("script", "says"), [(ASYNC_SCRIPT, "50\n"), (THREADED_SCRIPT, "all\n")])
def test_first_use_by_many_at_once(home: Path, script: str, says: str) -> None:
    """One of them starts the server and makes the tables; the others wait for it, and one line is said."""
    done = run(script, home)
    assert done.stdout == says, done.stderr
    assert len(said_by(done)) == 1, done.stderr
    assert done.returncode == 0
    if sys.platform == "linux":
        assert processes_of(home) == []


def test_the_embedded_server_can_be_forbidden(home: Path) -> None:
    script = """
        from strandline import EmbeddedUnavailableError, Memory
        memory = Memory.from_defaults()
        for _ in range(2):
            try:
                memory.put({"role": "user", "content": "hello"})
            except EmbeddedUnavailableError as error:
                print(error)
    """
    done = run(script, home, STRANDLINE_EMBEDDED="never")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == second
    assert "STRANDLINE_EMBEDDED=never" in first
    assert "STRANDLINE_DATABASE_URL" in first
    assert done.stderr == ""
    assert not home.exists()


def test_a_configured_database_starts_nothing(home: Path, database_url: str) -> None:
    """And consumes nothing: with a URL alone a process calls no model."""
    script = """
        import threading
        from strandline import Memory
        memory = Memory.from_defaults("trip", token_limit=500, token_flush_size=100)
        for number in range(60):
            memory.put({"role": "user", "content": f"My cousin number {number} lives in Husum."})
        print(memory.get().caught_up, [t.name for t in threading.enumerate() if "strandline-lane" in t.name])
    """
    done = run(script, home, STRANDLINE_DATABASE_URL=database_url)
    assert done.stdout == "False []\n", done.stderr
    assert done.stderr == ""
    assert not home.exists()
