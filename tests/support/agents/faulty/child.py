"""A process that takes two turns with an agent: one as it should be, and one in which it is killed."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module

from tests.support.agents.faulty.driving import Fault, kill_process


async def take_turns(adapter: str, url: str, number: int, step: str) -> None:
    fault = Fault()
    driver = import_module(adapter).Faulty(fault, database_url=url)
    await driver.turn(f"turn {number}")
    print("acknowledged", flush=True)
    fault.arm(step, kill_process)
    await driver.turn(f"killed {number}")


if __name__ == "__main__":
    asyncio.run(take_turns(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
