"""Backups of an installation at work, restored elsewhere: a dump, a point in time; and a lost broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from strandline import Memory
from strandline.deploy.embedded.postgres import EmbeddedPostgres
from strandline.deploy.embedded.server_account import server_account
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.chaos.servers import RedisServer
from tests.conftest import nothing_due, rows_of, wait_until
from tests.restore.documented import ROOT, block, run
from tests.soak.measuring.readings import Reading
from tests.support.servers.model_server import ModelServer, RecordedRequest
from tests.support.workers.worker_processes import WorkerProcess, launch_worker

SESSIONS = 10
# A user for each session; this one is erased after the backups.
ERASED = "ben-0"
DONE_SECONDS = 60.0
WAL = "/backup/wal"
BASE = "/backup/base"
DATA = "/new/data"
TARGET = "2026-11-30 12:00:00+00"
RECEIPTS = "/backup/receipts.jsonl"
PUBLIC_KEY = "/etc/strandline/receipts.pem.pub"
Say = Callable[[str], None]


def role_in(url: str, role: str, database: str = "postgres") -> str:
    return urlunsplit(urlsplit(url)._replace(netloc=f"{role}@", path=f"/{database}"))


@dataclass
class Installation:
    """A server with the documented roles, a broker, a model that can be held up; and what was put."""

    folder: Path
    ending: ExitStack
    acknowledged: dict[str, datetime] = field(default_factory=dict)
    held: threading.Event = field(default_factory=threading.Event)
    calls: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.server = EmbeddedPostgres(self.folder / "first")
        self.url = self.server.start()
        self.ending.callback(self.server.stop)
        self.wal = self._place("wal")
        settings = block("archive_mode").replace(WAL, str(self.wal))
        with (self.folder / "first" / "postgresql.conf").open("a") as file:
            file.write(settings)
        self.server.stop()
        self.url = self.server.start()
        self.prepare(self.url)
        self.broker = RedisServer(self.folder)
        self.broker.start()
        self.ending.callback(self.broker.stop)
        self.model = self.ending.enter_context(ModelServer())
        self.model.behave(responder=self._respond)
        self.command("strandline erasures key receipts.pem", self.url)
        self.command("strandline migrate", role_in(self.url, "strandline_owner"))

    def prepare(self, url: str) -> None:
        """The documented roles, in one database."""
        passwords = {"OWNER_PASSWORD": "owner", "APP_PASSWORD": "app"}
        run(
            f'psql --no-psqlrc --quiet --file {ROOT}/deploy/postgres/roles.sql "{url}"',
            self.folder,
            {},
            passwords,
        )

    def command(self, example: str, url: str, places: dict[str, str] | None = None, **more: str) -> str:
        environment = {
            "STRANDLINE_DATABASE_URL": url,
            "STRANDLINE_EMBEDDED": "never",
            "STRANDLINE_RECEIPT_KEY_FILE": str(self.folder / "receipts.pem"),
            **more,
        }
        return run(example, self.folder, places or {}, environment)

    def worker(self, url: str, *, key: str, broker_url: str | None = None) -> WorkerProcess:
        worker = launch_worker(
            url,
            broker_url or self.broker.url,
            OPENAI_BASE_URL=self.model.base_url,
            OPENAI_API_KEY=key,
            STRANDLINE_EMBEDDING_BACKEND="local",
            STRANDLINE_EMBEDDED="never",
        )
        self.ending.callback(worker.end)
        registered = "SELECT FROM strandline.worker WHERE pid = %s"
        wait_until(lambda: rows_of(url, registered, worker.pid), timeout=30, what="the worker")
        return worker

    def converse(self, name: str, messages: int) -> None:
        """Put messages into each session, flush them, and note when each was acknowledged."""
        for number in range(SESSIONS):
            url = role_in(self.url, "strandline_app")
            memory = Memory.from_defaults(f"chat-{number}", user_id=f"ben-{number}", database_url=url)
            for place in range(messages // SESSIONS):
                text = f"My boat {place} of {name} lies in harbour {number}."
                memory.put({"role": "user", "content": text, "id": f"{name}-{number}-{place}"})
                self.acknowledged[f"{name}-{number}-{place}"] = datetime.now(UTC)
            memory.flush(all=True)
            memory.close()

    def _respond(self, request: RecordedRequest) -> None:
        if request.authorization == "Bearer held":
            self.calls.release()
            self.held.wait(600)

    def _place(self, name: str) -> Path:
        """A folder that the server's account writes in."""
        place = self.folder / name
        place.mkdir()
        server_account().own(place)
        return place


@dataclass
class Backup:
    """A backup, when it began, and what making and restoring it took, in seconds."""

    name: str
    began: datetime
    made_seconds: float
    restored_seconds: float = 0.0
    url: str = ""


class Drill:
    """All ways, one after the other, from one installation."""

    def __init__(self, folder: Path, say: Say, messages: int = 2_000) -> None:
        self._folder, self._say, self._messages = folder, say, messages
        folder.chmod(0o755)

    def run(self) -> Iterator[tuple[str, Reading]]:
        with ExitStack() as ending:
            first = Installation(self._folder, ending)
            ending.callback(first.held.set)
            held = self._fill(first)
            dump, base = self._dump(first), self._base(first)
            first.converse("between", 2 * SESSIONS)
            base.began = self._next_second(first)
            first.converse("late", 2 * SESSIONS)
            self._erase(first)
            yield from self._lose_broker(first, held)
            self._restore_dump(first, dump)
            yield from self._judge(first, dump)
            self._restore_to(first, base)
            yield from self._judge(first, base)

    def _fill(self, first: Installation) -> WorkerProcess:
        """Messages that are derived, and then some whose model calls are in hand; returns who holds them."""
        worker = first.worker(first.url, key="good")
        first.converse("derived", self._messages)
        wait_until(lambda: nothing_due(first.url), timeout=DONE_SECONDS, what="the first work's end")
        worker.stop()
        held = first.worker(first.url, key="held")
        first.converse("in-hand", SESSIONS)
        assert first.calls.acquire(timeout=10 * DONE_SECONDS)
        ((size,),) = rows_of(first.url, "SELECT pg_size_pretty(pg_database_size(current_database()))")
        self._say(f"{self._messages} messages are derived ({size}), and work is in hand")
        return held

    def _dump(self, first: Installation) -> Backup:
        backup = Backup("dump", datetime.now(UTC), time.monotonic())
        first.command(block("pg_dump --format=custom"), role_in(first.url, "strandline_app"))
        return self._made(backup)

    def _base(self, first: Installation) -> Backup:
        backup = Backup("point in time", datetime.now(UTC), time.monotonic())
        places = {BASE: str(self._folder / "base")}
        first.command(block("pg_basebackup"), first.url, places, SUPERUSERS_URL=first.url)
        return self._made(backup)

    def _made(self, backup: Backup) -> Backup:
        backup.made_seconds = time.monotonic() - backup.made_seconds
        self._say(f"{backup.name}: made in {backup.made_seconds:.1f} s")
        return backup

    @staticmethod
    def _next_second(first: Installation) -> datetime:
        """A whole second of the server's clock after all that was put, and before all that comes."""
        ((now,),) = rows_of(first.url, "SELECT date_trunc('second', clock_timestamp()) + interval '1 second'")
        wait_until(
            lambda: rows_of(first.url, "SELECT clock_timestamp() > %s::timestamptz", now)[0][0],
            timeout=10,
            what="the next second",
        )
        return now  # type: ignore[no-any-return]

    def _erase(self, first: Installation) -> None:
        erase = f"strandline erasures erase --user {ERASED} --yes --actor me --receipt receipts.jsonl"
        first.command(erase, role_in(first.url, "strandline_app"))
        ((segment,),) = rows_of(first.url, "SELECT pg_walfile_name(pg_switch_wal())")
        archived = "SELECT last_archived_wal >= %s FROM pg_stat_archiver"
        wait_until(lambda: rows_of(first.url, archived, segment)[0][0], timeout=30, what="the archive")

    def _lose_broker(self, first: Installation, held: WorkerProcess) -> Iterator[tuple[str, Reading]]:
        """The broker dies and comes back empty, and with it dies the worker that has work in hand."""
        held.kill()
        first.held.set()
        first.broker.kill()
        first.broker.start()
        first.worker(first.url, key="good")
        began = time.monotonic()
        wait_until(lambda: nothing_due(first.url), timeout=DONE_SECONDS, what="the work after the broker")
        yield (
            "broker",
            Reading("work done after an empty broker and a killed worker", time.monotonic() - began, 60),
        )
        yield from self._findings(first, "broker", first.url, lost_after=None)

    def _restore_dump(self, first: Installation, backup: Backup) -> None:
        server = EmbeddedPostgres(self._folder / "second")
        url = server.start()
        first.ending.callback(server.stop)
        first.prepare(url)
        began = time.monotonic()
        owner = role_in(url, "strandline_owner")
        first.command(block("pg_restore"), first.url, NEW_DATABASE_URL=owner)
        self._after_restore(first, backup, url, began)

    def _restore_to(self, first: Installation, backup: Backup) -> None:
        began = time.monotonic()
        data = self._folder / "third"
        places = {BASE: str(self._folder / "base"), DATA: str(data), WAL: str(first.wal)}
        places[TARGET] = backup.began.isoformat(sep=" ")
        first.command(block("cp -R"), first.url, places)
        for path in (data, *data.rglob("*")):
            server_account().own(path)
        server = EmbeddedPostgres(data)
        url = server.start()
        first.ending.callback(server.stop)
        recovering = "SELECT pg_is_in_recovery()"
        wait_until(lambda: rows_of(url, recovering) == [(False,)], timeout=60, what="the end of recovery")
        self._after_restore(first, backup, url, began)

    def _after_restore(self, first: Installation, backup: Backup, url: str, began: float) -> None:
        """The documented commands before producers and workers start."""
        places = {RECEIPTS: "receipts.jsonl", PUBLIC_KEY: "receipts.pem.pub"}
        assert rows_of(url, "SELECT FROM strandline.session WHERE user_id = %s", ERASED)
        first.command(
            block("strandline migrate\nstrandline erasures"), role_in(url, "strandline_owner"), places
        )
        backup.url, backup.restored_seconds = url, time.monotonic() - began
        self._say(f"{backup.name}: restored in {backup.restored_seconds:.1f} s")

    def _judge(self, first: Installation, backup: Backup) -> Iterator[tuple[str, Reading]]:
        name, url = backup.name, role_in(backup.url, "strandline_app")
        yield name, Reading("seconds to make it", backup.made_seconds, 600)
        yield name, Reading("seconds until it is restored and checked", backup.restored_seconds, 600)
        ((due,),) = rows_of(url, "SELECT count(*) FROM strandline.due")
        yield name, Reading("work that was in hand or due", due, 1, "events", at_least=True)
        place = first.folder / f"broker-of-{name.replace(' ', '-')}"
        place.mkdir()
        broker = RedisServer(place)
        broker.start()
        first.ending.callback(broker.stop)
        began = time.monotonic()
        first.worker(url, key="good", broker_url=broker.url)
        wait_until(lambda: nothing_due(url), timeout=DONE_SECONDS, what="the work in hand")
        yield name, Reading("that work done by a worker with an empty broker", time.monotonic() - began, 60)
        yield from self._findings(first, name, url, lost_after=backup.began)

    def _findings(
        self, first: Installation, name: str, url: str, *, lost_after: datetime | None
    ) -> Iterator[tuple[str, Reading]]:
        stored = {row[0] for row in rows_of(url, "SELECT id FROM strandline.message")}
        erased = {one for one in first.acknowledged if f"-{ERASED.removeprefix('ben-')}-" in one}
        lost = {one: at for one, at in first.acknowledged.items() if one not in stored | erased}
        early = [at for at in lost.values() if lost_after is None or at < lost_after]
        yield name, Reading("messages lost from before the backup", len(early), 0, "messages")
        if lost:
            seconds = (max(lost.values()) - min(lost.values())).total_seconds()
            yield name, Reading("seconds of messages lost after it", seconds, 600)
        left = rows_of(url, "SELECT count(*) FROM strandline.session WHERE user_id = %s", ERASED)[0][0]
        yield name, Reading("sessions of the user erased since", left, 0, "sessions")
        undone = "SELECT count(*) FROM strandline.receipt WHERE outcome <> 'applied'"
        yield name, Reading("events that were not applied", rows_of(url, undone)[0][0], 0, "events")
        database = Database.connect(ConnectionOptions.from_settings(url, load_settings(database_url=url)))
        violations = verify(database, deep=True).violations
        database.close()
        yield name, Reading("violations that a verification finds", len(violations), 0, "findings")
