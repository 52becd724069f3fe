"""``python -m tests.chaos.deleted.deleted_facts``: no read has a fact that was deleted before it began.

Namespaces are filled, encrypted, sealed and rotated one after the other, while processes say things, derive,
add, reword, delete, clear and forget facts of their users, generations are derived, promoted, gone back from
and pruned beside them, and every process reads: lists, searches and contexts.  Each wording holds a token of
its own.  An edit that has returned writes the tokens that it took away to a table; a read takes from there
what is gone, and only then begins.

Processes let go of keys, and passes settle owners, in a fifth of the usual time, so that a namespace goes
through all of it in seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import threading
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from strandline import Facts, Memory
from strandline.pipelines.sealing import resealing
from strandline.pipelines.sealing.enabling import change_key, enable, prepare_owners
from strandline.pipelines.sealing.resealing import Pace, reseal_namespace
from strandline.pipelines.sealing.rotating import renew_data_keys, rewrap_keys
from strandline.schemas.errors import StrandlineError
from strandline.schemas.postgres.database import Database
from strandline.schemas.sealed import content as key_cache
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import Lane
from tests.chaos import edits_campaign
from tests.chaos.command import run, servers
from tests.chaos.edits_campaign import (
    DUE_OF_OWNERS,
    LIMITS,
    SESSIONS,
    TOKEN,
    Actor,
    Campaign,
    Shared,
    lanes_from,
    open_database,
)

KEYS = ";".join(f"{name} {b64encode(name.encode() * 8).decode()}" for name in ("from", "into"))
ENVIRONMENT = {
    "STRANDLINE_KEYRING_KEYS": KEYS,
    "STRANDLINE_KEY_CACHE_SECONDS": "2",
    "STRANDLINE_EMBEDDED": "never",
    "STRANDLINE_STATEMENT_TIMEOUT_SECONDS": "120",
}
CACHE_SECONDS = 2.0
USERS = 4
TABLE = "CREATE TABLE gone (owner integer, token text); CREATE INDEX ON gone (owner)"
EDITS: Mapping[str, float] = {
    "put": 20, "flush": 8, "delete": 10, "replace": 6, "add": 12, "feedback": 1, "clear": 1, "forget": 1,
    "drain": 24,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """How large a campaign is: it ends after so many reads, or minutes.

    ``seconds`` is how long a namespace is used before the next one begins.
    """

    seed: int = 1
    reads: int = 100_000
    actors: int = 3
    seconds: int = 8
    looks_per_edit: int = 10
    minutes: int = 120


def shorten_waits(change: Callable[[Any, str, Any], None] = setattr) -> None:
    """Let go of keys, and settle, in a fifth of the time; their order stays."""
    for module in (key_cache, resealing):
        change(module, "UNSEALED_SECONDS", 1.0)
    change(resealing, "START_SECONDS", 0.2)
    change(resealing, "GRACE_SECONDS", 2.0)


class Round(Shared):
    """What the processes share: ``count`` are reads, and ``round`` is the namespace in use."""

    def __init__(self, options: Options, url: str) -> None:
        super().__init__(edits_campaign.Options(seed=options.seed, owners=1, actors=options.actors), url)
        self.size = options
        self.round = multiprocessing.get_context("spawn").Value("q", 0)


class ReadingActor(Actor):
    """One process: a few edits, and many reads beside them."""

    def __init__(self, shared: Round, number: int) -> None:
        super().__init__(shared, number)
        self._round = shared
        self._gone = psycopg.connect(shared.url, autocommit=True)
        self._edits: Mapping[str, Callable[[], None]] = {name: getattr(self, f"_{name}") for name in EDITS}
        self._reads = (self._list, self._search, self._list, self._list)
        self._of_owners: dict[int, Facts] = {}

    def run(self) -> None:
        while not self._round.stop.is_set():
            self._owner = self._any_owner()
            (name,) = self._chance.choices(list(EDITS), list(EDITS.values()))
            self._attempt(name, self._edits[name])
            for _read in range(self._round.size.looks_per_edit):
                self._owner = self._any_owner()
                self._attempt("read", self._look)
        self._round.told.put(("done", dict(self._done)))

    def _any_owner(self) -> int:
        """Mostly one of the namespace in use; some are of the one before."""
        back = self._chance.random() < 0.2
        place: int = max(0, self._round.round.value - back)
        return place * USERS + self._chance.randrange(USERS)

    def _attempt(self, name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except StrandlineError as error:
            self._round.told.put(("wrong", f"{name}: {type(error).__name__}: {error}"))
        self._done[name] += 1

    @property
    def _names(self) -> dict[str, Any]:
        return {"user_id": f"u{self._owner}", "namespace": f"n{self._owner // USERS}"}

    def _memory(self) -> Memory:
        place = self._owner, self._chance.randrange(SESSIONS)
        if place not in self._memories:
            self._memories[place] = Memory.from_defaults(
                f"s{place}",
                database_url=self._round.url,
                memory_blocks=["facts", "summary"],
                **self._names,
                **LIMITS,
            )
        return self._memories[place]

    def _facts(self) -> Facts:
        if self._owner not in self._of_owners:
            self._of_owners[self._owner] = Facts.for_owner(database_url=self._round.url, **self._names)
        return self._of_owners[self._owner]

    def _clear(self) -> None:
        texts = [fact.text for fact in self._facts().list(limit=1_000)]
        self._facts().clear()
        self._tell_deleted(" ".join(texts))

    def _forget(self) -> None:
        self._memory().reset(derived=True)

    def _tell_deleted(self, text: str) -> None:
        tokens = TOKEN.findall(text)
        self._gone.execute(
            "INSERT INTO gone SELECT %s, token FROM unnest(%s::text[]) AS t (token)", (self._owner, tokens)
        )

    def _drain(self) -> None:
        owner = identify_user(f"n{self._owner // USERS}", f"u{self._owner}").shard_key
        rows = self._looking.execute(DUE_OF_OWNERS, [[owner]]).fetchall()
        rows = rows or self._database.fetch(lanes_from(UUID(int=self._chance.getrandbits(128)), limit=8))
        if rows:
            self._worker.drain(Lane(*self._chance.choice(rows)))

    def _look(self) -> None:
        """Some reads: what is gone is looked up before they begin."""
        rows = self._gone.execute("SELECT token FROM gone WHERE owner = %s", (self._owner,)).fetchall()
        gone = {token for (token,) in rows}
        reads = [*self._reads, *([self._context] if self._chance.random() < 0.2 else [])] if gone else []
        for read in reads:
            began = time.time()
            for text in read(gone):
                for token in gone.intersection(TOKEN.findall(text)):
                    said = f"{read.__name__} at {began:.3f} of owner {self._owner} has {token}: {text!r}"
                    self._round.told.put(("wrong", said))
        with self._round.count.get_lock():
            self._round.count.value += len(reads)
            if self._round.count.value >= self._round.size.reads:
                self._round.stop.set()

    def _list(self, _gone: set[str]) -> list[str]:
        return [fact.text for fact in self._facts().list(limit=200)]

    def _search(self, gone: set[str]) -> list[str]:
        hits = self._facts().search(f"boat cat flat tea {self._chance.choice(sorted(gone))}", limit=50)
        return [hit.fact.text for hit in hits]

    def _context(self, gone: set[str]) -> list[str]:
        """Without what was said: messages are there still, and what is said of them."""
        text = " ".join(message.text for message in self._memory().get())
        return [" ".join(token for token in TOKEN.findall(text) if token.startswith("p"))]


def act(shared: Round, number: int) -> None:
    """Run one process of the campaign."""
    os.environ |= ENVIRONMENT
    shorten_waits()
    ReadingActor(shared, number).run()


class DeletedCampaign(Campaign):
    """One run on a separate database: replays, and namespaces that are encrypted one after the other."""

    def __init__(self, options: Options, url: str) -> None:
        super().__init__(edits_campaign.Options(seed=options.seed, actors=options.actors), url)
        self._size = options
        self._shared: Round = Round(options, url)
        self._rounds: Counter[str] = Counter()

    def run(self) -> edits_campaign.Findings:
        with psycopg.connect(self._url) as connection:
            connection.execute(TABLE)
        encrypting = threading.Thread(target=self._encrypt_on)
        encrypting.start()
        over = threading.Timer(60 * self._size.minutes, self._shared.stop.set)
        over.start()
        try:
            found = super().run()
        finally:
            over.cancel()
            self._shared.stop.set()
            encrypting.join()
        found.replays |= self._rounds
        return found

    def process(self, number: int) -> multiprocessing.process.BaseProcess:
        return multiprocessing.get_context("spawn").Process(
            target=act, args=(self._shared, number), daemon=True
        )

    def _encrypt_on(self) -> None:
        database = open_database(self._url)
        content = database.content
        assert isinstance(content, SealedContent)
        chance = random.Random(f"{self._size.seed}/rounds")  # noqa: S311
        while not self._shared.stop.is_set():
            try:
                self._encrypt(database, content, f"n{self._shared.round.value}", chance)
            except StrandlineError as error:
                self._wrong(f"encryption: {type(error).__name__}: {error}")
            self._shared.round.value += 1
        database.close()

    def _encrypt(
        self, database: Database, content: SealedContent, namespace: str, chance: random.Random
    ) -> None:
        """Clear for a while, then encrypted, then rotated; sealed pass after pass until its time is over."""
        ends_at = time.monotonic() + self._size.seconds
        self._shared.stop.wait(chance.uniform(0.1, 0.3) * self._size.seconds)
        enable(database, content, namespace, "from", chance.choice(("clear", "off")))
        rotates_at = time.monotonic() + 0.5 * self._size.seconds
        self._rounds["enabled"] += 1
        while time.monotonic() < ends_at and not self._shared.stop.is_set():
            for _keys in prepare_owners(database, content, namespace):
                pass
            passes = reseal_namespace(database, content, namespace, cache_seconds=CACHE_SECONDS, pace=Pace())
            *_, progress = passes
            self._rounds["settled"] += progress.settled
            if rotates_at and time.monotonic() > rotates_at:
                rotates_at = 0.0
                self._rounds["rotated"] += sum(renew_data_keys(database, content, namespace))
                change_key(database, content, namespace, "into")
                self._rounds["wrapped again"] += sum(rewrap_keys(database, content, namespace))
            self._shared.stop.wait(0.2)

    def look(self, database: Database, when: str) -> None:
        """The reads look: here only what they told is heard."""
        self._hear()
        self.found.looks += 1

    def _drain_all(self, database: Database) -> None:
        """What is left due says nothing of reads."""


def campaign(options: Options) -> edits_campaign.Findings:
    """Run one on a separate server, and take the server down."""
    with servers() as (url, _broker_url, _folder):
        return DeletedCampaign(options, url).run()


if __name__ == "__main__":
    os.environ |= ENVIRONMENT
    shorten_waits()
    sys.exit(run(Options(), campaign, __doc__))
