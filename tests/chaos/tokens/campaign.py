"""A campaign from beginning to end: everybody at once, then all is settled, and everything is looked at."""

from __future__ import annotations

import contextlib
import os
import random
import re
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from strandline.administration.keys import KeySpec, create_key
from strandline.deploy.embedded.wheel_binaries import postgres_programs
from strandline.erasure import make_receipt_key
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealing.tokens import is_bytes_token
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import prepare_stages
from tests.chaos.command import servers
from tests.chaos.corrections.judge import stuck
from tests.chaos.corrections.killed_workers import KilledWorkers
from tests.chaos.erasures.judge import TABLES
from tests.chaos.faults.line import PostgresLine
from tests.chaos.tokens.actor import Actor, Asker
from tests.chaos.tokens.book import READS, Book, Owner, Session
from tests.chaos.tokens.doors import Door, KilledProcess, Library, Remote
from tests.chaos.tokens.erasing import Eraser
from tests.chaos.tokens.evidence import rows_about
from tests.chaos.tokens.meanwhile import AGED, SEALED, Cutter, Operator, Service
from tests.conftest import nothing_due, rows_of, wait_until
from tests.support.processes import forking
from tests.support.proxies.cutting_proxy import CuttingProxy
from tests.support.workers.busy_workers import QUICK_TAKE_OVER, environment
from tests.support.workers.worker_processes import ROOT

NAMESPACES = ("default", SEALED, AGED)
MAX_AGE_SECONDS = 20
SCOPES = ("read", "write", "facts", "erase")
KEYS = ";".join(f"{name} {b64encode(name.encode() * 8).decode()}" for name in ("from", "into"))
ENVIRONMENT = {"STRANDLINE_KEYRING_KEYS": KEYS, "STRANDLINE_KEY_CACHE_SECONDS": "1"}
MODEL = [sys.executable, "-m", "tests.support.servers.model_server", "--port", "0", "--keep", "0"]
CUT_SHARE = 0.02
PROGRESS_SECONDS = 30.0
SETTLE_SECONDS = 300.0
FOUND = re.compile(rb"\bq\d+z\b")
# The service keeps its answers for a day, one of a pop with the message.
AGE_RESPONSES = "UPDATE strandline.kept_response SET created_at = created_at - interval '2 days' RETURNING 1"
# Looked at by itself: what recognises a deleted fact has its words.
TOMBSTONES = ("--exclude-table-data", "strandline.fact_event")
KEPT = "SELECT count(*) FROM strandline.kept_response"
HELD = "SELECT DISTINCT found[1] FROM strandline.\"{}\" t, regexp_matches(t::text, '\\mq\\d+z\\M', 'g') found"


@dataclass(frozen=True, slots=True)
class Options:
    """How large a campaign is, and with which seed its threads draw what they do.

    Attributes:
        minutes: it ends by then; 0: once there were so many ``operations``.
        users: of each of the three namespaces, at a time.
        operations_per_kill: a worker that dies whenever it happens to be lives for so many, about.
        erasure_pause, cut_pause, command_pause: seconds between two of them, about.
    """

    seed: int = 1
    minutes: float = 40.0
    operations: int = 0
    users: int = 3
    sessions: int = 2
    actors: int = 4
    workers: int = 2
    operations_per_kill: int = 400
    erasure_pause: float = 2.5
    cut_pause: float = 6.0
    command_pause: float = 6.0


class Campaign:
    """One run on a separate database and broker; ``model_url``: of the stand-in for a model."""

    def __init__(
        self,
        options: Options,
        url: str,
        broker_url: str,
        model_url: str,
        folder: Path,
        say: Callable[[str], None] = print,
    ) -> None:
        self.options = options
        self.book = Book(options.seed, say=say, rows_about=partial(rows_about, url, KEYS))
        self.over = threading.Event()
        self._url, self._folder = url, folder
        self._key = folder / f"{uuid4().hex}.pem"
        make_receipt_key(self._key)
        model: Any = SimpleNamespace(base_url=model_url)
        self.environment = (
            environment(model, **QUICK_TAKE_OVER)
            | ENVIRONMENT
            | {
                "STRANDLINE_RECEIPT_KEY_FILE": str(self._key),
                "STRANDLINE_BROKER_URL": broker_url,
                "STRANDLINE_DATABASE_URL": url,
                "STRANDLINE_HOME": str(folder / "home"),
                "STRANDLINE_EMBEDDED": "never",
            }
        )
        self._workers = KilledWorkers(
            url, broker_url, self.environment, workers=options.workers, chance=self._chance("kills"),
            progress=self._done, corrections_per_kill=options.operations_per_kill,
        )  # fmt: skip
        self._gone: list[Owner] = []
        self._names = iter(range(10**9))

    def run(self) -> Book:
        """Run it; what was found is in the book.  Ctrl-C ends it early, and what was done is judged."""
        with contextlib.ExitStack() as ending:
            database = ending.enter_context(self._opened())
            doors, remote = self._ways_in(ending, database)
            for namespace in NAMESPACES * self.options.users:
                self.book.owners.append(self._new_owner(namespace))
            eraser = self._eraser(ending, doors, remote)
            operator = self._operator()
            operator.run("retention", "set", "--namespace", AGED, "--max-age", f"{MAX_AGE_SECONDS}s",
                         "--archive", f"file://{self._folder}/archive")  # fmt: skip
            actors = [
                Actor(self.book, doors, self._chance(f"actor {n}"), self.over)
                for n in range(self.options.actors)
            ]
            threads = [*(one.thread for one in actors), eraser.thread, operator.thread, self._cutter().thread]
            ending.callback(self._workers.stop)
            self._workers.start()
            try:
                for thread in threads:
                    thread.start()
                self._wait()
            finally:
                self.over.set()
                for thread in threads:
                    thread.join()
            self._workers.end_kills()
            self._settle(eraser, operator)
            self._judge(doors, operator)
        for fate, number in self._workers.kills.items():
            self.book.counts[f"killed worker: {fate}"] = number
        for death in self._workers.deaths:
            self.book.blame(None, death)
        return self.book

    def _chance(self, name: str) -> random.Random:
        return random.Random(f"{self.options.seed}/{name}")  # noqa: S311

    @contextlib.contextmanager
    def _opened(self) -> Iterator[Database]:
        names = {name.removeprefix("STRANDLINE_").lower(): value for name, value in self.environment.items()}
        settings = load_settings(**names)
        database = Database.connect(ConnectionOptions.from_settings(self._url, settings))
        try:
            prepare_stages(database, settings)
            yield database
        finally:
            database.close()

    def _ways_in(self, ending: contextlib.ExitStack, database: Database) -> tuple[list[Door], Remote]:
        """The library twice, a process behind a line that breaks, the service behind a proxy that cuts."""
        self._line = PostgresLine(self._url)
        ending.callback(self._line.stop)
        process = KilledProcess(self._line.url, self.environment)
        ending.callback(process.stop)
        self._service = Service(self._url, self._folder / "service.log", os.environ | self.environment)
        ending.callback(self._service.stop)
        cuts = self._chance("answers")
        proxy = ending.enter_context(
            CuttingProxy(self._service.url, lambda _number: cuts.random() < CUT_SHARE)
        )
        keys = {one: database.run(create_key(KeySpec(one, SCOPES))).key for one in NAMESPACES}
        remote = Remote(proxy.url, keys)
        libraries = [Library(self._url), Library(self._url, is_async=True)]
        ending.callback(remote.stop)
        for library in libraries:
            ending.callback(library.stop)
        return [*libraries, process, remote], remote

    def _eraser(self, ending: contextlib.ExitStack, doors: list[Door], remote: Remote) -> Eraser:
        process = KilledProcess(self._url, self.environment)
        ending.callback(process.stop)
        return Eraser(
            self.book, doors, self._chance("erasures"), self.over, url=self._url, key=self._key,
            process=process, remote=remote, pause_seconds=self.options.erasure_pause,
            more_owners=self._replace_owner,
        )  # fmt: skip

    def _operator(self) -> Operator:
        return Operator(
            self.book, self._chance("operators"), self.over, environment=os.environ | self.environment,
            pause_seconds=self.options.command_pause, progress=self._share_done, unfinished=self._unfinished,
        )  # fmt: skip

    def _cutter(self) -> Cutter:
        return Cutter(
            self.book, self._chance("cuts"), self.over, url=self._url, line=self._line,
            restart_service=self._service.restart, pause_seconds=self.options.cut_pause,
        )  # fmt: skip

    def _new_owner(self, namespace: str) -> Owner:
        user = f"u{next(self._names)}"
        max_age = MAX_AGE_SECONDS if namespace == AGED else inf
        sessions = [Session(name=f"{user}-{number}") for number in range(self.options.sessions)]
        return Owner(
            namespace=namespace, user=user, max_age=max_age, sessions={one.name: one for one in sessions}
        )

    def _replace_owner(self, owner: Owner) -> None:
        with self.book.lock:
            if owner in self.book.owners:
                self._gone.append(owner)
                self.book.owners[self.book.owners.index(owner)] = self._new_owner(owner.namespace)

    def _done(self) -> int:
        return self.book.counts.total()

    def _share_done(self) -> float:
        if self.options.minutes:
            return self.book.now() / 60 / self.options.minutes
        return self._done() / self.options.operations

    def _unfinished(self) -> frozenset[int]:
        rows = rows_of(self._url, "SELECT number FROM strandline.erasure WHERE state = 'running'")
        return frozenset(number for (number,) in rows)

    def _wait(self) -> None:
        said = self.book.now()
        try:
            while self._share_done() < 1:
                self.over.wait(0.2)
                if self.book.now() - said > PROGRESS_SECONDS:
                    said = self.book.now()
                    self.book.say(
                        f"{said:.0f} s: {self._done()} operations, {len(self.book.wrong)} violations"
                    )
        except KeyboardInterrupt:
            self.book.say("interrupted: what was done so far is judged")

    def _settle(self, eraser: Eraser, operator: Operator) -> None:
        """Everything that was begun is finished, and nothing is due any more."""
        eraser.finish()
        operator.finish()
        library = Library(self._url)
        asker = Asker(self.book, [library], self._chance("settling"))
        for owner in [*self.book.owners, *self._gone]:
            for session in owner.sessions.values():
                asker.carry_out(asker.begin(library, "flush", owner, session), library.ask)
        with contextlib.suppress(AssertionError):  # what is stuck is named below
            wait_until(lambda: nothing_due(self._url), timeout=SETTLE_SECONDS, what="the workers")
        rows_of(self._url, AGE_RESPONSES)
        wait_until(lambda: rows_of(self._url, KEPT) == [(0,)], timeout=SETTLE_SECONDS, what="kept responses")
        while self.options.minutes and self.book.now() < max(one.unknown_until for one in self.book.owners):
            time.sleep(1)

    def _judge(self, doors: list[Door], operator: Operator) -> None:
        asker = Asker(self.book, doors, self._chance("the last look"))
        for owner in [*self.book.owners, *self._gone]:
            for session in owner.sessions.values():
                for what in READS:
                    asker.read(owner, session, what)
        operator.prove()
        for sentence in stuck(self._url):
            self.book.blame(None, sentence)
        gone = self.book.taken()
        if operator.is_sealed:
            gone |= {name for name, token in self.book.tokens.items() if token.owner.namespace == SEALED}
        for where, names in (*tokens_in_tables(self._url), ("a dump", tokens_in_dump(self._url))):
            kept = self.book.recognised() if where == "fact_event" else set()
            if left := sorted(names & gone - kept):
                token = self.book.tokens[left[0]]
                takers = [str(one.taken_by) for one in token.places]
                self.book.blame(token.owner, f"{where} holds {len(left)} that are gone: {left[:5]}; {takers}")


def tokens_in_tables(url: str) -> Iterator[tuple[str, set[str]]]:
    """By table, the tokens in any of its rows."""
    for (table,) in rows_of(url, TABLES):
        yield table, {name for (name,) in rows_of(url, HELD.format(table))}
    bodies = rows_of(url, "SELECT body FROM strandline.answer")
    # What is sealed is not looked through: among so many random bytes are some that look like a token.
    plain = [bytes(body) for (body,) in bodies if not is_bytes_token(bytes(body))]
    yield "answer", {name.decode() for body in plain for name in FOUND.findall(body)}


def tokens_in_dump(url: str) -> set[str]:
    dumped = subprocess.run(
        [postgres_programs() / "pg_dump", "--dbname", url, *TOMBSTONES], capture_output=True, check=True
    )
    return {found.decode() for found in FOUND.findall(dumped.stdout)}


@contextlib.contextmanager
def model() -> Iterator[str]:
    """The URL of a model, in a process of its own."""
    with forking.Popen(MODEL, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def campaign(options: Options) -> Book:
    """Run one on separate servers, and take the servers down."""
    with servers(with_broker=True) as (url, broker_url, folder), model() as model_url:
        one = Campaign(options, url, broker_url, model_url, folder, say=_say)
        os.environ |= one.environment
        return one.run()


def _say(line: str) -> None:
    print(line, flush=True)
