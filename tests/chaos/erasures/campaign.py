"""A campaign: erasures, one after the other, each in the middle of everything; then looks at what is left."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from strandline import Memory
from strandline.deploy.embedded.wheel_binaries import postgres_programs
from strandline.erasure import ErasureReceipt, Erasures, make_receipt_key, verifier_of
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.errors import ErasedError, StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.wiring.assembly import prepare_stages
from tests.chaos.command import servers
from tests.chaos.edits_campaign import TERMS, open_database, settings_of
from tests.chaos.erasures.crowd import (
    LIMITS,
    STOP_POINTS,
    Laggard,
    Person,
    Replayer,
    Scene,
    WideStages,
    begin,
)
from tests.chaos.erasures.judge import dump_with, readers_with, receipt_is_wrong, rows_with
from tests.support.workers.draining import due_lanes
from tests.support.workers.hand_worker import HandWorker

# So long everybody goes on after the receipt: whatever was under way has time to come back.
AFTER_SECONDS = 0.15
ERASURE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Options:
    """How large a campaign is, and with which seed its threads draw what they do.

    Attributes:
        people: threads of producers around each erasure.
        session_percent: of the erasures, how many are of one session, whose user stays.
        dump_every: after so many runs the database is dumped, and looked through.
    """

    seed: int = 1
    runs: int = 200
    people: int = 3
    workers: int = 2
    session_percent: int = 30
    dump_every: int = 20


@dataclass
class Findings:
    """What came out: ``wrong`` are sentences, of which there should be none."""

    seed: int
    runs: int = 0
    users: int = 0
    sessions: int = 0
    twice: int = 0
    interrupted: int = 0
    readmitted: int = 0
    rows_erased: int = 0
    dumps: int = 0
    stops: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Interrupted(Exception):
    """Stands for the end of the process that erases, between two of its transactions."""


class Campaign:
    """The runs on one database."""

    def __init__(self, options: Options, url: str, folder: Path) -> None:
        self.options = options
        self.found = Findings(options.seed)
        self._url = url
        self._key = folder / f"{uuid4().hex}.pem"
        make_receipt_key(self._key)
        self._stops: Counter[str] = Counter()
        self._outcomes: Counter[str] = Counter()
        self._canaries: list[str] = []

    def run(self) -> Findings:
        database = open_database(self._url)
        prepare_stages(database, settings_of(self._url))
        self._erasures = Erasures.of_namespace(database_url=self._url, key_file=self._key)
        try:
            self._bystander(database)
            for number in range(self.options.runs):
                self._one(database, number)
                self.found.runs += 1
                if (number + 1) % self.options.dump_every == 0 or number + 1 == self.options.runs:
                    self._dump()
            self._settle(database)
        finally:
            self._erasures.close()
            database.close()
        self.found.stops, self.found.outcomes = dict(self._stops), dict(self._outcomes)
        return self.found

    def _bystander(self, database: Database) -> None:
        """Somebody whose memory has to stay, and whose sessions share with the same scope."""
        memory = Memory.from_defaults("bystander", user_id="bystander", database_url=self._url, **LIMITS)
        for number in range(6):
            memory.put({"role": "user", "content": f"my tea is loud bystanding{number}"})
        memory.flush(all=True)
        self._drain(database)
        self._standing = memory.get_all()

    def _drain(self, database: Database) -> None:
        worker = HandWorker(database, WideStages(), TERMS, budget=400)
        for _ in range(20):
            worker.drain_all(self._url)
            if not due_lanes(self._url):
                return

    def _one(self, database: Database, number: int) -> None:
        chance = random.Random(f"{self.options.seed}/{number}")  # noqa: S311
        canary = f"zq{self.options.seed}x{number}qz"
        scene = self._scene(database, chance, number, canary)
        self._fill(scene, database, chance)
        threads = [Person(scene, n).thread for n in range(self.options.people)]
        threads += [Laggard(scene, n, chance.choice(STOP_POINTS)).thread for n in range(self.options.workers)]
        if chance.random() < 0.5:
            threads.append(Replayer(scene).thread)
        join = begin(threads)
        time.sleep(chance.uniform(0.02, 0.6))
        try:
            receipts = self._erase(scene, chance)
            scene.receipt_at = time.monotonic()
            self._look(scene, receipts, "at the receipt")
            time.sleep(AFTER_SECONDS)
        finally:
            scene.fenced.set()
            scene.over.set()
            join()
        self._look(scene, receipts, "in the end")
        try:
            self._after(scene, chance)
        except StrandlineError as error:
            scene.wrong.append(f"afterwards: {type(error).__name__}: {error}")
        self._stops.update(scene.stops)
        self._outcomes.update(scene.outcomes)
        self.found.wrong += [f"run {number}: {sentence}" for sentence in scene.wrong]
        self._canaries.append(canary)

    def _scene(self, database: Database, chance: random.Random, number: int, canary: str) -> Scene:
        is_session = chance.randrange(100) < self.options.session_percent
        user = f"stays{number}" if is_session else f"{canary}-user"
        return Scene(
            url=self._url,
            settings=settings_of(self._url),
            database=database,
            seed=f"{self.options.seed}/{number}",
            canary=canary,
            user=user,
            sessions=[f"{canary}-{n}" for n in range(1 if is_session else 3)],
            is_session_alone=is_session,
        )

    def _fill(self, scene: Scene, database: Database, chance: random.Random) -> None:
        """The user's memory as it is when the erasure comes, some of it derived."""
        for session in scene.sessions:
            memory = scene.memory(session)
            for n in range(chance.randrange(2, 8)):
                memory.put({"role": "user", "content": f"my boat is blue {scene.canary}{n}"})
            if chance.random() < 0.7:
                memory.flush(all=True)
        if scene.is_session_alone:
            other = scene.memory(f"other-{scene.user}")
            other.put_messages([{"role": "user", "content": f"my flat is old staying{n}"} for n in range(4)])
            other.flush(all=True)
        if chance.random() < 0.6:
            self._drain(database)
        scene.memory(scene.sessions[0]).get()

    def _erase(self, scene: Scene, chance: random.Random) -> list[ErasureReceipt]:
        """One erasure, or two at once, some of them after one that ended in the middle."""
        if chance.random() < 0.3:
            self._interrupt(scene, chance)
        twice = chance.random() < 0.4
        receipts: list[ErasureReceipt] = []
        threads = [
            threading.Thread(target=self._erase_once, args=(scene, receipts)) for _ in range(1 + twice)
        ]
        begin(threads)()
        self.found.twice += twice
        if scene.is_session_alone:
            self.found.sessions += 1
        else:
            self.found.users += 1
        if len(receipts) != len(threads) or len({one.erasure_id for one in receipts}) != 1:
            scene.wrong.append(f"{len(threads)} erasures gave {len(receipts)} receipts: {receipts}")
        self.found.rows_erased += sum(sum(one.counts.values()) for one in receipts[:1])
        return receipts

    def _erase_once(self, scene: Scene, receipts: list[ErasureReceipt]) -> None:
        try:
            receipts.append(self._call(scene, lambda step, _table, _rows: self._note(scene, step)))
        except StrandlineError as error:
            scene.wrong.append(f"erase: {type(error).__name__}: {error}")

    @staticmethod
    def _note(scene: Scene, step: str) -> None:
        # From here on the workers that were stopped go on, with what they had in hand.
        if step != "fence":
            scene.fenced.set()

    def _interrupt(self, scene: Scene, chance: random.Random) -> None:
        """An erasure whose process ends after some of its transactions; the next one goes on."""
        left = chance.randrange(0, 40)

        def end(_step: str, _table: str, _rows: int) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Interrupted

        try:
            self._call(scene, end)
        except Interrupted:
            self.found.interrupted += 1
        except StrandlineError as error:
            scene.wrong.append(f"erase: {type(error).__name__}: {error}")

    def _call(self, scene: Scene, told: Any) -> ErasureReceipt:
        if scene.is_session_alone:
            return self._erasures.erase_session(scene.sessions[0], on_progress=told)
        return self._erasures.erase_user(scene.user, actor="operator", on_progress=told)

    def _look(self, scene: Scene, receipts: list[ErasureReceipt], when: str) -> None:
        scene.wrong += [f"{when}, {row}" for row in rows_with(self._url, [scene.canary])]
        scene.wrong += [
            f"{when}, {found}"
            for found in readers_with(self._url, scene.user, scene.sessions[0], scene.canary)
        ]
        for receipt in receipts[:1]:
            wrong = receipt_is_wrong(self._erasures, receipt, verifier_of(self._key))
            scene.wrong += [f"{when}, {sentence}" for sentence in wrong]

    def _after(self, scene: Scene, chance: random.Random) -> None:
        """A put is refused, until the user is readmitted; then she begins with nothing."""
        memory = scene.memory(scene.sessions[0])
        try:
            memory.put({"role": "user", "content": "back"})
            scene.wrong.append("a put after the erasure was accepted")
        except ErasedError:
            pass
        if chance.random() >= 0.2:
            return
        if scene.is_session_alone:
            self._erasures.readmit_session(scene.sessions[0])
        else:
            self._erasures.readmit_user(scene.user)
        memory.put({"role": "user", "content": "back again"})
        self.found.readmitted += 1
        if [message.text for message in memory.get_all()] != ["back again"]:
            scene.wrong.append("who was readmitted did not begin with nothing")
        self._call(scene, lambda _step, _table, _rows: None)
        if found := rows_with(self._url, [scene.canary]):
            scene.wrong.append(f"after a second erasure: {found}")

    def _dump(self) -> None:
        program = postgres_programs() / "pg_dump"
        found = dump_with(self._url, self._canaries, program)
        self.found.wrong += [f"in a dump: {line}" for line in found]
        self.found.dumps += 1

    def _settle(self, database: Database) -> None:
        """Whoever was not erased has everything, and the tables are as they are to be."""
        self._drain(database)
        memory = Memory.from_defaults("bystander", user_id="bystander", database_url=self._url, **LIMITS)
        if memory.get_all() != self._standing:
            self.found.wrong.append("a bystander lost messages")
        if not memory.search("bystanding3", scope="shared"):
            self.found.wrong.append("a bystander's shared messages are not found")
        self.found.wrong += [violation.sentence for violation in verify(database).violations]
        if erased := self._erasures.find_erased_rows():
            self.found.wrong.append(f"rows of erased owners: {erased}")


def campaign(options: Options) -> Findings:
    """A campaign on servers of its own."""
    with servers() as (url, _broker_url, folder):
        return Campaign(options, url, folder).run()
