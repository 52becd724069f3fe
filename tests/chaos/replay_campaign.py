"""A replay of everything, beside live traffic and with workers killed: what ``make`` does not run in full.

The embedder goes from the multilingual to the local one (or from 256 to 384 dimensions of a stand-in), and
the facts' model and prompt are others.  A thread reads all the time, another asks the questions of the sample
conversation; in the end everything is derived from scratch in a copy of the database, and compared.

    python -m tests.chaos.replay_campaign --sessions 200 --kills 6 --rate 50
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg

from strandline import Memory
from strandline.pipelines.facts.edits import apply_fact_events
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.migrate import migrate
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.conversation.read import ServingGeneration
from strandline.schemas.settings import Settings, load_settings
from strandline.wiring.assembly import prepare_stages
from tests.chaos.command import run, servers
from tests.conftest import nothing_due, rows_of, wait_until
from tests.support.processes import forking
from tests.support.replay_conversations import Talk, talks
from tests.support.servers.model_server import ModelServer, RecordedRequest, answer_to
from tests.support.stored import flush_events
from tests.support.workers.draining import drain_everything

SAMPLES = Path(__file__).resolve().parent.parent.parent / "strandline" / "samples"
PROMPT = "Find what is worth keeping, in the manner of the second prompt."
MARK = "noted: "
FLUSHED_EACH = 5
SAMPLE = "the sample"
READ_PAUSE_SECONDS = 0.05
KILL_EVERY_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Options:
    """How large a campaign is; ``latency`` is the model server's, in seconds.

    Without ``baseline_seconds`` nothing is measured to compare the lag of live traffic with.
    ``rate``: live messages a second.  With ``local`` the embedders are the two that ship.
    With ``await_kill`` the new prompt is not answered before a worker was killed: no replay is too quick.
    """

    sessions: int = 200
    kills: int = 6
    workers: int = 2
    live_sessions: int = 4
    baseline_seconds: float = 10.0
    latency: float = 0.02
    rate: float = 50.0
    real: bool = True
    local: bool = True
    await_kill: bool = False


@dataclass
class Findings:
    """What came out; ``wrong`` are reads that saw no memory, half of it, or two generations.

    ``recall_…``: R@10 of the sample's questions, in per cent: before, the lowest of the rounds during the
    replay, and after it.
    """

    events: int = 0
    reads: int = 0
    live_messages: int = 0
    recall_before: float = 0.0
    recall_lowest: float = 100.0
    recall_after: float = 0.0
    recall_rounds: int = 0
    wrong: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    differing: dict[str, int] = field(default_factory=dict)
    replay_seconds: float = 0.0
    live_lag_before: float = 0.0
    live_lag_during: float = 0.0
    kills: int = 0


class Campaign:
    """One run on separate servers."""

    def __init__(
        self, options: Options, database_url: str, broker_url: str, server: ModelServer, prompts: Path
    ) -> None:
        self.options = options
        self.url = database_url
        self.broker_url = broker_url
        self.server = server
        self.found = Findings()
        self.talks = talks(options.sessions, real=options.real)
        self._stop = threading.Event()
        self._killed = threading.Event()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._folder = prompts
        prompts.mkdir()
        (self._folder / "extract.md").write_text(PROMPT)
        server.behave(latency=options.latency, responder=self._respond)

    def environment(self, *, new: bool) -> dict[str, str]:
        given = {
            "STRANDLINE_DATABASE_URL": self.url,
            "STRANDLINE_BROKER_URL": self.broker_url,
            "OPENAI_BASE_URL": self.server.base_url,
            "STRANDLINE_TEXT_BACKEND": "openai",
            "STRANDLINE_FACTS_MODEL": "the-second" if new else "the-first",
            "STRANDLINE_RETRY_BASE_SECONDS": "0.1",
            "STRANDLINE_MAX_FACTS": "0",
        }
        if self.options.local:
            given["STRANDLINE_EMBEDDING_BACKEND"] = "local" if new else "local-multilingual"
        else:
            given["STRANDLINE_EMBEDDING_BACKEND"] = "openai"
            given["STRANDLINE_EMBEDDING_MODEL"] = "text-embedding-3-small"
            given["STRANDLINE_EMBEDDING_DIMENSIONS"] = "384" if new else "256"
        return given | ({"STRANDLINE_PROMPTS_DIR": str(self._folder)} if new else {})

    def settings(self, url: str, *, new: bool) -> Settings:
        names = {
            name.removeprefix("STRANDLINE_").lower(): value
            for name, value in self.environment(new=new).items()
        }
        base_url = names.pop("openai_base_url")
        return load_settings(**(names | {"database_url": url, "openai_base_url": base_url}))

    def run(self) -> Findings:
        with self._running_workers(), contextlib.ExitStack() as stack:
            memories = [self._say(talk) for talk in self.talks]
            sample = self._say(Talk(SAMPLE, SAMPLE, sample_messages()))
            stack.callback(sample.close)
            for memory in memories:
                stack.callback(memory.close)
            self._settled("the history")
            self._edit(memories[0])
            known = {memory.session_id: self._facts(memory) for memory in memories}
            if self.options.baseline_seconds:
                self.found.live_lag_before = self._lag_without_replay(memories, known)
            self.found.recall_before = self._recall(sample)
            self._replay_beside_traffic(memories, known, sample)
            self._settled("the replay")
            self.found.recall_after = self._recall(sample)
            if self.options.local and self.found.recall_lowest < self.found.recall_before:
                self.found.wrong.append(f"R@10 fell to {self.found.recall_lowest} during the replay")
        self._judge()
        return self.found

    def _say(self, talk: Talk) -> Memory:
        memory = Memory.from_defaults(
            talk.session_id,
            user_id=talk.user_id,
            database_url=self.url,
            token_limit=900,
            token_flush_size=300,
        )
        memory.put_messages(list(talk.messages))
        memory.flush(all=True)
        return memory

    def _edit(self, memory: Memory) -> None:
        """A person deletes one fact and corrects another."""
        first, second = memory.facts.list(limit=2)
        memory.facts.delete(first.fact_id)
        memory.facts.replace(second.fact_id, f"{MARK}as its user says")

    def _facts(self, memory: Memory) -> int:
        return memory.facts.list(limit=1).total

    def _settled(self, what: str) -> None:
        wait_until(lambda: nothing_due(self.url), timeout=600, what=what)

    def _replay_beside_traffic(self, memories: list[Memory], known: dict[str, int], sample: Memory) -> None:
        began_at = rows_of(self.url, "SELECT clock_timestamp()")[0][0]
        threads = self._disturbances(memories, known)
        threads.append(threading.Thread(target=self._ask_on, args=(sample,)))
        threads[-1].start()
        began = time.monotonic()
        try:
            for pipeline in ("facts", "vectors"):
                forking.run(
                    [sys.executable, "-m", "strandline", "replay", "--new", "--pipeline", pipeline],
                    env={**os.environ, **self.environment(new=True)},
                    check=True,
                    timeout=900,
                )
        finally:
            self.found.replay_seconds = round(time.monotonic() - began, 1)
            self._stop.set()
            for thread in threads:
                thread.join()
        self.found.live_lag_during = self._lag_since(began_at)

    def _read_on(self, memories: list[Memory], known: dict[str, int]) -> None:
        chance = random.Random(1)  # noqa: S311
        while not self._stop.wait(READ_PAUSE_SECONDS):
            memory = chance.choice(memories)
            facts = memory.facts.list(limit=1000)
            derived = [f.text for f in facts if f.revisions and f.revisions[-1].fact_event is None]
            marked = sum(text.startswith(MARK) for text in derived)
            if len(facts) < known[memory.session_id]:
                self.found.wrong.append(
                    f"{memory.session_id}: {len(facts)} of {known[memory.session_id]} facts"
                )
            if marked not in (0, len(derived)):
                self.found.wrong.append(f"{memory.session_id}: {marked} of {len(derived)} facts are new ones")
            context = memory.get("what happened?")
            if known[memory.session_id] and not any("<memory>" in m.text for m in context):
                self.found.wrong.append(f"{memory.session_id}: no memory")
            self.found.reads += 1

    def _ask_on(self, sample: Memory) -> None:
        while not self._stop.is_set():
            self.found.recall_lowest = min(self.found.recall_lowest, self._recall(sample))
            self.found.recall_rounds += 1

    @staticmethod
    def _recall(sample: Memory) -> float:
        """The share of the messages with evidence among ten hits, over all questions."""
        shares = []
        for question in json.loads((SAMPLES / "conversation.qa.json").read_text(encoding="utf-8")):
            found = {hit.message.id for hit in sample.search(question["question"], limit=10)}
            wanted = set(question["evidence"])
            shares.append(len(wanted & found) / len(wanted))
        return round(100 * statistics.mean(shares), 1)

    def _live(self) -> None:
        number = 0
        memories = [
            Memory.from_defaults(
                f"live-{n}", user_id=f"live-{n}", database_url=self.url, broker_url=self.broker_url
            )
            for n in range(self.options.live_sessions)
        ]
        began = time.monotonic()
        while not self._stop.wait(max(0.001, began + number / self.options.rate - time.monotonic())):
            number += 1
            memory = memories[number // FLUSHED_EACH % len(memories)]
            memory.put({"role": "user", "content": f"live message {number} of {uuid4().hex}"})
            if number % FLUSHED_EACH == 0:
                memory.flush(all=True)
        self.found.live_messages += number
        for memory in memories:
            memory.close()

    def _lag_without_replay(self, memories: list[Memory], known: dict[str, int]) -> float:
        """The same traffic, reads and kills, with nothing to replay."""
        began_at = rows_of(self.url, "SELECT clock_timestamp()")[0][0]
        threads = self._disturbances(memories, known)
        time.sleep(max(self.options.baseline_seconds, KILL_EVERY_SECONDS * (self.options.kills + 1)))
        self._stop.set()
        for thread in threads:
            thread.join()
        self._stop.clear()
        self.found.kills = 0
        self._killed.clear()
        return self._lag_since(began_at)

    def _disturbances(self, memories: list[Memory], known: dict[str, int]) -> list[threading.Thread]:
        """Start the disturbances that go on all the time, with or without a replay; ``_stop`` ends them."""
        threads = [
            threading.Thread(target=self._read_on, args=(memories, known)),
            threading.Thread(target=self._live),
            threading.Thread(target=self._kill_now_and_then),
        ]
        for thread in threads:
            thread.start()
        return threads

    def _lag_since(self, began_at: object) -> float:
        """Seconds in the median from a live flush to the end of its first application in a last stage."""
        self._settled("live traffic")
        rows = rows_of(
            self.url,
            "SELECT extract(epoch FROM min(r.applied_at) - e.created_at)::float8"
            " FROM strandline.flush_event e JOIN strandline.session s USING (shard_key, session_key)"
            " JOIN strandline.receipt r ON r.shard_key = e.shard_key AND r.event_id = e.event_id"
            " WHERE s.session_id LIKE 'live-%%' AND r.stage IN ('merge', 'vectors') AND e.created_at >= %s"
            " GROUP BY e.event_id, e.created_at, r.stage",
            began_at,
        )
        return round(float(statistics.median(row[0] for row in rows)), 3) if rows else 0.0

    @contextlib.contextmanager
    def _running_workers(self) -> Iterator[None]:
        self._workers = [self._start_worker() for _ in range(self.options.workers)]
        try:
            yield
        finally:
            for worker in self._workers:
                worker.kill()
                worker.wait()

    def _start_worker(self) -> subprocess.Popen[bytes]:
        return forking.Popen(
            [sys.executable, "-m", "strandline", "worker"],
            env={**os.environ, **self.environment(new=False)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _kill_now_and_then(self) -> None:
        for kill in range(self.options.kills):
            if self._stop.wait(KILL_EVERY_SECONDS):
                return
            place = kill % len(self._workers)
            self._workers[place].kill()
            self._workers[place].wait()
            self._workers[place] = self._start_worker()
            self.found.kills += 1
            self._killed.set()

    def _respond(self, request: RecordedRequest) -> str | None:
        answer = answer_to_new_prompt(request)
        if answer is not None and self.options.await_kill:
            self._killed.wait(900)
        return answer

    def _judge(self) -> None:
        """Verify; and hold what serves against a derivation from scratch, in a copy of the database."""
        with self._opened(self.url, new=True) as database:
            self.found.violations = [v.sentence for v in verify(database, deep=True).violations]
        name = f"fresh_{uuid4().hex}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            (own,) = connection.execute("SELECT current_database()").fetchone() or ("",)
        server = self.url.replace(f"/{own}", "/postgres", 1)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE {name} TEMPLATE "{own}"')
        fresh = self.url.replace(f"/{own}", f"/{name}", 1)
        with psycopg.connect(fresh, autocommit=True) as connection:
            connection.execute(START_AFRESH)
        with self._opened(fresh, new=True) as database:
            settings = self.settings(fresh, new=True)
            prepare_stages(database, settings)
            with psycopg.connect(fresh, autocommit=True) as connection:
                connection.execute(FEED_AFRESH)
            self._redo_edits(database)
            # As a replay does it: all is extracted first, and merged in the order in which it was said.
            drain_everything(database, fresh, settings, ("extract", "summary", "vectors"))
            rows_of(fresh, IN_ORDER)
            drain_everything(database, fresh, settings)
        self.found.events = flush_events(fresh)
        for what, sql in COMPARED.items():
            self.found.differing[what] = len(set(rows_of(self.url, sql)) ^ set(rows_of(fresh, sql)))

    def _redo_edits(self, database: Database) -> None:
        rows = rows_of(self.url, "SELECT DISTINCT shard_key FROM strandline.fact_event")
        for (shard_key,) in rows:
            with database.transaction() as tx:
                (facts,) = tx.fetch(ServingGeneration(shard_key=shard_key, pipeline="facts"))
                tx.run(apply_fact_events(shard_key, facts.generation_id))

    @contextlib.contextmanager
    def _opened(self, url: str, *, new: bool) -> Iterator[Database]:
        database = Database.connect(ConnectionOptions.from_settings(url, self.settings(url, new=new)))
        try:
            yield database
        finally:
            database.close()


# What derivations wrote, all of it: the log and what people did stay.
START_AFRESH = """
TRUNCATE strandline.generation, strandline.scope_generation, strandline.replay, strandline.due,
    strandline.lane, strandline.batch, strandline.answer, strandline.model_call, strandline.receipt,
    strandline.dead_letter, strandline.fact_candidate, strandline.fact, strandline.fact_revision,
    strandline.condensation, strandline.block_state, strandline.chunk
"""
FEED_AFRESH = """
INSERT INTO strandline.due (shard_key, session_key, generation_id, stage, from_seq, through_seq, scope_key,
    event_id, incarnation, tokens, namespace, created_at)
SELECT e.shard_key, e.session_key, g.generation_id, g.entry_stage, e.from_seq, e.through_seq, e.session_key,
    e.event_id, e.incarnation, e.tokens, 'default', e.created_at
FROM strandline.flush_event e CROSS JOIN strandline.generation g
"""
IN_ORDER = """
UPDATE strandline.due d SET created_at = e.created_at FROM strandline.flush_event e
WHERE e.shard_key = d.shard_key AND e.event_id = d.event_id RETURNING 1
"""
COMPARED = {
    "facts": "SELECT f.shard_key, f.text, f.live FROM strandline.fact f JOIN strandline.generation g"
    " USING (generation_id) WHERE g.state = 'serving'",
    "sources": "SELECT r.shard_key, r.text, r.session_key, r.seqs::text FROM strandline.fact_revision r"
    " JOIN strandline.generation g USING (generation_id) WHERE g.state = 'serving' AND r.operation = 'add'"
    " AND r.fact_event IS NULL",
    "pieces": "SELECT c.shard_key, c.session_key, c.from_seq, c.piece, c.through_seq, c.lexemes::text,"
    " c.embedding::text FROM strandline.chunk c JOIN strandline.generation g USING (generation_id)"
    " WHERE g.state = 'serving'",
}


def sample_messages() -> tuple[dict[str, Any], ...]:
    """Of the conversation that ships with questions and the ids of their evidence."""
    lines = (SAMPLES / "conversation.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def answer_to_new_prompt(request: RecordedRequest) -> str | None:
    """Mark what the second prompt extracts, so that a reader sees which generation a fact belongs to."""
    messages = request.body.get("messages") or [{}]
    if messages[0].get("content") != PROMPT:
        return None
    answer = answer_to(str(messages[-1]["content"]))
    for fact in answer.get("facts", []):
        fact["text"] = MARK + fact["text"]
    return json.dumps(answer)


def campaign(options: Options) -> Findings:
    """Run one on separate servers, and take them down; its database is copied, so it has another name."""
    with servers(with_broker=True) as (server_url, broker_url, folder), ModelServer(keep=1) as server:
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE campaign")
        url = server_url.replace("/postgres?", "/campaign?")
        migrate(url, "strandline")
        running = Campaign(options, url, broker_url, server, folder / "prompts")
        with running._opened(url, new=False) as database:
            prepare_stages(database, running.settings(url, new=False))
        return running.run()


if __name__ == "__main__":
    sys.exit(run(Options(), campaign, __doc__))
