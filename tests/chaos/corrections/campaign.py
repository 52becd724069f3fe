"""A campaign from beginning to end: converse and correct, kill, replay meanwhile, settle, judge."""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass, field

from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.pipelines.replay.records import Replay, Selection, claim_replay
from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from strandline.wiring.assembly import prepare_stages
from tests.chaos.command import servers
from tests.chaos.corrections import blocks
from tests.chaos.corrections.actor import Actor, Scene, log_start
from tests.chaos.corrections.judge import (
    corrections_twice,
    differing,
    stuck,
    wrong_facts,
    wrong_filters,
    wrong_logs,
)
from tests.chaos.corrections.killed_workers import KilledWorkers
from tests.chaos.corrections.readers import Reader
from tests.conftest import nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer
from tests.support.workers.busy_workers import QUICK_TAKE_OVER, environment

PIPELINES = (FACTS, SUMMARY, VECTORS, *blocks.NAMES)
SETTLE_SECONDS = 60.0
LOOKS_AT_WORK = 5


@dataclass(frozen=True, slots=True)
class Options:
    """How large a campaign is, and with which seed its threads draw what they do.

    Attributes:
        corrections: of all kinds together, until it ends.
        corrections_per_kill: a worker that dies whenever it happens to be lives for so many, about.
        kill_percent: of the corrections, how many are begun by a process that is killed in the middle.
        looks: how often everything is looked at meanwhile, while nothing is corrected.
        replays: how many pipelines are replayed in place meanwhile, and derived by a new generation.
    """

    seed: int = 1
    corrections: int = 500
    users: int = 3
    sessions: int = 3
    actors: int = 4
    readers: int = 2
    workers: int = 2
    corrections_per_kill: int = 25
    kill_percent: int = 8
    replays: int = len(PIPELINES)
    looks: int = 8


@dataclass
class Findings:
    """What came out: ``wrong`` are sentences, of which there should be none."""

    seed: int
    corrections: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)
    worker_kills: dict[str, int] = field(default_factory=dict)
    producer_kills: dict[str, int] = field(default_factory=dict)
    replays: list[str] = field(default_factory=list)
    sessions: int = 0
    messages: int = 0
    reads: int = 0
    verified: int = 0
    applied: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Campaign:
    """One run on a separate database and broker."""

    def __init__(self, options: Options, url: str, broker_url: str, server: ModelServer) -> None:
        self.options = options
        self.found = Findings(options.seed)
        self._url = url
        self._environment = environment(server, **QUICK_TAKE_OVER, STRANDLINE_BLOCKS=blocks.SETTING)
        share = options.kill_percent / 100
        self.scene = Scene(url, broker_url, options.corrections, share)
        self._resets = self._chance("resets")
        self._ended = threading.Event()
        self._workers = KilledWorkers(
            url,
            broker_url,
            self._environment,
            workers=options.workers,
            chance=self._chance("kills"),
            progress=self.scene.progress,
            corrections_per_kill=options.corrections_per_kill,
        )

    def run(self) -> Findings:
        """Run it; processes and threads are gone when it returns or raises."""
        settings = self._settings()
        database = Database.connect(ConnectionOptions.from_settings(self._url, settings))
        # Before anything is derived: a fork, too, makes a generation one that is in use.
        prepare_stages(database, settings)
        self._open_sessions()
        actors = [Actor(self.scene, self._chance(f"actor {n}")) for n in range(self.options.actors)]
        readers = [
            Reader(self.scene.book, self._chance(f"reader {n}"), self._ended, self.scene.wrong.append)
            for n in range(self.options.readers)
        ]
        replaying = threading.Thread(target=self._replay, args=(database, settings), name="replays")
        try:
            self._workers.start()
            for thread in [one.thread for one in actors] + [one.thread for one in readers]:
                thread.start()
            if self.options.replays:
                replaying.start()
            self._look_on(database)
            for actor in actors:
                actor.thread.join()
            if self.options.replays:
                replaying.join()
            self._workers.end_kills()
            self._judge(database)
            self._ended.set()
            for reader in readers:
                reader.thread.join()
        finally:
            self.scene.over.set()
            self._ended.set()
            self._workers.stop()
            database.close()
            for session in self.scene.book.sessions.values():
                session.memory.close()
        self._report(sum(reader.reads for reader in readers))
        return self.found

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.options.seed}/{name}")  # noqa: S311

    def _settings(self) -> Settings:
        names = {name.removeprefix("STRANDLINE_").lower(): value for name, value in self._environment.items()}
        return load_settings(**names | {"database_url": self._url})

    def _open_sessions(self) -> None:
        """The sessions of the users; one delivers by turns, one begins with a head, one has no user."""
        for user in range(self.options.users):
            for number in range(self.options.sessions):
                deliver = "turn" if number == 1 else "window"
                session = self.scene.open_session(f"u{user}", name=f"u{user}-{number}", deliver=deliver)
                self.scene.book.add(session)
                if number == 2:
                    seqs = session.memory.put_messages([{"role": "system", "content": "be brief"}])
                    self.scene.book.place(session, [(seqs[0], "be brief")])
        self.scene.book.add(self.scene.open_session(None, name="alone"))

    def _look_on(self, database: Database) -> None:
        """Look at everything now and then, while nothing is corrected."""
        step = self.options.corrections // (self.options.looks + 1)
        for number in range(1, self.options.looks + 1):
            while self.scene.progress() < number * step:
                if self.scene.over.wait(0.05):
                    return
            with self.scene.gate.closed():
                self._look(database, f"after {self.scene.progress()}")
                self._reset_plainly()

    def _reset_plainly(self) -> None:
        """Reset a session without forgetting, whose memory stays as it is; all of it is derived."""
        book = self.scene.book
        session = self._resets.choice(book.open_sessions())
        messages = [message.to_dict() for message in session.memory.get_all()]
        session.memory.reset()
        book.leave_life(session, messages, log_start(self.scene.url, session))
        self.scene.note(self.scene.corrections, "reset without forgetting")

    def _look(self, database: Database, when: str) -> None:
        """The log, the facts and all tables, once everything is delivered and derived."""
        for session in self.scene.book.sessions.values():
            session.memory.flush(all=True)
        self._settle()
        self._verify(database)
        looked_at = (self._stuck(), wrong_logs(self.scene), corrections_twice(self._url))
        for sentences in (*looked_at, wrong_filters(self.scene), wrong_facts(self.scene)):
            self.scene.wrong += [f"{when}: {sentence}" for sentence in sentences]

    def _stuck(self) -> list[str]:
        """What is stuck for good: a replay may make something due at any moment."""
        for _again in range(LOOKS_AT_WORK):
            if not (sentences := list(stuck(self._url))):
                break
            self._settle()
        return sentences

    def _replay(self, database: Database, settings: Settings) -> None:
        """Replays beside the corrections, one after the other."""
        for number, pipeline in enumerate(PIPELINES[: self.options.replays], 1):
            while self.scene.progress() < number * self.options.corrections // (self.options.replays + 1):
                if self.scene.over.wait(0.05):
                    return
            self._verify(database)
            try:
                replay = begin_in_place(database, pipeline, Selection())
                counts = replay_in_place(database, replay, settings)
                self.found.replays.append(f"{pipeline} in place: {counts}")
                replay = begin_generation(database, pipeline, settings, force=True)
                self._bring_on(database, replay)
                self.found.replays.append(f"{pipeline} anew")
            except Exception as error:  # noqa: BLE001 - the campaign goes on, and this is a finding
                self.scene.wrong.append(f"replay of {pipeline}: {type(error).__name__}: {error}")

    def _bring_on(self, database: Database, replay: Replay) -> None:
        for _attempt in range(100):
            try:
                derive_generation(database, replay)
            except ReplayError as error:
                # Owners lack what is neither due nor done: it is taken up again, as the sentence says.
                if "--resume" not in str(error):
                    raise
                replay = claim_replay(database, replay.replay_id)
            else:
                return
        raise AssertionError("it was taken up a hundred times, and did not end")

    def _verify(self, database: Database) -> None:
        self.found.verified += 1
        for violation in verify(database, deep=True).violations:
            self.scene.wrong.append(f"verify: {violation.kind}: {violation.sentence}")

    def _settle(self) -> None:
        wait_until(lambda: nothing_due(self._url), timeout=SETTLE_SECONDS, what="the workers")

    def _judge(self, database: Database) -> None:
        self._look(database, "at the end")
        self.found.applied = dict(
            rows_of(
                self._url,
                "SELECT stage || ', ' || state, count(*) FROM strandline.batch GROUP BY 1",
            )
        )
        self.scene.wrong += differing(self.scene, self._settle)
        self._verify(database)

    def _report(self, reads: int) -> None:
        found, scene = self.found, self.scene
        found.corrections, found.operations = dict(scene.corrections), dict(scene.operations)
        found.refusals, found.producer_kills = dict(scene.refusals), dict(scene.kills)
        found.worker_kills = dict(self._workers.kills)
        found.sessions, found.messages = len(scene.book.sessions), scene.messages
        found.reads = reads
        found.wrong = [*scene.wrong, *self._workers.deaths]


def campaign(options: Options) -> Findings:
    """Run one on separate servers, and take the servers down."""
    with servers(with_broker=True) as (url, broker_url, folder), ModelServer() as server:
        os.environ |= {"STRANDLINE_HOME": str(folder / "home"), "STRANDLINE_EMBEDDED": "never"}
        return Campaign(options, url, broker_url, server).run()
