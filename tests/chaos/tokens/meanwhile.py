"""Runs beside the calls: cuts connections, kills the service, and gives the commands of operators."""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.children import run_command
from tests.chaos.faults.line import PostgresLine
from tests.chaos.tokens.book import Book
from tests.support.processes import forking
from tests.support.processes.service_process import ServiceProcess

PIPELINES = ("facts", "summary", "vectors")
SEALED, AGED = "sealed", "aged"
COMMAND_SECONDS = 300.0
KILL_SHARE = 0.2
END_CONNECTIONS = """
SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    AND backend_type = 'client backend' ORDER BY random() LIMIT %s) AS chosen
"""


class Cutter:
    """Ends connections to Postgres, some by the server and some on the way; and now and then the service."""

    def __init__(
        self,
        book: Book,
        chance: random.Random,
        over: threading.Event,
        *,
        url: str,
        line: PostgresLine,
        restart_service: Callable[[], None],
        pause_seconds: float,
    ) -> None:
        self._book, self._chance, self._over, self._url, self._line = book, chance, over, url, line
        self._restart, self._pause = restart_service, pause_seconds
        self.thread = threading.Thread(target=self._run, name="cuts")

    def _run(self) -> None:
        while not self._over.wait(self._chance.uniform(0.3, 1.7) * self._pause):
            what = self._chance.choices(("backends", "line", "service"), (6, 3, 0.4))[0]
            if what == "backends":
                with psycopg.connect(self._url, autocommit=True) as connection:
                    connection.execute(END_CONNECTIONS, [self._chance.randint(1, 4)])
            elif what == "line":
                self._line.mend()
            else:
                self._restart()
            self._book.counts[f"cut: {what}"] += 1


class Service:
    """The service, at a URL that changes when it was killed."""

    def __init__(self, database_url: str, log: Path, environment: Mapping[str, str]) -> None:
        self._database_url, self._log, self._environment = database_url, log, environment
        self._process = self._start()

    def _start(self) -> ServiceProcess:
        return ServiceProcess(self._database_url, self._log, **self._environment)

    def url(self) -> str:
        return self._process.url

    def restart(self) -> None:
        self.stop()
        self._process = self._start()

    def stop(self) -> None:
        self._process.process.kill()
        self._process.ended()


class Operator:
    """Runs commands one after the other: generations, encryption, retention, and the proofs."""

    def __init__(
        self,
        book: Book,
        chance: random.Random,
        over: threading.Event,
        *,
        environment: Mapping[str, str],
        pause_seconds: float,
        progress: Callable[[], float],
        unfinished: Callable[[], frozenset[int]],
    ) -> None:
        self._book, self._chance, self._over, self._environment = book, chance, over, environment
        self._pause, self._progress, self._unfinished = pause_seconds, progress, unfinished
        self._keys = ["into", "from"]
        self._is_enabled = self.is_sealed = False
        self._half_pruned: list[str] = []
        self.thread = threading.Thread(target=self._run, name="operator")

    def _run(self) -> None:
        acts = (self.replay, self.replay, self.switch, self.switch, self.encrypt, self.encrypt, self.retain)
        while not self._over.wait(self._chance.uniform(0.3, 1.7) * self._pause):
            try:
                self._chance.choice((*acts, self.prove))()
            except Exception as error:  # noqa: BLE001 - the outermost edge of this thread: a finding
                self._book.blame(None, f"an operator: {type(error).__name__}: {error}")

    def run(self, *arguments: str, may_die: bool = False) -> subprocess.CompletedProcess[str] | None:
        """A command; None if it was killed in the middle, as some are that ``may_die``."""
        dies = may_die and self._chance.random() < KILL_SHARE
        seconds = self._chance.uniform(0.1, 4) if dies else COMMAND_SECONDS
        name, began = " ".join(arguments[:2]), self._book.now()
        try:
            done = run_command(forking.Popen, arguments, self._environment, seconds)
        except subprocess.TimeoutExpired:
            self._say(began, arguments, "killed")
            self._book.counts[f"command {name}: killed"] += 1
            if not dies:
                self._book.blame(None, f"{arguments} did not end within {seconds} s; {self.listed()}")
            return None
        why = done.stderr.strip().rpartition("\n")[2][-300:] if done.returncode else ""
        self._say(began, arguments, f"{done.returncode} {why}")
        self._book.counts[f"command {name}: {done.returncode}"] += 1
        if "Traceback" in done.stderr:
            self._book.blame(None, f"{arguments} ended with {done.stderr[-3000:]}")
        return done

    def _say(self, began: float, arguments: Sequence[str], ended: str) -> None:
        self._book.say(f"{began:.1f} to {self._book.now():.1f} s: {' '.join(arguments)}: {ended}")

    def listed(self) -> dict[str, Any]:
        done = self.run("generations", "list", "--json")
        return (
            json.loads(done.stdout) if done and done.returncode == 0 else {"generations": [], "replays": []}
        )

    def replay(self) -> None:
        pipeline = self._chance.choice(PIPELINES)
        if unfinished := self.listed()["replays"]:
            self.resume(unfinished)
        elif self._chance.random() < 0.3:
            self.run("replay", "--pipeline", pipeline, "--json", may_die=True)
        else:
            hold = ["--hold"] if self._chance.random() < 0.4 else []
            self.run("replay", "--pipeline", pipeline, "--new", "--force", "--json", *hold, may_die=True)

    def resume(self, replays: Sequence[Mapping[str, Any]], *, may_die: bool = True) -> None:
        for one in replays:
            self.run("replay", "--resume", str(one["replay_id"]), "--json", may_die=may_die)

    def switch(self) -> None:
        """Let another generation serve, go back, or delete what does not serve."""
        others = [str(one["generation"]) for one in self.listed()["generations"] if one["state"] != "serving"]
        what = self._chance.choice(("promote", "rollback", "prune"))
        if what == "rollback":
            self.run("generations", "rollback", "--pipeline", self._chance.choice(PIPELINES))
        elif others:
            number = self._chance.choice(others)
            done = self.run("generations", what, number, may_die=what == "prune")
            if what == "prune" and done is None:
                self._half_pruned.append(number)

    def encrypt(self) -> None:
        if self._progress() < 0.15:
            return
        if not self._is_enabled:
            done = self.run("encryption", "enable", SEALED, "--vectors", "clear", may_die=True)
            self._is_enabled = done is not None and done.returncode == 0
            return
        match self._chance.choice(("key", "data", "reseal")):
            case "key":
                done = self.run("encryption", "rotate", SEALED, "--key", self._keys[0], may_die=True)
                if done is not None and done.returncode == 0:
                    self._keys.reverse()
            case "data":
                self.run("encryption", "rotate", SEALED, "--data", may_die=True)
            case _:
                self.run("encryption", "reseal", SEALED, may_die=True)

    def finish(self) -> None:
        """At the end: what was killed is run again, until it is done."""
        while self._is_enabled and not self.is_sealed:
            done = self.run("encryption", "reseal", SEALED, "--wait")
            self.is_sealed = done is not None and done.returncode == 0
        for _attempt in range(10):
            if unfinished := self.listed()["replays"]:
                self.resume(unfinished, may_die=False)
        if unfinished := self.listed()["replays"]:
            self._book.blame(None, f"replays do not end when they are resumed: {unfinished}")
        for number in self._half_pruned:
            self.run("generations", "prune", number)

    def retain(self) -> None:
        self.run("retention", "run", "--namespace", AGED, "--at-once", may_die=True)

    def prove(self) -> None:
        """All three proofs, which say nothing but of erasures that are not finished."""
        self._proof("verify", "--deep", "--json")
        self._proof("audit", "verify")
        said = self._said_of_erasures()
        # Between two of its looks somebody may be let in again, and put: what is wrong stays so.
        if said and (again := self._said_of_erasures()) and (wrong := [one for one in said if one in again]):
            self._book.blame(None, f"erasures verify says, beside what is unfinished: {wrong}")

    def _said_of_erasures(self) -> list[str]:
        """Findings of the command other than the unfinished erasures, each of which it must name."""
        before = self._unfinished()
        done = self._ran("erasures", "verify", "--json")
        if done is None or not done.stdout:
            return [] if done is None else [f"nothing: {done.stderr[-500:]}"]
        report = json.loads(done.stdout)
        found = [(one["finding"], one["number"]) for one in report["findings"]]
        unnamed = before & self._unfinished() - {number for _finding, number in found}
        wrong = [f"{kind} {number}" for kind, number in found if kind != "unfinished"]
        return [
            *wrong,
            *(f"nothing of {number}, unfinished" for number in sorted(unnamed)),
            *(f"rows in {table}" for table in report["erased_rows"]),
        ]

    def _proof(self, *arguments: str) -> None:
        done = self._ran(*arguments)
        if done is not None and done.returncode != 0:
            said = json.loads(done.stdout)["violations"] if "--json" in arguments else done.stdout
            self._book.blame(None, f"{arguments} ended with {done.returncode}: {said} {done.stderr[-500:]}")

    def _ran(self, *arguments: str) -> subprocess.CompletedProcess[str] | None:
        """A proof, again if it could say nothing: its connection was cut."""
        done = self.run(*arguments)
        for _attempt in range(9):
            if done is None or done.returncode == 0 or done.stdout:
                break
            done = self.run(*arguments)
        return done
