"""Puts, corrections and transactions that commit late, beside sealers that are killed at any moment.

What was committed is in the trail once, and sealed once, whatever died meanwhile; what was rolled back is not
in it; the chains are sound, and hold each anchor that was handed over.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from strandline import Audit, Memory, acting
from strandline.pipelines.audit.anchors import read_anchors
from strandline.pipelines.audit.verifying import verify_trail
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.chaos.audit.sealer import KEYS
from tests.chaos.command import servers
from tests.support.processes import forking
from tests.support.sealed_trail import seal_all

NAMESPACES = ("acme", "beta", "all")
SEALED = """
SELECT origin FROM strandline.audit_sealed WHERE act IN ('put', 'replace') AND detail IS NULL ORDER BY origin
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What a campaign does.

    Attributes:
        acts: of each producer.
        producers: threads that put, each to a session of its own.
        sealers: processes at the same time; each is killed in the middle, and another one started.
    """

    seed: int = 1
    acts: int = 500
    producers: int = 6
    sealers: int = 2


@dataclass(slots=True)
class Found:
    """What a campaign did, and what is wrong."""

    acts: int = 0
    rolled_back: int = 0
    kills: int = 0
    seals: int = 0
    anchors: int = 0
    wrong: list[str] = field(default_factory=list)


class Campaign:
    """One run on a database of its own."""

    def __init__(self, options: Options, url: str, folder: Path) -> None:
        self._options = options
        self._url = url
        self._anchors = folder / "anchors.jsonl"
        self._committed: list[str] = []
        self._lock = threading.Lock()
        self._started = 0
        self.found = Found()

    def run(self) -> Found:
        """Run it to its end, and judge it."""
        for namespace in NAMESPACES:
            Audit.of_namespace(namespace, database_url=self._url).set_level("all")
        self._anchors.touch()
        sealers = [self._start() for _ in range(self._options.sealers)]
        with ThreadPoolExecutor(self._options.producers) as pool:
            producing = [pool.submit(self._produce, number) for number in range(self._options.producers)]
            while not all(one.done() for one in producing):
                time.sleep(0.02)
                sealers = [self._replace(sealer) for sealer in sealers]
            for one in producing:
                one.result()
        for sealer in sealers:
            sealer.kill()
            sealer.wait(60)
        self._judge()
        return self.found

    def _start(self) -> subprocess.Popen[bytes]:
        self._started += 1
        seed = f"{self._options.seed} {self._started}"
        command = [sys.executable, "-m", "tests.chaos.audit.sealer", self._url, str(self._anchors), seed]
        return forking.Popen(command)

    def _replace(self, sealer: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """The sealer, or another one in the place of one that was killed."""
        code = sealer.poll()
        if code is None:
            return sealer
        if code != -signal.SIGKILL:
            self.found.wrong.append(f"a sealer ended by itself, with {code}")
        self.found.kills += 1
        return self._start()

    def _produce(self, number: int) -> None:
        """Put, replace, and put in transactions that stay open while others commit; some are rolled back."""
        chance = random.Random(f"{self._options.seed} {number}")  # noqa: S311
        memory = Memory.from_defaults(
            f"session-{number}",
            user_id=f"user-{number % 3}",
            namespace=NAMESPACES[number % len(NAMESPACES)],
            memory_blocks=[],
            database_url=self._url,
        )
        last = memory.put({"role": "user", "content": "first"})
        with psycopg.connect(self._url) as connection:
            for act in range(self._options.acts):
                name = f"{number:02}-{act:05}"
                with acting(actor=f"producer-{number}", origin=name):
                    last = self._act(memory, connection, chance, name, last)

    def _act(
        self, memory: Memory, connection: psycopg.Connection[Any], chance: random.Random, name: str, last: int
    ) -> int:
        message, kind = {"role": "user", "content": name}, chance.random()
        if kind < 0.6:
            last = memory.put(message)
        elif kind < 0.75:
            memory.replace(last, name)
        else:
            seq = memory.put_messages([message], connection=connection)[-1]
            time.sleep(chance.random() / 100)
            if kind > 0.95:
                connection.rollback()
                self._count(lambda found: setattr(found, "rolled_back", found.rolled_back + 1))
                return last
            connection.commit()
            last = seq
        with self._lock:
            self._committed.append(name)
        return last

    def _count(self, change: Callable[[Found], None]) -> None:
        with self._lock:
            change(self.found)

    def _judge(self) -> None:
        options = ConnectionOptions.from_settings(self._url, load_settings(), pool_size=1)
        database = Database.connect(options)
        try:
            database.run(seal_all(KEYS))
            anchors = read_anchors(self._anchors.read_text(encoding="utf-8").splitlines(), "anchors")
            for namespace in NAMESPACES:
                mine = [anchor for anchor in anchors if anchor.namespace == namespace]
                result = database.run(verify_trail(namespace, KEYS, mine))
                self.found.wrong += [f"{namespace}: {one.sentence}" for one in result.findings]
                self.found.seals += result.seals
                self.found.anchors += result.anchors
                if result.unsealed:
                    self.found.wrong.append(f"{namespace}: {result.unsealed} entries are not sealed")
        finally:
            database.close()
        self._compare()

    def _compare(self) -> None:
        with psycopg.connect(self._url) as connection:
            rows = connection.execute(SEALED.encode()).fetchall()
        sealed = Counter(origin for (origin,) in rows if origin is not None)
        committed = Counter(self._committed)
        self.found.acts = len(self._committed)
        self.found.wrong += [f"{name} is not in the trail" for name in committed - sealed]
        self.found.wrong += [f"{name} is in the trail, and was not done" for name in sealed - committed]


def campaign(options: Options) -> Found:
    """Run one on a separate server, and take the server down."""
    with servers() as (url, _broker_url, folder):
        return Campaign(options, url, folder).run()
