"""One process of the load: it puts at a steady rate into its sessions, and reads for each user message.

``python -m tests.soak.load.feed NAME SESSIONS RATE SECONDS`` prints the outcome as one line of JSON.
Its environment has the settings: the database, the broker, the embedder.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from importlib import resources
from typing import TypedDict

from strandline import Memory
from tests.soak.measuring.timing import percentile

IN_FLIGHT = 64
# Connections are opened and models are loaded in them.
WARM_UP_SECONDS = 10.0
PAUSE_SECONDS = 0.005
RANK = 0.99


class Outcome(TypedDict):
    """Puts per second and 99th percentiles in ms, without the warm-up; and what failed, from the start."""

    puts_per_second: float
    put_p99_ms: float
    read_p99_ms: float
    failed: list[str]


class Feed:
    """Puts by turns a user's and an assistant's message into one session or another."""

    def __init__(self, name: str, sessions: int) -> None:
        self._name = name
        self._sessions = sessions
        self._dice = random.Random(name)  # noqa: S311
        self._texts = _texts()
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._counted_from = time.perf_counter() + WARM_UP_SECONDS
        self._puts: list[float] = []
        self._reads: list[float] = []
        self._failed: list[str] = []

    async def run(self, seconds: float, rate: float) -> Outcome:
        began, sent = time.perf_counter(), 0
        async with asyncio.TaskGroup() as turns:
            while (passed := time.perf_counter() - began) < seconds:
                if sent >= passed * rate:
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                await self._slots.acquire()
                turns.create_task(self._turn(sent))
                sent += 1
        return {
            "puts_per_second": len(self._puts) / (time.perf_counter() - self._counted_from),
            "put_p99_ms": 1000 * percentile(self._puts, RANK),
            "read_p99_ms": 1000 * percentile(self._reads, RANK),
            "failed": self._failed,
        }

    async def _turn(self, number: int) -> None:
        session_id = f"{self._name}-{self._dice.randrange(self._sessions)}"
        text = self._dice.choice(self._texts)
        role = "assistant" if number % 2 else "user"
        try:
            memory = Memory.from_defaults(
                session_id, user_id=session_id, token_limit=2_000, token_flush_size=400
            )
            began = time.perf_counter()
            await memory.aput({"role": role, "content": text})
            self._keep(self._puts, began)
            if role == "user":
                began = time.perf_counter()
                await memory.aget(text)
                self._keep(self._reads, began)
        except Exception as error:  # noqa: BLE001 - the outermost edge of a turn: the others go on
            self._failed.append(f"{type(error).__name__}: {error}")
        finally:
            self._slots.release()

    def _keep(self, seconds: list[float], began: float) -> None:
        now = time.perf_counter()
        if now >= self._counted_from:
            seconds.append(now - began)


def _texts() -> Sequence[str]:
    sample = resources.files("strandline") / "samples" / "conversation.jsonl"
    lines = map(json.loads, sample.read_text(encoding="utf-8").splitlines())
    spoken = [line for line in lines if line.get("role") in ("user", "assistant")]
    return [line["content"] for line in spoken if isinstance(line.get("content"), str) and line["content"]]


async def _main(name: str, sessions: str, rate: str, seconds: str) -> None:
    outcome = await Feed(name, int(sessions)).run(float(seconds), float(rate))
    print(json.dumps(outcome), flush=True)
    await Memory.from_defaults("end").aclose()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
