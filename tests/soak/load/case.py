"""A steady load with reads: two processes that put and read, a worker with everything on, two processors."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from strandline.administration.status import read_status
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.settings import load_settings
from tests.conftest import PATIENCE, wait_until
from tests.soak.load.feed import Outcome
from tests.soak.measuring.ground import ROOT, Ground
from tests.soak.measuring.readings import Reading
from tests.soak.measuring.timing import seconds_of
from tests.support.processes import forking

FEEDS = ("a", "b")
# Messages a second that each of them puts.
RATE = 120.0
# Of each of them; a session gets 120 messages however short the run is, and flushes most of them.
SESSIONS = 150
SHORT_SESSIONS = 30
SECONDS_EACH = 1.0
LOOK_SECONDS = 2.0
END_SECONDS = 60.0
DRAINED_SECONDS = 60.0
HELD = 0.97


def run(ground: Ground) -> Iterator[Reading]:
    """240 puts and 120 default reads a second into 300 sessions for 150 s, everything derived meanwhile."""
    yield from _measure(ground, SESSIONS)


def run_short(ground: Ground) -> Iterator[Reading]:
    """240 puts and 120 default reads a second into 60 sessions for 30 s, everything derived meanwhile."""
    yield from _measure(ground, SHORT_SESSIONS)


def _measure(ground: Ground, sessions: int) -> Iterator[Reading]:
    model = ground.model()
    environment = {
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": "key",
        "STRANDLINE_EMBEDDING_BACKEND": "local",
    }
    worker = ground.worker(**environment)
    outcomes, lag = _feed(ground, environment, sessions)
    wanted = RATE * len(FEEDS)
    puts = sum(one["puts_per_second"] for one in outcomes)
    failures = [one for outcome in outcomes for one in outcome["failed"]]
    for failure in failures[:3]:
        print(failure)
    yield Reading(f"puts a second, of {wanted:g} wanted", puts, HELD * wanted, "a second", at_least=True)
    yield Reading("p99 of puts", max(one["put_p99_ms"] for one in outcomes), 150, "ms")
    yield Reading("p99 of default reads", max(one["read_p99_ms"] for one in outcomes), 200, "ms")
    yield Reading("puts and reads that failed", len(failures), 0, "calls")
    yield Reading("the lag of a pipeline, at most", lag, 10.0)
    patience = 2 * DRAINED_SECONDS / PATIENCE
    drained = seconds_of(lambda: wait_until(ground.nothing_due, timeout=patience, what="the backlog's end"))
    worker.end()
    yield Reading("everything is derived after the last put", drained, DRAINED_SECONDS)
    events = ground.rows("SELECT count(*) FROM strandline.flush_event")[0][0]
    wanted_events = sessions * len(FEEDS)
    yield Reading("events that were derived", events, wanted_events, "events", at_least=True)
    violations = verify(ground.database(), deep=True).violations
    yield Reading("violations that a verification finds", len(violations), 0, "findings")


def _feed(ground: Ground, environment: dict[str, str], sessions: int) -> tuple[Sequence[Outcome], float]:
    """What came of the feeds, and the greatest lag that was seen meanwhile."""
    database, settings, lag = ground.database(), load_settings(database_url=ground.database_url), 0.0
    given = Ground.plain_environment() | environment
    given |= {"STRANDLINE_DATABASE_URL": ground.database_url, "STRANDLINE_BROKER_URL": ground.broker_url}
    deadline = time.monotonic() + sessions * SECONDS_EACH + END_SECONDS
    with ExitStack() as ending:
        feeds = [ending.enter_context(_start_feed(name, sessions, given)) for name in FEEDS]
        for feed in feeds:
            ending.callback(feed.kill)
        while any(feed.poll() is None for feed in feeds):
            assert time.monotonic() < deadline, "the feeds did not end in time"
            lag = max(lag, *(one.lag_seconds for one in read_status(database, settings).pipelines))
            time.sleep(LOOK_SECONDS)
        return [json.loads(feed.communicate()[0]) for feed in feeds], lag


def _start_feed(name: str, sessions: int, environment: dict[str, str]) -> subprocess.Popen[str]:
    numbers = (sessions, RATE, sessions * SECONDS_EACH)
    command = [sys.executable, "-m", "tests.soak.load.feed", name, *map(str, numbers)]
    return forking.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
