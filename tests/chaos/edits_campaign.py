"""Edits, resets and replays of many small owners, all at once, and looks at what is left: no clock decides.

Processes say things, flush, derive, correct, delete, clear and reset, on a few owners at a time so that they
meet; beside them new generations are derived, promoted, gone back from and pruned.  Each message and each
wording of a person holds a token that is like no other, so a look can tell which of them must not be there.

    python -m tests.chaos.edits_campaign --seed 1 --operations 200000
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing.process import BaseProcess
from typing import Any
from uuid import UUID

import psycopg

from strandline import Facts, Memory
from strandline.pipelines.engine.leases import LeaseTerms
from strandline.pipelines.generations.registry import Generation, kept_generations
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Replay, Selection, claim_replay, replays
from strandline.pipelines.replay.switching import prune, roll_back, serve_everybody
from strandline.schemas.errors import ReplayError, StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.queries.derived.replay import ReplayLanes
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import FACTS, STAGES, SUMMARY, VECTORS, Lane
from strandline.wiring.assembly import prepare_stages
from tests.chaos.command import run, servers
from tests.support.workers.draining import due_lanes
from tests.support.workers.hand_worker import HandWorker
from tests.support.workers.scripted_stages import ScriptedStages

PIPELINES = (FACTS, SUMMARY, VECTORS)
SESSIONS = 3
THINGS = ("boat", "flat", "cat", "tea")
KINDS = ("blue", "small", "old", "loud", "mine")
LIMITS: dict[str, Any] = {"token_limit": 400, "token_flush_size": 40}
TOKEN = re.compile(r"\b[kp]\d+n\d+\b")
OPERATIONS_PER_REPORT = 20
IDLE_SECONDS = 0.02
# No process sends heartbeats here: one that dies is a finding in itself.
# Nobody dies; the lease of a drain that failed, as one whose statement took too long, ends by its deadline.
TERMS = LeaseTerms(dead_after_seconds=1e6, deadline_seconds=60)
# Longer than any lane is put off after a failure.
POSTPONED_AT_MOST_SECONDS = 120.0

WEIGHTS: Mapping[str, float] = {
    "put": 48,
    "put_many": 3,
    "flush": 8,
    "pop": 3,
    "read": 3,
    "delete": 4,
    "replace": 2,
    "add": 2,
    "feedback": 1,
    "clear": 0.15,
    "reset": 0.4,
    "forget": 1.6,
    "drain": 24,
}


@dataclass(frozen=True, slots=True)
class Options:
    """How large a campaign is, and with which seed its processes draw what they do.

    Attributes:
        actors: processes that do operations; replays are in a thread beside them.
        owners: of whom ``hot`` are at work at a time.
    """

    seed: int = 1
    operations: int = 200_000
    actors: int = 3
    owners: int = 120
    hot: int = 5


@dataclass
class Findings:
    """What came out: ``wrong`` are sentences, of which there should be none."""

    seed: int
    operations: int = 0
    done: dict[str, int] = field(default_factory=dict)
    replays: dict[str, int] = field(default_factory=dict)
    looks: int = 0
    deleted_tokens: int = 0
    wrong: list[str] = field(default_factory=list)


class Shared:
    """The state that the processes of a campaign share."""

    def __init__(self, options: Options, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.options = options
        self.url = url
        self.count = context.Value("q", 0)
        self.stop = context.Event()
        # From an actor: ("deleted", owner, tokens), ("wrong", sentence), ("done", operations by name).
        self.told = context.Queue()

    def hot_owner(self, chance: random.Random) -> int:
        first: int = self.count.value // 300 * 2
        return (first + chance.randrange(self.options.hot)) % self.options.owners


def owner_key(owner: int) -> UUID:
    return identify_user("default", f"u{owner}").shard_key


class Actor:
    """One process's operations; it tells what people deleted, once they were told that it is gone."""

    def __init__(self, shared: Shared, number: int) -> None:
        self._shared = shared
        self._number = number
        self._chance = random.Random(f"{shared.options.seed}/{number}")  # noqa: S311
        self._made = 0
        self._done: Counter[str] = Counter()
        self._database = open_database(shared.url)
        self._looking = psycopg.connect(shared.url, autocommit=True)
        self._owners = sorted((owner_key(owner), owner) for owner in range(shared.options.owners))
        self._worker = HandWorker(self._database, ScriptedStages(), TERMS, budget=400)
        self._memories: dict[tuple[int, int], Memory] = {}
        self._act: Mapping[str, Callable[[], None]] = {name: getattr(self, f"_{name}") for name in WEIGHTS}

    def run(self) -> None:
        names, weights = list(WEIGHTS), list(WEIGHTS.values())
        logging.getLogger("strandline.engine").addHandler(_Told(self._shared))
        while not self._shared.stop.is_set():
            for name in self._chance.choices(names, weights, k=OPERATIONS_PER_REPORT):
                self._owner = self._shared.hot_owner(self._chance)
                self._try(name)
            with self._shared.count.get_lock():
                self._shared.count.value += OPERATIONS_PER_REPORT
                if self._shared.count.value >= self._shared.options.operations:
                    self._shared.stop.set()
        self._shared.told.put(("done", dict(self._done)))
        self._looking.close()
        self._database.close()

    def _try(self, name: str) -> None:
        try:
            self._act[name]()
        except StrandlineError as error:
            self._shared.told.put(("wrong", f"{name}: {type(error).__name__}: {error}"))
        self._done[name] += 1

    def _token(self, kind: str) -> str:
        self._made += 1
        return f"{kind}{self._number}n{self._made}"

    def _memory(self) -> Memory:
        place = self._owner, self._chance.randrange(SESSIONS)
        if place not in self._memories:
            owner, session = place
            self._memories[place] = Memory.from_defaults(
                f"s{owner}-{session}",
                user_id=f"u{owner}",
                database_url=self._shared.url,
                shared_scope="harbour" if session == 0 else None,
                **LIMITS,
            )
        return self._memories[place]

    def _facts(self) -> Facts:
        return Facts.for_owner(user_id=f"u{self._owner}", database_url=self._shared.url)

    def _message(self) -> dict[str, Any]:
        text = f"my {self._chance.choice(THINGS)} is {self._chance.choice(KINDS)}"
        # Some in the same words as others.
        text += f" {self._token('k')}" if self._chance.random() < 0.8 else ""
        return {"role": self._chance.choice(("user", "user", "assistant")), "content": text}

    def _put(self) -> None:
        self._memory().put(self._message())

    def _put_many(self) -> None:
        self._memory().put_messages([self._message() for _ in range(3)])

    def _flush(self) -> None:
        self._memory().flush(all=True)

    def _pop(self) -> None:
        """Half of what is popped was delivered, and is taken back by a correction."""
        if self._chance.random() < 0.5:
            self._memory().flush(all=True)
        self._memory().pop()

    def _read(self) -> None:
        self._facts().list(limit=5)

    def _any_fact(self) -> Any:
        found = self._facts().list(limit=30)
        return self._chance.choice(list(found)) if found else None

    def _delete(self) -> None:
        fact = self._any_fact()
        if fact is not None and self._facts().delete(fact.fact_id):
            self._tell_deleted(fact.text)

    def _replace(self) -> None:
        fact = self._any_fact()
        if fact is not None:
            wording = f"my {self._chance.choice(THINGS)} is {self._token('p')}"
            if self._facts().replace(fact.fact_id, wording) is not None:
                self._tell_deleted(fact.text)

    def _tell_deleted(self, text: str) -> None:
        self._shared.told.put(("deleted", self._owner, TOKEN.findall(text)))

    def _add(self) -> None:
        plain = f"my {self._chance.choice(THINGS)} is {self._chance.choice(KINDS)}"
        self._facts().add(plain if self._chance.random() < 0.3 else f"{plain} {self._token('p')}")

    def _feedback(self) -> None:
        fact = self._any_fact()
        if fact is not None:
            self._facts().feedback(fact.fact_id, self._chance.choice(("good", "bad")))

    def _clear(self) -> None:
        self._facts().clear()

    def _reset(self) -> None:
        self._memory().reset()

    def _forget(self) -> None:
        """Mostly of an owner whom a replay that is filling is just coming to."""
        if self._chance.random() < 0.7:
            for (position,) in self._looking.execute(FILLING).fetchall():
                coming = [owner for key, owner in self._owners if key > position][:2]
                self._owner = self._chance.choice(coming or [self._owner])
        self._memory().reset(derived=True)

    def _drain(self) -> None:
        """Drain a lane of an owner in use, or one of a generation that does not serve yet."""
        if self._chance.random() < 0.5:
            owners = [owner_key(self._shared.hot_owner(self._chance))]
            rows = self._looking.execute(DUE_OF_OWNERS, [owners]).fetchall()
        else:
            rows = self._database.fetch(lanes_from(UUID(int=self._chance.getrandbits(128)), limit=8))
        if rows:
            self._worker.drain(Lane(*self._chance.choice(rows)))


def lanes_from(owner: UUID, *, limit: int) -> ReplayLanes:
    return ReplayLanes(
        stages=list(STAGES),
        from_shard=owner,
        limit=limit,
        dead_after_seconds=TERMS.dead_after_seconds,
    )


DUE_OF_OWNERS = """
SELECT DISTINCT shard_key, scope_key, generation_id, stage FROM strandline.due WHERE shard_key = ANY (%s)
"""


FILLING = """
SELECT coalesce(r.position, '00000000-0000-0000-0000-000000000000') FROM strandline.replay r
JOIN strandline.generation g USING (generation_id)
WHERE r.kind = 'new' AND r.state = 'running' AND g.backfilled_through IS NOT NULL
"""


class _Told(logging.Handler):
    """Reports each error that the engine logs as a defect: here it is one."""

    def __init__(self, shared: Shared) -> None:
        super().__init__(logging.ERROR)
        self._shared = shared

    def emit(self, record: logging.LogRecord) -> None:
        given = record.__dict__
        said = f"{record.getMessage()}: {given.get('error')} at {given.get('at')}, {given.get('lane')}"
        self._shared.told.put(("wrong", said))


def act(shared: Shared, number: int) -> None:
    """Run one process of the campaign."""
    os.environ["STRANDLINE_EMBEDDED"] = "never"
    Actor(shared, number).run()


def open_database(url: str) -> Database:
    settings = settings_of(url)
    options = ConnectionOptions.from_settings(url, settings, pool_size=4)
    return Database.connect(options, sealed_content(settings))


def settings_of(url: str) -> Settings:
    return load_settings(database_url=url, text_backend="local", embedding_backend="local")


class Campaign:
    """One run on a separate database."""

    def __init__(self, options: Options, url: str) -> None:
        self.options = options
        self.found = Findings(options.seed)
        self._url = url
        self._chance = random.Random(f"{options.seed}/replays")  # noqa: S311
        self._shared = Shared(options, url)
        self._deleted: set[str] = set()
        self._replays: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._ended = 0

    def run(self) -> Findings:
        actors = [self.process(number) for number in range(1, self.options.actors + 1)]
        with contextlib.closing(open_database(self._url)) as database:
            prepare_stages(database, settings_of(self._url))
            for actor in actors:
                actor.start()
            while not self._shared.count.value and not self._shared.stop.wait(0.1):
                self._end_if_dead(actors)
            with self._deriving(database, self._stop()):
                self._replay_beside(database, actors)
            self._hear(until_ended=True)
            self._finish_replays(database)
            self._drain_all(database)
            self.look(database, "at the end")
        self.found.operations = self._shared.count.value
        self.found.done, self.found.replays = dict(self._done), dict(self._replays)
        self.found.deleted_tokens = len(self._deleted)
        return self.found

    def process(self, number: int) -> BaseProcess:
        """A process of the campaign, to be started."""
        context = multiprocessing.get_context("spawn")
        return context.Process(target=act, args=(self._shared, number), daemon=True)

    def _replay_beside(self, database: Database, actors: Sequence[BaseProcess]) -> None:
        while not self._shared.stop.is_set():
            self._end_if_dead(actors)
            try:
                self._replay(database)
            except StrandlineError as error:
                self._wrong(f"replay: {type(error).__name__}: {error}")
        for actor in actors:
            while actor.is_alive():
                self._hear()
                actor.join(0.2)

    def _finish_replays(self, database: Database) -> None:
        """Take up replays that were stopped in the middle and finish them, as ``replay --resume`` does.

        Until then their owners wait for their turn, and so does these owners' due work.
        """
        over = threading.Event()
        with self._deriving(database, over, live=True):
            for replay in replays(database, unfinished=True):
                taken = claim_replay(database, replay.replay_id)
                if taken.kind == "in_place":
                    replay_in_place(database, taken, settings_of(self._url), stop=threading.Event())
                else:
                    self._bring_on(database, taken, threading.Event())
                self._replays["finished"] += 1
            over.set()

    @contextlib.contextmanager
    def _deriving(self, database: Database, over: threading.Event, *, live: bool = False) -> Iterator[None]:
        """Until ``over``, what does not serve yet is derived beside the caller, so that replays get on."""
        working = threading.Thread(target=self._derive_on, args=(database, over, live))
        working.start()
        try:
            yield
        finally:
            if sys.exc_info()[0] is not None:
                over.set()
            working.join()

    def _derive_on(self, database: Database, over: threading.Event, live: bool) -> None:
        """``live``: the actors are gone, so their due work is done here as well: replays wait for it."""
        worker = HandWorker(database, ScriptedStages(), TERMS, budget=400)
        while not over.is_set():
            lanes = [Lane(*row) for row in database.fetch(lanes_from(UUID(int=0), limit=64))]
            lanes += due_lanes(self._url, list(worker.stages)) if live else []
            for lane in lanes:
                try:
                    worker.drain(lane)
                except StrandlineError as error:
                    self._wrong(f"derive: {type(error).__name__}: {error}")
            if not lanes:
                over.wait(IDLE_SECONDS)

    def _end_if_dead(self, actors: Sequence[BaseProcess]) -> None:
        if dead := [actor.exitcode for actor in actors if actor.exitcode]:
            self._wrong(f"actors ended with {dead}")
            self._shared.stop.set()

    def _replay(self, database: Database) -> None:
        kind = self._chance.choice(("new", "new", "held", "held", "in place"))
        pipeline = self._chance.choices(PIPELINES, (4, 1, 2))[0]
        self._replays[kind] += 1
        if kind == "in place":
            replay = begin_in_place(database, pipeline, Selection())
            replay_in_place(database, replay, settings_of(self._url), stop=self._stop())
        else:
            self._derive(database, pipeline, hold=kind == "held")
        self.look(database, f"after a replay ({kind}) of {pipeline}")
        self._prune(database, pipeline)

    def _derive(self, database: Database, pipeline: str, *, hold: bool) -> None:
        replay = begin_generation(database, pipeline, settings_of(self._url), force=True, hold=hold)
        progress = self._bring_on(database, replay, self._stop())
        if progress.phase == "held" and self._chance.random() < 0.7:
            self._promote(database, replay.generation_id)
        if progress.phase in ("done", "held") and self._chance.random() < 0.4:
            self.look(database, f"before going back in {pipeline}")
            with contextlib.suppress(ReplayError):
                roll_back(database, pipeline)
                self._replays["rolled back"] += 1

    def _bring_on(self, database: Database, replay: Replay, stop: threading.Event) -> Progress:
        while True:
            try:
                return derive_generation(database, replay, stop=stop)
            except ReplayError as error:
                # Said where owners lack what is neither due nor done: it goes on, as the sentence says.
                self._replays["resumed"] += 1
                if "--resume" not in str(error):
                    raise
                replay = claim_replay(database, replay.replay_id)

    def _promote(self, database: Database, generation_id: int) -> None:
        (chosen,) = (g for g in kept_generations(database) if g.generation_id == generation_id)
        serve_everybody(database, chosen)
        self._replays["promoted"] += 1

    def _prune(self, database: Database, pipeline: str) -> None:
        for generation in kept_generations(database):
            if generation.pipeline == pipeline and generation.state != "serving":
                self._prune_one(database, generation)

    def _prune_one(self, database: Database, generation: Generation) -> None:
        try:
            prune(database, generation.generation_id)
            self._replays["pruned"] += 1
        except ReplayError as error:
            self._replays[f"not pruned: {type(error).__name__}"] += 1

    def _stop(self) -> threading.Event:
        return self._shared.stop  # type: ignore[return-value]  # multiprocessing's, with the same methods

    def _hear(self, *, until_ended: bool = False) -> None:
        """Take what the actors have told so far."""
        while not self._shared.told.empty() or (until_ended and self._ended < self.options.actors):
            kind, *told = self._shared.told.get(timeout=60)
            if kind == "deleted":
                self._deleted.update(told[1])
            elif kind == "wrong":
                self._wrong(told[0])
            else:
                self._ended += 1
                self._done.update(told[0])

    def _drain_all(self, database: Database) -> None:
        worker = HandWorker(database, ScriptedStages(), TERMS)
        got_on = time.monotonic()
        while lanes := due_lanes(self._url):
            if any(worker.drain(lane) == "drained" for lane in lanes):
                got_on = time.monotonic()
            elif time.monotonic() - got_on > POSTPONED_AT_MOST_SECONDS:
                self._wrong(f"{len(lanes)} lanes have work that nobody can do: {lanes[:3]}")
                return
            else:
                time.sleep(0.1)  # a lane that failed beside an actor is put off for a while

    def look(self, database: Database, when: str) -> None:
        """Everything is as it must be, in one snapshot each: the tables, and what people asked for."""
        self._hear()
        self.found.looks += 1
        for violation in verify(database, deep=True).violations:
            self._wrong(f"{when}: {violation.kind}: {violation.sentence}")
        for sentence in gone_and_live(self._url, self._deleted):
            self._wrong(f"{when}: {sentence}")

    def _wrong(self, sentence: str) -> None:
        self.found.wrong.append(f"[{self._shared.count.value}] {sentence}")


def gone_and_live(url: str, deleted: set[str]) -> Iterator[str]:
    """Live facts, of any generation that is kept, that hold something deleted, cleared or forgotten."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        facts = connection.execute(LIVE).fetchall()
        messages = connection.execute(MESSAGES).fetchall()
        cleared: dict[UUID, datetime] = dict(connection.execute(CLEARED).fetchall())
    said = {token: (key, at) for key, at, text in messages for token in TOKEN.findall(text)}
    for shard_key, generation_id, state, text in facts:
        for token in TOKEN.findall(text):
            where = f"generation {generation_id} ({state}) of owner {shard_key}: {text!r}"
            if token in deleted:
                yield f"{token} was deleted, and is live in {where}"
            elif token.startswith("k") and token not in said:
                yield f"{token} was forgotten, and is live in {where}"
            elif token.startswith("k") and shard_key in cleared and said[token][1] <= cleared[shard_key]:
                yield f"{token} was cleared, and is live in {where}"


LIVE = """
SELECT f.shard_key, f.generation_id, g.state, f.text FROM strandline.fact f
JOIN strandline.generation g USING (generation_id) WHERE f.live AND g.state <> 'retired'
"""
MESSAGES = "SELECT shard_key, created_at, envelope->>'content' FROM strandline.message"
CLEARED = "SELECT shard_key, max(created_at) FROM strandline.fact_event WHERE kind = 'clear' GROUP BY 1"


def campaign(options: Options) -> Findings:
    """Run one on a separate server, and take the server down."""
    with servers() as (url, _broker_url, _folder):
        return Campaign(options, url).run()


if __name__ == "__main__":
    sys.exit(run(Options(), campaign, __doc__))
