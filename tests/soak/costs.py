"""What single things cost on this machine: an import, objects, words, searches, a verification."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory

from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.text.lexemes import lexemes, to_tsvector_text
from strandline.schemas.queries.conversation.search import SearchChunks
from tests.soak.measuring.ground import ROOT, Ground
from tests.soak.measuring.readings import Reading
from tests.soak.measuring.timing import seconds_of
from tests.support.big_scope import fill_scope
from tests.support.many_sessions import fill

NEEDED = "import psycopg, psycopg_pool, pydantic_settings, tiktoken"
TIMED = "import time; began = time.perf_counter(); {}; print(time.perf_counter() - began)"
MEMORIES = """
import json, time
from strandline import Memory
Memory.from_defaults(session_id="first", user_id="maren")
began = time.perf_counter()
made = [Memory.from_defaults(session_id=f"session-{n}", user_id="maren") for n in range(1000)]
seconds = time.perf_counter() - began
settings = {f"setting_{n}": n for n in range(50)}
began = time.perf_counter()
copied = [json.loads(json.dumps(settings)) for _ in range(1000)]
print(seconds / (time.perf_counter() - began))
"""
TURN = "I went to the lake with my sister last Saturday and we watched {} birds on the water together."
TURNS = 2_000
SESSIONS = 200


def run(ground: Ground) -> Iterator[Reading]:
    """An import, a thousand memories, words of turns, searches of 10,000 messages, and a verification."""
    yield Reading("importing strandline, against what it cannot do without", _import_ratio(), 2.0, "x")
    made = min(_printed(MEMORIES) for _ in range(3))
    yield Reading("making a thousand memories, against writing and reading fifty settings", made, 2.5, "x")
    words = TURNS / seconds_of(_take_words)
    # 5,000 are wanted; a machine that does other things as well gets four times as long.
    yield Reading("short turns whose words are taken", words, 1_250, "a second", at_least=True)
    for with_facts in (False, True):
        yield _search(ground, with_facts=with_facts)
    yield _verification(ground)


def _import_ratio() -> float:
    """The best of five, as from the second time on: what was compiled is kept."""
    with TemporaryDirectory(prefix="soak-compiled-") as place:
        cached = {"PYTHONPYCACHEPREFIX": place, "PYTHONDONTWRITEBYTECODE": ""}
        pairs = [
            [_printed(TIMED.format(code), **cached) for code in ("import strandline", NEEDED)]
            for _ in range(6)
        ]
    return min(here / needed for here, needed in pairs[1:])


def _take_words() -> None:
    for number in range(TURNS):
        to_tsvector_text(lexemes(TURN.format(number)))


def _search(ground: Ground, *, with_facts: bool) -> Reading:
    """Without statistics, so that the planner expects a handful of rows."""
    ground.rows("DELETE FROM strandline.chunk RETURNING 1")
    ground.rows("DELETE FROM strandline.fact_revision RETURNING 1")
    ground.rows("DELETE FROM strandline.fact RETURNING 1")
    params = fill_scope(ground.database_url, with_facts=with_facts)
    database = ground.database()
    taken = median(seconds_of(partial(database.fetch, SearchChunks(**params))) for _ in range(9))
    beside = " with its facts" if with_facts else ""
    return Reading(f"a search in a scope of 10,000 messages{beside}, median", 1000 * taken, 150, "ms")


def _verification(ground: Ground) -> Reading:
    """A tenth of the million messages that may take a minute."""
    fill(ground.database_url, SESSIONS)
    return Reading("verifying 100,000 messages", seconds_of(partial(verify, ground.database())), 6.0)


def _printed(code: str, **environment: str) -> float:
    """Run the code in a fresh interpreter and read the number that it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=Ground.plain_environment() | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return float(done.stdout)
