"""A crowd of connections that ask for a context over and over, in a process of its own.

Beside the one whose time is measured, it would take turns of that one's event loop.
``python -m bench.crowd PORT KEY USER SESSION CONNECTIONS`` asks until its input ends, and then prints what it
saw as JSON: the seconds that each answer took, and how many of them were refusals.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.environment import NotMeasuredError
from bench.http_client import AsyncHttpConnection
from bench.processes import ServiceProcess

# As Retry-After says, or up to twice that: clients that come back all at the same moment are refused again.
RETRY_SECONDS = 1.0
READY = "ready"


@dataclass(slots=True)
class Crowd:
    """What came of it: seconds of each answer, and how many of these were refusals."""

    waits: list[float] = field(default_factory=list)
    refused: int = 0


@contextmanager
def crowd(running: ServiceProcess, user: str, session: str, connections: int) -> Iterator[Crowd]:
    """Let them ask meanwhile, from when as many answers have come; filled in at the end."""
    command = [sys.executable, "-m", "bench.crowd", str(running.port), running.key]
    command += [user, session, str(connections)]
    came = Crowd()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            if process.stdout.readline().strip() != READY:
                raise NotMeasuredError("the readers had no answer")
            yield came
            process.stdin.close()
            said = json.loads(process.stdout.readline())
            came.waits, came.refused = said["waits"], said["refused"]
        finally:
            process.kill()


async def _ask(port: int, key: str, user: str, session: str, connections: int) -> Crowd:
    came = Crowd()
    opened = [await AsyncHttpConnection.open(port, key, user) for _ in range(connections)]
    stop, answered = asyncio.Event(), 0

    async def ask(connection: AsyncHttpConnection) -> None:
        nonlocal answered
        while not stop.is_set():
            began = time.perf_counter()
            answer = await connection.post(f"/v1/sessions/{session}/context", {})
            came.waits.append(time.perf_counter() - began)
            answered += 1
            if answered == connections:
                print(READY, flush=True)
            if answer.status in (429, 503):
                came.refused += 1
                await asyncio.sleep(RETRY_SECONDS * random.uniform(1, 2))  # noqa: S311
            elif answer.status != 200:
                raise NotMeasuredError(f"the service answered {answer.status}: {answer.body!r}")

    asking = [asyncio.create_task(ask(one)) for one in opened]
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    stop.set()
    await asyncio.gather(*asking)
    for one in opened:
        one.close()
    return came


def main() -> None:
    """Ask until the input ends."""
    port, key, user, session, connections = sys.argv[1:]
    came = asyncio.run(_ask(int(port), key, user, session, int(connections)))
    print(json.dumps({"waits": came.waits, "refused": came.refused}), flush=True)


if __name__ == "__main__":
    main()
