"""Retention of many messages under load: puts keep their rate, and what leaves is in the archive."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import md5
from pathlib import Path
from statistics import median

from strandline import Message, Retention, retention
from strandline.pipelines.upkeep.archive import decode
from strandline.schemas.postgres.database import Database
from strandline.wiring.archives import open_archive
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading

# So many messages leave; another number for a machine that is shared.
MESSAGES = int(os.environ.get("STRANDLINE_SOAK_MESSAGES") or 1_000_000)
PER_SESSION = 1_000
MONTH = 30 * 86_400
LONG_AGO = datetime.now(UTC) - timedelta(days=40)
WRITERS = 4
ROUNDS = 5
PHASE_SECONDS = 6.0
TEXT = "I saw gull number {0} at the harbour, and wrote down what it did there all morning. " * 3
# Of each session's messages, in order: what was stored, as one digest.
STORED = (
    "SELECT s.session_id, md5(string_agg(m.seq || ' ' || m.envelope::text, E'\\n' ORDER BY m.seq))"
    " FROM strandline.message m JOIN strandline.session s USING (shard_key, session_key)"
    " WHERE s.session_id LIKE 'old %%' GROUP BY s.session_id"
)


def run(ground: Ground) -> Iterator[Reading]:
    """Puts beside the removal of a million messages, against puts alone; and what the archive holds then."""
    _fill(ground)
    stored = dict(ground.rows(STORED))
    folder = Path(tempfile.mkdtemp(prefix="strandline-archive-"))
    database = ground.database()
    retention.set_retention(database, Retention(max_age_seconds=MONTH, archive=f"file://{folder}"))
    alone: list[float] = []
    beside: list[float] = []
    seconds = 0.0
    with _writing(ground) as count:
        _rate(count, PHASE_SECONDS)  # warms up
        for _ in range(ROUNDS):
            alone.append(_rate(count, PHASE_SECONDS))
            began = time.monotonic()
            with _retaining(ground):
                _rate(count, 3.0)  # it starts
                beside.append(_rate(count, PHASE_SECONDS))
            seconds += time.monotonic() - began
    yield Reading(
        "rate of puts beside retention, against alone", median(beside) / median(alone), 0.8, "x", True
    )
    began = time.monotonic()
    with _retaining(ground, to_the_end=True):
        pass
    seconds += time.monotonic() - began
    yield Reading("messages that leave in a second", (MESSAGES - _left(ground)) / seconds, 100, "/s", True)
    yield Reading(f"of {MESSAGES:,} old messages are left", _left(ground), 0, "messages")
    wrong = sum(_archived(database, session) != digest for session, digest in stored.items())
    yield Reading(f"sessions of {len(stored):,} whose archive differs from what was stored", wrong, 0, "")
    shutil.rmtree(folder)


def _fill(ground: Ground) -> None:
    """Old messages, delivered, of sessions that feed no pipeline."""

    def fill(number: int) -> None:
        memory = ground.memory(f"old {number}", memory_blocks=[])
        messages = [
            Message(
                role="assistant" if n % 2 else "user",
                content=TEXT.format(n),
                id=f"m{n}",
                created_at=LONG_AGO + timedelta(seconds=n),
            )
            for n in range(PER_SESSION)
        ]
        memory.import_messages(messages)
        memory.flush(all=True)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(fill, range(MESSAGES // PER_SESSION)))


@contextmanager
def _writing(ground: Ground) -> Iterator[list[int]]:
    """Threads that put as fast as they can; each counts its own."""
    counts = [0] * WRITERS
    ended = threading.Event()

    def write(place: int) -> None:
        memory = ground.memory(f"new {place}", memory_blocks=[])
        while not ended.is_set():
            memory.put({"role": "user", "content": f"I saw {counts[place]} gulls."})
            counts[place] += 1

    threads = [threading.Thread(target=write, args=(place,), daemon=True) for place in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _rate(counts: list[int], seconds: float) -> float:
    """Puts in a second, over so long."""
    first, began = sum(counts), time.monotonic()
    time.sleep(seconds)
    return (sum(counts) - first) / (time.monotonic() - began)


@contextmanager
def _retaining(ground: Ground, *, to_the_end: bool = False) -> Iterator[None]:
    """A process that removes, until it is told to stop; it then ends between two sessions."""
    environment = ground.plain_environment() | {"STRANDLINE_DATABASE_URL": ground.database_url}
    command = [
        sys.executable,
        "-m",
        "strandline",
        "retention",
        "run",
        "--json",
        *(["--at-once"] if to_the_end else []),
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
        if to_the_end and process.wait():
            raise RuntimeError("strandline retention run failed")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()


def _left(ground: Ground) -> int:
    ((left,),) = ground.rows(
        "SELECT count(*) FROM strandline.message m JOIN strandline.session s USING (shard_key, session_key)"
        " WHERE s.session_id LIKE 'old %%'"
    )
    return int(left)


def _archived(database: Database, session: str) -> str:
    """The digest of what the archive holds of a session."""
    lines: list[str] = []
    for one in retention.archived_ranges(database, session):
        if one.archive is not None and one.object_name is not None and one.object_digest is not None:
            content = open_archive(one.archive).read(one.object_name, one.object_digest)
            lines += [f"{row['seq']} {row['envelope']}" for row in decode(content)[1]]
    return md5("\n".join(lines).encode(), usedforsecurity=False).hexdigest()
