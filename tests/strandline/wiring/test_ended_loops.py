"""Event loops that end, as those of ``asyncio.run`` for each task, leave no connections behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest

import strandline
from strandline import Memory
from tests.conftest import PATIENCE, MakeMemory, rows_of, wait_until
from tests.support.processes import forking
from tests.support.workers.script_process import GENEROUS_SECONDS, ROOT

LOOPS = 20

# Most applications end the tasks of a loop before they close it, as asyncio.run does; some do not.
SCRIPT = """
    import asyncio, sys
    from strandline import Memory

    memory = Memory.from_defaults("loops", database_url=sys.argv[1], memory_blocks=[])

    def put_bare():
        loop = asyncio.new_event_loop()
        loop.run_until_complete(memory.aput({"role": "user", "content": "Hello"}))
        loop.close()

    for _ in range(3):
        asyncio.run(memory.aput({"role": "user", "content": "Hello"}))
        put_bare()
    print(len(memory.get_all()))
"""


# A server that takes the connection and says nothing, so that the pool is connecting when the loop ends.
LEFT_CONNECTING = """
    import asyncio, socket
    from strandline import Memory

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"postgresql://nobody@127.0.0.1:{server.getsockname()[1]}/none"
        memory = Memory.from_defaults("loops", database_url=url, memory_blocks=[])

        async def leave_connecting():
            put = asyncio.create_task(memory.aput({"role": "user", "content": "Hello"}))
            connection, _ = await asyncio.get_running_loop().sock_accept(server)
            return connection, put

        connection, put = asyncio.run(leave_connecting())
        print("ended", put.cancelled())
        connection.close()
"""


@pytest.fixture(params=["", "true"], ids=["with borrowed internals", "public APIs only"])
def memory(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, make_memory: MakeMemory
) -> Memory:
    if request.param:
        monkeypatch.setenv("STRANDLINE_PUBLIC_APIS_ONLY", request.param)
    return make_memory(memory_blocks=[])


def put_in_loops(memory: Memory, loops: int = LOOPS) -> None:
    for number in range(loops):
        asyncio.run(memory.aput({"role": "user", "content": f"Message {number}"}))


def connections(database_url: str) -> set[int]:
    """The process ids of the server's ends."""
    rows = rows_of(
        database_url,
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )
    return {pid for (pid,) in rows}


def wait_for_connections(database_url: str, at_most: int) -> None:
    """Wait until the server has seen that the others are closed."""
    wait_until(lambda: len(connections(database_url)) <= at_most, timeout=PATIENCE, what="closed connections")


def test_ended_loops_leave_the_connections_of_the_last(memory: Memory, database_url: str) -> None:
    put_in_loops(memory)
    wait_for_connections(database_url, at_most=1)
    memory.close()
    wait_for_connections(database_url, at_most=0)


def test_one_call_closes_what_all_memories_opened(make_memory: MakeMemory, database_url: str) -> None:
    memories = [make_memory("a"), make_memory("b", broker_url="redis://127.0.0.1:1/0")]
    for memory in memories:
        memory.put({"role": "user", "content": "Hello"})
    strandline.close()
    wait_for_connections(database_url, at_most=0)

    async def put_and_close() -> None:
        for memory in memories:
            await memory.aput({"role": "user", "content": "Hello"})
        await strandline.aclose()

    asyncio.run(put_and_close())
    wait_for_connections(database_url, at_most=0)
    assert [len(memory.get_all()) for memory in memories] == [2, 2], "a later call opens them again"


def test_a_loop_ends_while_a_connection_is_being_made() -> None:
    code = textwrap.dedent(LEFT_CONNECTING)
    done = forking.run([sys.executable, "-c", code], capture_output=True, timeout=300, check=True)
    assert done.stdout == "ended True\n"


def test_loops_of_two_threads_leave_those_of_the_last(memory: Memory, database_url: str) -> None:
    threads = [threading.Thread(target=put_in_loops, args=(memory,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memory.get_all()) == 2 * LOOPS
    put_in_loops(memory, 1)
    wait_for_connections(database_url, at_most=2)  # one is that of the synchronous read


async def test_a_live_loop_keeps_its_connections(memory: Memory, database_url: str) -> None:
    await memory.aput({"role": "user", "content": "Before"})
    own = await asyncio.to_thread(connections, database_url)
    assert len(own) == 1
    await asyncio.to_thread(put_in_loops, memory, 3)
    await memory.aput({"role": "user", "content": "After"})
    assert own <= await asyncio.to_thread(connections, database_url)


def test_ended_loops_are_forgotten(memory: Memory) -> None:
    ended: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()

    async def put() -> None:
        ended.add(asyncio.get_running_loop())
        await memory.aput({"role": "user", "content": "Hello"})

    for _ in range(LOOPS):
        asyncio.run(put())
    gc.collect()
    assert len(ended) <= 1


def test_a_process_ends_without_complaints_of_closed_loops(database_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), database_url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GENEROUS_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr
    assert "Exception ignored" not in done.stderr
    assert "Event loop is closed" not in done.stderr
