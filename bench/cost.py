"""What 1,000 messages cost in model calls and tokens, by ``deliver``, with a stand-in for a model server.

In ``turn`` a turn comes each second, and those of the default delay share their calls.
In ``turn alone`` each is put when the one before has been derived, as where people take longer to write than
the delay and a model.  The stand-in finds a fact in each message of a user, and counts four characters as a
token.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.environment import Ground, prepared_ground
from strandline import Memory
from strandline.schemas.values.policy import Deliver
from tests.support.servers.model_server import ModelServer

ROLES = ("facts", "merge", "summary", "embedding")
_DUE = "SELECT count(*) FROM strandline.due"
_CALLS = """
SELECT model, count(*), sum(input_tokens)::bigint, sum(output_tokens)::bigint
FROM strandline.model_call GROUP BY model
"""


@dataclass(frozen=True, slots=True)
class Pace:
    """A conversation, how it is delivered, and the time between its turns; None: until all is derived."""

    name: str
    deliver: Deliver
    messages: int
    turn_seconds: float | None = None


PACES = (
    Pace("window", "window", 1_000),
    Pace("turn", "turn", 200, turn_seconds=1.0),
    Pace("turn alone", "turn", 200),
)


def main() -> int:
    """Print a table: for each ``deliver`` the calls and tokens of 1,000 messages, by role."""
    print(f"{'deliver':12}{'role':12}{'calls':>8}{'tokens in':>12}{'tokens out':>12}")
    with tempfile.TemporaryDirectory(prefix="strandline-bench-") as home, ModelServer() as model:
        os.environ |= {"OPENAI_BASE_URL": model.base_url, "STRANDLINE_EMBEDDING_DIMENSIONS": "256"}
        os.environ |= {f"STRANDLINE_{role.upper()}_MODEL": role for role in ROLES}
        with prepared_ground(Path(home)) as server:
            for pace in PACES:
                if pace.turn_seconds is None:  # what nothing joins waits in vain
                    os.environ["STRANDLINE_TURN_DELAY_SECONDS"] = "0"
                else:
                    os.environ.pop("STRANDLINE_TURN_DELAY_SECONDS", None)
                with server.fresh(registered=False) as ground:
                    _print(pace.name, _measure(ground, pace))
    return 0


def _measure(ground: Ground, pace: Pace) -> dict[str, tuple[int, int, int]]:
    """Calls, tokens in and tokens out of 1,000 messages, by role."""
    count = pace.messages
    with closing(
        Memory.from_defaults(
            "cost", user_id="ana", deliver=pace.deliver, database_url=ground.url, consume="background"
        )
    ) as memory:
        messages = ground.some_messages(count)
        for start in range(0, count, 2):
            memory.put_messages(messages[start : start + 2])
            if pace.turn_seconds is None:
                _await(ground)
            else:
                time.sleep(pace.turn_seconds)
        memory.flush(all=True)
        _await(ground)
    return {
        str(model): (int(n * 1_000 / count), int(sent * 1_000 / count), int(written * 1_000 / count))
        for model, n, sent, written in ground.rows(_CALLS)
    }


def _await(ground: Ground) -> None:
    while ground.rows(_DUE) != [(0,)]:
        time.sleep(0.02)


def _print(name: str, costs: dict[str, tuple[int, int, int]]) -> None:
    for role in ROLES:
        calls, sent, written = costs.get(role, (0, 0, 0))
        print(f"{name:12}{role:12}{calls:8,}{sent:12,}{written:12,}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
