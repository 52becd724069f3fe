"""The embedded Postgres is killed under those who use it: they have it again by themselves."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from strandline.deploy.embedded.processes import wait_gone
from strandline.deploy.embedded.stack import STATE_FILE
from tests.support.workers.script_process import run_script

COMMON = """
    import asyncio, json, os, signal, time
    from concurrent.futures import ThreadPoolExecutor
    from pathlib import Path
    from strandline import DatabaseUnavailableError, Memory
    from strandline.deploy.embedded.processes import wait_gone

    def server(killed=()):
        # What is announced, once it is another one: connections may be there a moment before that.
        while True:
            announced = Path(os.environ["STRANDLINE_HOME"], "embedded.json").read_text()
            if (pid := json.loads(announced)["database_pid"]) not in killed:
                return pid
            time.sleep(0.02)

    def kill_server(before=()):
        # Until its processes have noticed, they may serve one statement more, and nobody start it again.
        killed = server(before)
        serving = Path(f"/proc/{killed}/task/{killed}/children").read_text().split()
        os.kill(killed, signal.SIGKILL)
        assert all(wait_gone(int(pid), timeout_seconds=60) for pid in serving)
        return killed

    def until_done(do, *arguments):
        # As an application does that repeats what the error says may be repeated.
        while True:
            try:
                return do(*arguments)
            except DatabaseUnavailableError:
                time.sleep(0.05)

    def said(number):
        return {"role": "user", "content": f"message {number}", "id": f"message {number}"}

    memory = Memory.from_defaults("chat", user_id="annabel", memory_blocks=[])
"""

SCRIPT = """
    memory.put(said(0))
    killed = [kill_server()]
    until_done(memory.put, said(1))
    killed.append(kill_server(killed))
    texts = until_done(lambda: [message.content for message in memory.get_all()])
    print(json.dumps([server(killed), texts]))
"""

MANY_AT_ONCE = """
    memory.put(said(0))
    with ThreadPoolExecutor(8) as threads:
        puts = [threads.submit(until_done, memory.put, said(number)) for number in range(1, 200)]
        killed = [kill_server()]
        for put in puts:
            put.result()
    print(json.dumps([server(killed), sorted(message.content for message in memory.get_all())]))
"""

ON_AN_EVENT_LOOP = """
    async def main():
        await memory.aput(said(0))
        killed = [kill_server()]
        while True:
            try:
                await memory.aput(said(1))
                break
            except DatabaseUnavailableError:
                await asyncio.sleep(0.05)
        found = [server(killed), [message.content for message in await memory.aget_all()]]
        await memory.aclose()
        return found

    print(json.dumps(asyncio.run(main())))
"""

IN_TWO_PROCESSES = """
    memory.put(said(0))
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        memory.get()  # so that it is a user of the server as well
        os.write(tell, b".")
        while not until_done(lambda: any(message.content == "message 1" for message in memory.get_all())):
            time.sleep(0.02)
        until_done(memory.put, said(2))
        memory.close()
        os._exit(0)
    os.read(told, 1)
    killed = [kill_server()]
    until_done(memory.put, said(1))
    assert os.waitpid(child, 0)[1] == 0
    texts = until_done(lambda: [message.content for message in memory.get_all()])
    print(json.dumps([server(killed), texts]))
"""

CONSUMING = """
    memory = Memory.from_defaults("consumed", user_id="annabel")
    memory.put(said(0))
    killed = [kill_server()]
    until_done(memory.put, said(1))
    until_done(memory.flush)
    while not until_done(lambda: memory.get(wait_for=2, timeout=5).caught_up):
        pass
    print(json.dumps([server(killed), [message.content for message in memory.get_all()]]))
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the script has its embedded Postgres."""
    monkeypatch.setenv("STRANDLINE_EMBEDDED", "auto")
    return Path(os.environ["STRANDLINE_HOME"])


@pytest.mark.parametrize(
    ("script", "messages"),
    [
        pytest.param(SCRIPT, 2, id="a script, twice"),
        pytest.param(MANY_AT_ONCE, 200, id="eight threads"),
        pytest.param(ON_AN_EVENT_LOOP, 2, id="an event loop"),
        pytest.param(IN_TWO_PROCESSES, 3, id="two processes"),
        pytest.param(CONSUMING, 2, id="threads that consume"),
    ],
)
def test_users_of_a_killed_embedded_postgres_start_it_again(home: Path, script: str, messages: int) -> None:
    """Nothing that was accepted is lost, and the server still ends with its last user."""
    server, texts = json.loads(run_script(COMMON + script).splitlines()[-1])
    assert sorted(texts) == sorted(f"message {number}" for number in range(messages))
    assert wait_gone(server, timeout_seconds=60)
    assert not (home / STATE_FILE).exists()


CLOSED = """
    memory.put(said(0))
    killed = kill_server()
    memory.close()
    print(json.dumps([killed, Path(os.environ["STRANDLINE_HOME"], "embedded.json").exists()]))
"""


def test_a_killed_embedded_postgres_is_not_started_again_by_who_has_closed(home: Path) -> None:
    killed, announced = json.loads(run_script(COMMON + CLOSED).splitlines()[-1])
    assert not announced
    assert wait_gone(killed, timeout_seconds=60)


CONNECTING = """
    from strandline import ConfigurationError, replay

    memory.put(said(0))
    database = replay.connect()
    found = replay.replays(database)
    database.close()
    memory.close()
    try:
        replay.connect()
    except ConfigurationError as error:
        print(json.dumps([found, str(error)]))
"""


@pytest.mark.usefixtures("home")
def test_replays_and_retention_find_the_postgres_that_a_memory_uses() -> None:
    found, refusal = json.loads(run_script(COMMON + CONNECTING).splitlines()[-1])
    assert found == []
    assert refusal == (
        "No database is configured, and no embedded one runs: set STRANDLINE_DATABASE_URL,"
        " or open a Memory first."
    )
