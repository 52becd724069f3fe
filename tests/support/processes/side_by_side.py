"""Running the tests in several processes, which are forked once the tests have been collected.

Importing and collecting eight thousand tests takes as long as running hundreds of them.  So one process does
it, and copies of it run the tests, a file at a time: ``pytest --workers 5``.  A copy tells the first process
what becomes of each test, and that one reports it as if it had run all of them.  With pytest-xdist
(``pytest -n 5``) each process imports and collects everything for itself.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

# How late the end of a worker is seen whose own children have its connection; all else is seen at once.
LOOK_SECONDS = 1.0

Items = Sequence[pytest.Item]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, help="run the tests in so many copies of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With ``--workers`` the tests run in copies of this process, otherwise as usual."""
    workers = session.config.option.workers
    if not workers or session.testsfailed or session.config.option.collectonly:
        return None
    run_side_by_side(session, workers)
    return True


def run_side_by_side(session: pytest.Session, count: int) -> None:
    """Run the collected tests in ``count`` copies of this process; in a copy, what falls to it."""
    groups = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
    conductor = Conductor(session, len(groups))
    folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    for number in range(min(count, len(groups))):
        connection = conductor.fork(f"gw{number}")
        if connection is not None:
            become_worker(session.config, folder / f"gw{number}", connection)
            run_groups(session, groups, connection)
            return
    conductor.conduct()


# In the first process.


@dataclass
class Worker:
    """A copy of this process; ``test`` is what it runs just then."""

    name: str
    pid: int
    connection: Connection[Any, Any]
    test: str = ""
    has_ended: bool = False


class Conductor:
    """Hands out groups of tests in order, and reports what the workers tell."""

    def __init__(self, session: pytest.Session, groups: int) -> None:
        self._session = session
        self._hook = session.config.hook
        self._numbers = iter(range(groups))
        self._workers: list[Worker] = []
        self._complaints: list[str] = []

    def fork(self, name: str) -> Connection[Any, Any] | None:
        """Start a worker; returns in it as well, and there alone with its connection."""
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            theirs.close()
            self._workers.append(Worker(name, pid, ours))
            return None
        for connection in (ours, *(worker.connection for worker in self._workers)):
            connection.close()
        return theirs

    def conduct(self) -> None:
        """Return once every worker has ended; what went wrong outside of tests ends the run with code 3."""
        terminal = self._session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False  # files take turns
        try:
            while self._workers:
                self._listen()
        finally:
            for worker in self._workers:
                os.kill(worker.pid, signal.SIGINT)
                os.waitpid(worker.pid, 0)
        if self._complaints:
            pytest.exit("\n".join(self._complaints), returncode=3)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _listen(self) -> None:
        workers = {worker.connection: worker for worker in self._workers}
        ready = wait(workers, LOOK_SECONDS)
        for connection in ready:
            worker = workers[connection]  # type: ignore[index]
            try:
                kind, content = worker.connection.recv()
            except (EOFError, OSError):
                self._bury(worker, os.waitpid(worker.pid, 0)[1])
            else:
                getattr(self, f"_hear_{kind}")(worker, content)
        for worker in () if ready else tuple(self._workers):
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid and not worker.connection.poll():
                self._bury(worker, status)

    def _bury(self, worker: Worker, status: int) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        if not worker.has_ended:
            code = os.waitstatus_to_exitcode(status)
            self._complaints.append(f"{worker.name} ended with {code} in {worker.test or 'no test'}")

    def _hear_ready(self, worker: Worker, _content: object) -> None:
        is_over = self._session.shouldfail or self._session.shouldstop
        worker.connection.send(None if is_over else next(self._numbers, None))

    def _hear_start(self, worker: Worker, test: tuple[str, Any]) -> None:
        worker.test = test[0]
        self._hook.pytest_runtest_logstart(nodeid=test[0], location=test[1])

    def _hear_finish(self, worker: Worker, test: tuple[str, Any]) -> None:
        worker.test = ""
        self._hook.pytest_runtest_logfinish(nodeid=test[0], location=test[1])

    def _hear_report(self, worker: Worker, data: dict[str, Any]) -> None:
        report = self._hook.pytest_report_from_serializable(config=self._session.config, data=data)
        # As pytest-xdist's reports have it: pytest prints which worker it was.
        gateway = SimpleNamespace(id=worker.name)
        report.node = SimpleNamespace(gateway=gateway, _workerinfocache=f"[{worker.name}]")
        self._hook.pytest_runtest_logreport(report=report)

    def _hear_warning(self, _worker: Worker, recorded: tuple[str, str, int, dict[str, Any]]) -> None:
        text, file, line, about = recorded
        message = warnings.WarningMessage(UserWarning(text), UserWarning, file, line)
        self._hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": message, **about})

    def _hear_error(self, worker: Worker, text: str) -> None:
        self._complaints.append(f"{worker.name}: {text}")

    def _hear_end(self, worker: Worker, _content: object) -> None:
        worker.has_ended = True


# In a copy.


def become_worker(config: pytest.Config, folder: Path, connection: Connection[Any, Any]) -> None:
    """Write to a folder of its own, print nothing, keep no cache, and tell the first process what happens."""
    config.workerinput = {"workerid": folder.name}  # type: ignore[attr-defined]  # what plugins look for
    os.environ["PYTEST_XDIST_WORKER"] = folder.name  # what others look for
    config.option.basetemp = folder
    config._tmp_path_factory = pytest.TempPathFactory.from_config(config, _ispytest=True)  # type: ignore[attr-defined]
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()  # its files were shared
    config.get_terminal_writer()._file = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    config.pluginmanager.register(Messenger(config, connection), "messenger")


def run_groups(session: pytest.Session, groups: Sequence[Items], connection: Connection[Any, Any]) -> None:
    """Run one group after the other, as long as there are any."""
    while (number := _ask(connection)) is not None:
        items = groups[number]
        # What follows a file's last test is not known, only that what the whole run shares has to stay.
        for item, follower in zip(items, [*items[1:], session], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=follower)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)


def _ask(connection: Connection[Any, Any]) -> int | None:
    connection.send(("ready", None))
    try:
        number: int | None = connection.recv()
    except EOFError:
        return None
    return number


class Messenger:
    """A plugin that tells the first process of each report, and of what goes wrong."""

    def __init__(self, config: pytest.Config, connection: Connection[Any, Any]) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("start", (nodeid, location)))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("finish", (nodeid, location)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        about = {"when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("warning", (text, warning_message.filename, warning_message.lineno, about)))

    def pytest_internalerror(self, excrepr: object) -> None:
        self._connection.send(("error", str(excrepr)))

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """What the whole run shared ends here, such as the servers."""
        try:
            result = yield
        except BaseException:
            self._connection.send(("error", traceback.format_exc()))
            raise
        self._connection.send(("end", None))
        return result
