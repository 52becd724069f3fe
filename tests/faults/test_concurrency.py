"""Many at once: processes that write one session, and one user whose hundreds of sessions flush together."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import IO

from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.processes import forking
from tests.support.workers.busy_workers import environment

# Is given a session and how many messages, says it is ready, puts when told to, and says which seqs it got.
WRITER = """
import json, sys
from strandline import Memory

url, name = sys.argv[1:]
while line := sys.stdin.readline():
    session, count = json.loads(line)
    memory = Memory.from_defaults(session, user_id="u", database_url=url, memory_blocks=["summary"],
                                  token_limit=100, token_flush_size=20)
    memory.get()
    print("ready", flush=True)
    sys.stdin.readline()
    seqs = [memory.put({"role": "user", "content": f"message {number} of {name}", "id": f"{name}:{number}"})
            for number in range(count)]
    print(json.dumps(seqs), flush=True)
"""


class Writers:
    """Processes that put into one session at once, as often as asked."""

    def __init__(self, processes: Sequence[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def put(self, session: str, count: int) -> dict[str, int]:
        """Each process puts ``count`` messages, all beginning together; the seq of each message by its id."""
        for process in self._processes:
            _tell(process.stdin, json.dumps([session, count]))
        assert {_hear(process.stdout) for process in self._processes} == {"ready"}
        for process in self._processes:
            _tell(process.stdin, "go")
        told = [json.loads(_hear(process.stdout)) for process in self._processes]
        return {
            f"p{writer}:{number}": seq for writer, seqs in enumerate(told) for number, seq in enumerate(seqs)
        }


@contextmanager
def writers(url: str, count: int) -> Iterator[Writers]:
    processes = [
        forking.Popen(
            [sys.executable, "-c", WRITER, url, f"p{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        yield Writers(processes)
    finally:
        for process in processes:
            process.communicate(timeout=200)
    assert [process.returncode for process in processes] == [0] * count


def _tell(stream: IO[str] | None, line: str) -> None:
    assert stream is not None
    stream.write(line + "\n")
    stream.flush()


def _hear(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


def check_delivered_once(url: str, session: str, seqs: dict[str, int]) -> None:
    """Every message is stored once under the seq its writer was told, and delivered by at most one event.

    The events' ranges are contiguous from the first message on.
    """
    stored = rows_of(
        url,
        "SELECT m.id, m.seq, count(e.event_id) FROM strandline.session s"
        " JOIN strandline.message m USING (shard_key, session_key)"
        " LEFT JOIN strandline.flush_event e ON e.shard_key = m.shard_key AND e.session_key = m.session_key"
        "   AND m.seq BETWEEN e.from_seq AND e.through_seq"
        " WHERE s.session_id = %s GROUP BY 1, 2 ORDER BY 2",
        session,
    )
    assert {id_: seq for id_, seq, _events in stored} == seqs
    assert [seq for _id, seq, _events in stored] == list(range(1, len(seqs) + 1))
    ((flushed_through, window_tokens, kept_tokens),) = rows_of(
        url,
        "SELECT s.flushed_through, s.window_tokens, (SELECT sum(m.tokens) FROM strandline.message m"
        "   WHERE m.session_key = s.session_key AND m.seq >= s.window_from)"
        " FROM strandline.session s WHERE s.session_id = %s",
        session,
    )
    assert window_tokens == kept_tokens, "each message was counted once"
    assert flushed_through > len(seqs) / 2
    assert [events for _id, _seq, events in stored] == [
        1 if seq <= flushed_through else 0 for _id, seq, _events in stored
    ]


def test_twenty_times_two_processes_lose_and_double_nothing(database: Database, database_url: str) -> None:
    """Each time they also race to make the session, and flush it at every few messages."""
    with writers(database_url, 2) as pair:
        for trial in range(20):
            seqs = pair.put(f"trial-{trial}", 20)
            check_delivered_once(database_url, f"trial-{trial}", seqs)
    report = verify(database, deep=True)
    assert (report.sessions, report.messages, report.violations) == (20, 800, ())


def test_eight_processes_lose_and_double_nothing(database: Database, database_url: str) -> None:
    with writers(database_url, 8) as crowd:
        seqs = crowd.put("crowded", 60)
    check_delivered_once(database_url, "crowded", seqs)
    for writer in range(8):
        own = [seqs[f"p{writer}:{number}"] for number in range(60)]
        assert own == sorted(own), "each writer's messages stand in its own order"
    assert verify(database, deep=True).violations == ()


def test_a_user_with_hundreds_of_sessions_keeps_up(rig: Rig) -> None:
    """One merge folds many extractions: sessions do not queue for their owner's one lane."""
    sessions = 300

    def talk(number: int) -> None:
        memory = rig.memory(
            f"s{number}", user_id="sailor", memory_blocks=["facts"], broker_url=rig.broker_url
        )
        # Ten different things, so that each is said in many sessions.
        memory.put({"role": "user", "content": f"I have moored in harbour number {number % 10}."})
        memory.flush(all=True)

    for _ in range(2):
        rig.start_worker("--queues", "extract,merge", **environment(rig.model))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(talk, range(sessions)))
    wait_until(lambda: nothing_due(rig.url), timeout=90, what="everything to be merged")
    calls = dict(rows_of(rig.url, "SELECT stage, count(*) FROM strandline.model_call GROUP BY 1"))
    assert calls["extract"] == sessions
    assert calls["merge"] < sessions / 4
    facts = rows_of(
        rig.url,
        "SELECT f.text, count(DISTINCT r.session_key) FROM strandline.fact f"
        " JOIN strandline.fact_revision r USING (shard_key, generation_id, fact_id) WHERE f.live GROUP BY 1",
    )
    assert sorted(sources for _text, sources in facts) == [sessions // 10] * 10
    assert rows_of(rig.url, DEADLOCKS) == [(0,)]
    assert verify(rig.database, deep=True).violations == ()


DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
