"""An upgrade under load: old, migrated, new beside old, new alone, old alone, new alone again."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psycopg

from strandline.administration.keys import KeySpec, create_key
from strandline.pipelines.inspect.verify import verify
from tests.conftest import wait_until
from tests.soak.measuring.ground import ROOT, Ground
from tests.soak.measuring.readings import Reading
from tests.support.processes.service_process import RoundRobin, ServiceProcess
from tests.support.workers.worker_processes import WorkerProcess, collect_output
from tests.upgrade.load import Load, LockWatch
from tests.upgrade.next_release import EVENT_VERSION, REVISION, SETTING, STEPS, make_next_release

LOCK_BOUND_SECONDS = 1.0
# Of a request; a busy machine takes seconds for it, which the bound of locks tells from an upgrade's waits.
PUT_BOUND_SECONDS = 60.0
ENDED_SECONDS = 90.0
SETTLED_SECONDS = 60.0
# So many say that the drill is set up wrongly.
MOST_REFUSED = 20
# Steps give way so often before their table is free.
GIVEN_WAY = 3
Say = Callable[[str], None]


@dataclass(frozen=True)
class Release:
    """A checkout that processes run in."""

    name: str
    folder: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "strandline", *arguments]

    def environment(self, ground: Ground) -> dict[str, str]:
        """Both names of the renamed setting, so that either release starts."""
        return Ground.plain_environment() | {
            "STRANDLINE_DATABASE_URL": ground.database_url,
            "STRANDLINE_BROKER_URL": ground.broker_url,
            "STRANDLINE_EMBEDDED": "never",
            "STRANDLINE_TEXT_BACKEND": "local",
            "STRANDLINE_EMBEDDING_BACKEND": "local",
            **{f"STRANDLINE_{name.upper()}": "150" for name in SETTING},
            "PYTHONPATH": str(self.folder),
            "PYTHONUNBUFFERED": "1",
        }


class ReleasedService(ServiceProcess):
    """``strandline serve`` of a release."""

    def __init__(self, ground: Ground, release: Release, log: Path) -> None:
        self._ground, self._release = ground, release
        super().__init__(ground.database_url, log)

    def _start(self, _url: str, errors: IO[str], _settings: dict[str, str]) -> Any:
        return subprocess.Popen(
            self._release.command("serve", "--port", "0"),
            env=self._release.environment(self._ground) | {"STRANDLINE_SERVICE_DRAIN_SECONDS": "1"},
            cwd=self._release.folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


@dataclass
class Running:
    """A service and a worker of one release."""

    service: ReleasedService
    worker: WorkerProcess

    def end(self) -> None:
        """In order: the service says that it is not ready, and finishes."""
        for process in (self.service.process, self.worker.process):
            process.send_signal(signal.SIGTERM)
        assert self.service.ended() == 0, self.service.said()
        assert self.worker.process.wait(ENDED_SECONDS) == 0, "".join(self.worker.output)


@dataclass
class Drill:
    """One run on a ground of its own.

    Attributes:
        rate: messages a second.
        phase_messages: how many are acknowledged in each phase at least.
        kill_at: the steps at which a migration is killed.
    """

    ground: Ground
    folder: Path
    say: Say
    rate: float = 50.0
    phase_messages: int = 500
    kill_at: Sequence[int] = range(1, STEPS + 1)
    _ending: ExitStack = field(default_factory=ExitStack)
    _started: int = 0
    _old_workers: list[WorkerProcess] = field(default_factory=list)

    def run(self) -> Iterator[Reading]:
        old = Release("old", ROOT)
        new = Release("new", make_next_release(self.folder / "next"))
        with self._ending:
            first = self._start(old)
            balancer = self._ending.enter_context(RoundRobin([first.service]))
            watch = self._ending.enter_context(LockWatch(self.ground.database_url))
            with Load(balancer, self._make_key(), self.rate) as load:
                killed, gave_way = self._phases(old, new, first, balancer, load)
            self._settle()
            yield from self._judge(load, watch, killed, gave_way)

    def _make_key(self) -> str:
        return self.ground.database().run(create_key(KeySpec("default", ["read", "write"]))).key

    def _phases(
        self, old: Release, new: Release, first: Running, balancer: RoundRobin, load: Load
    ) -> tuple[int, int]:
        self._pass(load, "old alone")
        killed, gave_way = self._migrate(new)
        self._pass(load, "old on the new tables")
        service = self._serve(new)
        balancer.add(service)
        wait_until(lambda: bool(self._left_by_old()), timeout=60, what="newer events, with old workers alone")
        second = Running(service, self._work(new))
        self._pass(load, "new beside old")
        self._end(first, balancer)
        self._pass(load, "new alone")
        third = self._start(old)
        balancer.add(third.service)
        self._end(second, balancer)
        self._pass(load, "old again, alone")
        fourth = self._start(new)
        balancer.add(fourth.service)
        self._end(third, balancer)
        self._pass(load, "new again, alone")
        return killed, gave_way

    def _left_by_old(self) -> list[tuple[int, str]]:
        """What old workers said of newer events: their pids, and the stages."""
        return [
            (worker.pid, match[1])
            for worker in self._old_workers
            for line in list(worker.output)
            if "newer release" in line and (match := re.search(r"lane=(\w+)/", line))
        ]

    def _start(self, release: Release) -> Running:
        return Running(self._serve(release), self._work(release))

    def _serve(self, release: Release) -> ReleasedService:
        self._started += 1
        service = ReleasedService(self.ground, release, self.folder / f"service-{self._started}.log")
        self._ending.callback(service.ended)
        self._ending.callback(service.process.kill)
        wait_until(service.is_ready, timeout=30, what=f"a {release.name} service")
        return service

    def _work(self, release: Release) -> WorkerProcess:
        process = subprocess.Popen(
            release.command("worker"),
            env=release.environment(self.ground),
            cwd=release.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        worker = collect_output(process)
        if release.name == "old":
            self._old_workers.append(worker)
        self._ending.callback(worker.end)
        beats = "SELECT FROM strandline.worker WHERE pid = %s"
        wait_until(lambda: self.ground.rows(beats, process.pid), timeout=30, what=f"a {release.name} worker")
        self.say(f"service and worker of the {release.name} release run")
        return worker

    def _end(self, running: Running, balancer: RoundRobin) -> None:
        running.end()
        balancer.remove(running.service)

    def _pass(self, load: Load, phase: str) -> None:
        """Wait until so many more messages are acknowledged."""
        aim = load.count + self.phase_messages
        wait_until(
            lambda: load.count >= aim or len(load.refused) > MOST_REFUSED,
            timeout=self.phase_messages / self.rate + 10,
            what=phase,
        )
        assert load.count >= aim, f"{phase}: {load.refused[-1]}"
        self.say(f"{phase}: {load.count} acknowledged, longest put {load.longest:.2f} s")

    def _migrate(self, new: Release) -> tuple[int, int]:
        """Migrate, killed at each step; returns how often it was killed, and gave way to a reader."""
        said: list[str] = []
        # A long report reads both tables until steps have given way: in the first run, which finds no step
        # done.
        with psycopg.connect(self.ground.database_url) as report:
            report.execute("SELECT FROM strandline.session, strandline.flush_event LIMIT 1")
            killed = sum([self._run_migrate(new, said, f"step {step} of ", report) for step in self.kill_at])
        self._run_migrate(new, said, "no such line")
        assert self.ground.rows("SELECT version_num FROM strandline.alembic_version") == [(REVISION,)], said
        gave_way = sum("gives way" in line for line in said)
        self.say(f"migrated: killed {killed} times, gave way {gave_way} times")
        return killed, gave_way

    def _run_migrate(
        self, new: Release, said: list[str], kill_at: str, report: psycopg.Connection[Any] | None = None
    ) -> bool:
        process = subprocess.Popen(
            new.command("migrate"),
            env=new.environment(self.ground),
            cwd=new.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                said.append(line)
                if report and sum("gives way" in line for line in said) == GIVEN_WAY:
                    report.rollback()
                if kill_at in line:
                    process.kill()
                    break
        code = process.wait(ENDED_SECONDS)
        assert code in (0, -signal.SIGKILL), said
        return code != 0

    def _settle(self) -> None:
        began = time.monotonic()
        wait_until(self.ground.nothing_due, timeout=SETTLED_SECONDS, what="the work's end")
        self.say(f"all work is done {time.monotonic() - began:.1f} s after the load")

    def _judge(self, load: Load, watch: LockWatch, killed: int, gave_way: int) -> Iterator[Reading]:
        rows = self.ground.rows
        yield Reading("messages acknowledged", load.count, 6 * self.phase_messages, "messages", at_least=True)
        yield Reading("requests refused", len(load.refused), 0, "requests")
        yield Reading("longest wait of a statement for a table's lock", watch.longest, LOCK_BOUND_SECONDS)
        yield Reading("longest put, on a machine that starts processes", load.longest, PUT_BOUND_SECONDS)
        yield Reading("migrations killed", killed, len(self.kill_at), "kills", at_least=True)
        yield Reading(
            "times a step gave way to a reader, and so to puts", gave_way, GIVEN_WAY, "times", at_least=True
        )
        stored = rows(
            "SELECT s.session_id, m.id FROM strandline.message m"
            " JOIN strandline.session s USING (shard_key, session_key)"
        )
        acknowledged = {(session, name) for session, names in load.acknowledged.items() for name in names}
        yield Reading("acknowledged messages lost", len(acknowledged - set(stored)), 0, "messages")
        yield Reading("messages stored twice", len(stored) - len(set(stored)), 0, "messages")
        yield from self._judge_events()
        findings = verify(self.ground.database(), deep=True).violations
        yield Reading("violations that a verification finds", len(findings), 0, "findings")

    def _judge_events(self) -> Iterator[Reading]:
        rows = self.ground.rows
        versions = dict(rows("SELECT version::int, count(*) FROM strandline.flush_event GROUP BY 1"))
        for version in (1, EVENT_VERSION):
            yield Reading(
                f"events of version {version}", versions.get(version, 0), 1, "events", at_least=True
            )
        outcomes = dict(rows("SELECT outcome, count(*) FROM strandline.receipt GROUP BY 1"))
        yield Reading(
            "events that were not applied", sum(outcomes.values()) - outcomes.get("applied", 0), 0, "events"
        )
        yield Reading("dead letters", rows("SELECT count(*) FROM strandline.dead_letter")[0][0], 0, "letters")
        said = self._left_by_old()
        stages = set(said)
        yield Reading("stages of old workers that left newer events", len(stages), 1, "stages", at_least=True)
        yield Reading("times that it said so again", len(said) - len(stages), 0, "times")
