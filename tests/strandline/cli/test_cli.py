"""The command line as a person or a script meets it: sentences, exit codes, plain output, real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import click
import pytest

from strandline.cli.entry import COMMANDS, cli, load_command
from strandline.cli.terminal.output import masked_url
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.processes import forking

ESCAPE = "\x1b"


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ran to its end."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def run() -> Run:
    def run_command(*arguments: str, **environment: str) -> Ended:
        done = forking.run(
            [sys.executable, "-m", "strandline", *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            timeout=600,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    return run_command


def is_sentence(ended: Ended) -> bool:
    """One line on stderr that says who speaks, nothing on stdout, and no traceback."""
    lines = ended.err.splitlines()
    return len(lines) == 1 and lines[0].startswith("strandline: ") and not ended.out


def test_help_names_every_command(run: Run) -> None:
    helped = run("--help")
    assert helped.code == 0
    for name in COMMANDS:
        assert f"  {name} " in helped.out


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_under_its_own_name(name: str) -> None:
    command = load_command(name)
    assert command.name == name
    assert command.short_help is None, "--help shows what the list of commands says, and nothing else"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from strandline.cli.entry import run; run(['--help']);"
        "print([name for name in ('celery', 'sqlalchemy', 'rich', 'openai', 'strandline.deploy')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "arguments", [("nothing",), ("status", "--wrong"), ("flush",), ("up", "--workers", "0")]
)
def test_wrong_usage_exits_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    ended = run(*arguments)
    assert ended.code == 2
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("command", [("status",), ("worker",), ("flush", "s"), ("migrate",)])
def test_without_a_database_there_is_a_sentence(run: Run, command: tuple[str, ...]) -> None:
    ended = run(*command, STRANDLINE_EMBEDDED="auto")
    assert ended.code == 1
    assert is_sentence(ended)
    assert "STRANDLINE_DATABASE_URL" in ended.err
    assert "strandline up" in ended.err


def test_worker_without_a_broker_says_so(run: Run, database_url: str) -> None:
    ended = run("worker", "--database-url", database_url)
    assert ended.code == 1
    assert is_sentence(ended)
    assert "STRANDLINE_BROKER_URL" in ended.err


def test_worker_refuses_a_stage_that_is_none(run: Run, database_url: str, broker_url: str) -> None:
    ended = run(
        "worker", "--queues", "merge,nothing", "--database-url", database_url, "--broker-url", broker_url
    )
    assert ended.code == 1
    assert "nothing" in ended.err
    assert "Traceback" not in ended.err


def test_unreachable_database_shows_no_password(run: Run) -> None:
    url = "postgresql://somebody:s3cret@127.0.0.1:1/none"
    for command in (("migrate",), ("doctor", "--no-model-call")):
        ended = run(
            *command,
            STRANDLINE_DATABASE_URL=url,
            STRANDLINE_CONNECT_TIMEOUT_SECONDS="2",
            STRANDLINE_POOL_TIMEOUT_SECONDS="1",
        )
        assert ended.code == 1
        assert "s3cret" not in ended.out + ended.err
        assert "Traceback" not in ended.err


def url_options(command: click.Command, name: str) -> Iterator[tuple[str, click.Option]]:
    """The options of a command, and of those below it, that take a server's URL."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None
            yield from url_options(inner, f"{name} {word}".strip())
    for option in command.params:
        if isinstance(option, click.Option) and {"--database-url", "--broker-url"} & {*option.opts}:
            yield name, option


def test_each_json_output_has_a_schema() -> None:
    def options_of(command: click.Command) -> Iterator[set[str]]:
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                yield from options_of(inner)
        yield {name for option in command.params for name in option.opts}

    for name in COMMANDS:
        for options in options_of(load_command(name)):
            assert name == "demo" or "--json" not in options or "--json-schema" in options, name


def test_the_help_of_every_url_says_that_arguments_show_in_ps() -> None:
    found = list(url_options(cli, ""))
    assert len({name for name, _ in found}) > 10
    for name, option in found:
        variable = f"STRANDLINE_{option.name}".upper()
        assert variable in str(option.help), name
        assert "`ps`" in str(option.help), name


def test_debug_adds_the_traceback(run: Run) -> None:
    ended = run("status", "--debug")
    assert ended.code == 1
    assert "Traceback" in ended.err
    assert ended.err.splitlines()[-1].startswith("strandline: ")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("redis://:p@ss@host/0", "redis://:***@host/0"),
        (
            "postgresql://host/db?password=pw&sslmode=require",
            "postgresql://host/db?password=***&sslmode=require",
        ),
        ("postgresql://me@/db?host=%2Ftmp", "postgresql://me@/db?host=%2Ftmp"),
    ],
)
def test_passwords_are_masked(url: str, shown: str) -> None:
    assert masked_url(url) == shown


def test_status_of_a_database(run: Run, database_url: str, make_memory: MakeMemory) -> None:
    make_memory("s", user_id="u").put({"role": "user", "content": "I live in Bern."})
    ended = run("status", "--json", STRANDLINE_DATABASE_URL=database_url)
    assert ended.code == 0
    status = json.loads(ended.out)
    assert (status["sessions"], status["messages"], status["events"]) == (1, 1, 0)
    assert [pipeline["name"] for pipeline in status["pipelines"]] == ["facts", "summary", "vectors"]
    assert all({"name", "due", "leased", "dead", "lag_seconds"} <= set(item) for item in status["pipelines"])
    assert status["unserved"] == ["facts", "summary", "vectors"]

    plain = run("status", STRANDLINE_DATABASE_URL=database_url)
    assert "no worker is alive" in plain.out
    assert ESCAPE not in plain.out + plain.err


def test_status_follows_its_schema(run: Run, database_url: str) -> None:
    schema = json.loads(run("status", "--json-schema").out)
    status = json.loads(run("status", "--json", STRANDLINE_DATABASE_URL=database_url).out)
    assert set(schema["required"]) == set(status) == set(schema["properties"])


def test_flush_finds_the_owner_and_delivers(rig: Rig, run: Run) -> None:
    rig.memory("talk", user_id="u").put({"role": "user", "content": "My cat is called Mio."})
    rig.start_worker()
    target = {"STRANDLINE_DATABASE_URL": rig.url, "STRANDLINE_BROKER_URL": rig.broker_url}
    kept = run("flush", "talk", **target)
    assert (kept.code, kept.out) == (0, "talk: nothing to deliver yet; --all also delivers the last turn\n")
    flushed = json.loads(run("flush", "talk", "--all", "--json", **target).out)
    assert flushed["user_id"] == "u"
    assert len(flushed["events"]) == 1
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the event to be consumed")
    assert len(rows_of(rig.url, "SELECT 1 FROM strandline.receipt WHERE outcome = 'applied'")) == 4

    unknown = run("flush", "nobody", **target)
    assert unknown.code == 1
    assert is_sentence(unknown)
    assert run("flush", "talk", "--user", "other", **target).code == 1


@pytest.mark.parametrize(
    ("options", "sessions"),
    [
        (("--user", "u"), ["a", "b"]),
        (("--user", "u", "--namespace", "n"), ["d"]),
        (("--namespace", "n"), ["d", "e"]),
        (("--namespace", "default"), ["a", "b", "c"]),
    ],
)
def test_all_sessions_of_a_user_or_namespace_are_flushed(
    options: tuple[str, ...], sessions: list[str], rig: Rig, run: Run
) -> None:
    for name, user, namespace in (
        ("a", "u", "default"), ("b", "u", "default"), ("c", None, "default"), ("d", "u", "n"), ("e", "v", "n")
    ):  # fmt: skip
        rig.memory(name, user_id=user, namespace=namespace).put({"role": "user", "content": "Hello."})
    target = {"STRANDLINE_DATABASE_URL": rig.url}
    kept = run("flush", *options, **target)
    assert kept.code == 0 and "nothing to deliver yet; --all also delivers the last turn" in kept.out
    flushed = json.loads(run("flush", *options, "--all", "--json", **target).out)
    assert (flushed["sessions"], flushed["events"], flushed["refused"]) == (len(sessions), len(sessions), {})
    delivered = (
        "SELECT s.session_id FROM strandline.flush_event e JOIN strandline.session s USING (session_key)"
    )
    assert sorted(name for (name,) in rows_of(rig.url, delivered)) == sessions
    again = run("flush", *options, "--all", **target)
    assert (again.code, again.out.partition(": ")[2]) == (0, "nothing to deliver\n")
    assert run("flush", **target).code == 2 and run("flush", "--user", "nobody", **target).code == 1


def test_migrate_makes_the_tables_and_says_so(run: Run, empty_database_url: str) -> None:
    missing = run("status", STRANDLINE_DATABASE_URL=empty_database_url)
    assert missing.code == 1
    assert "strandline migrate" in missing.err
    first = json.loads(run("migrate", "--json", STRANDLINE_DATABASE_URL=empty_database_url).out)
    assert first["before"] is None
    assert first["after"]
    again = run("migrate", STRANDLINE_DATABASE_URL=empty_database_url)
    assert again.code == 0
    assert f"revision: {first['after']}\n" in again.out
    assert "so there is nothing to do" in again.out


def test_migrate_divides_the_tables_on_demand(run: Run, empty_database_url: str) -> None:
    target = {"STRANDLINE_DATABASE_URL": empty_database_url}
    assert run("migrate", "--partitions", "1", **target).code == 2
    first = json.loads(run("migrate", "--partitions", "3", "--json", **target).out)
    assert first["partitions"] == {"answer": 3, "chunk": 3, "message": 3, "receipt": 3}
    again = run("migrate", "--partitions", "3", **target)
    assert (again.code, "3 of message" in again.out) == (0, True)
    other = run("migrate", "--partitions", "5", "--json", **target)
    assert other.code == 1
    assert is_sentence(other)
    assert "answer, chunk, message, receipt in 3 partitions each" in run("doctor", **target).out


def test_doctor_of_a_sound_installation(rig: Rig, run: Run) -> None:
    worker = rig.start_worker()
    ended = run("doctor", "--json", STRANDLINE_DATABASE_URL=rig.url, STRANDLINE_BROKER_URL=rig.broker_url)
    report = json.loads(ended.out)
    found = {check["name"]: check for check in report["checks"]}
    assert (ended.code, report["healthy"]) == (0, True)
    for name in ("database", "pgvector", "clock", "tables", "workers", "broker", "vocabularies", "home"):
        assert found[name]["result"] == "ok", found[name]
    assert str(worker.pid) in found["workers"]["found"]


def test_doctor_names_problems_and_exits_with_1(run: Run, empty_database_url: str) -> None:
    ended = run(
        "doctor",
        STRANDLINE_DATABASE_URL=empty_database_url,
        STRANDLINE_BROKER_URL="redis://:s3cret@127.0.0.1:1/0",
        OPENAI_BASE_URL="http://127.0.0.1:1/v1",
    )
    assert ended.code == 1
    problems = [line.split()[1] for line in ended.out.splitlines() if line.startswith("problem")]
    assert problems == ["tables:", "broker:", "text", "embedding"]
    assert "strandline migrate" in ended.out
    assert "s3cret" not in ended.out
    assert ESCAPE not in ended.out


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home directory in which embedded servers may be started."""
    monkeypatch.setenv("STRANDLINE_EMBEDDED", "auto")
    monkeypatch.setenv("STRANDLINE_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"
    assert not (tmp_path / "home" / "embedded.json").exists(), "servers were left running"


def test_up_serves_a_plain_script_and_ctrl_c_ends_it_all(run: Run, home: Path) -> None:
    output = home.parent / "up.txt"
    with output.open("wb") as stream:
        up = forking.Popen(
            [sys.executable, "-m", "strandline", "up"],
            stdout=stream,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    try:
        wait_until(
            lambda: up.poll() is not None or "Ctrl-C" in output.read_text(), timeout=60, what="up to be ready"
        )
        assert up.poll() is None, output.read_text()
        script = (
            "from strandline import Memory\n"
            "memory = Memory.from_defaults('s', user_id='u')\n"
            "memory.put({'role': 'user', 'content': 'I live in Bern and my cat is called Mio.'})\n"
            "memory.flush(all=True)\n"
            "print(memory.get(wait_for=1, timeout=300).caught_up)\n"
        )
        done = forking.run([sys.executable, "-c", script], capture_output=True, check=True)
        assert done.stdout == "True\n"
        status = json.loads(run("status", "--json").out)
        assert (status["sessions"], status["events"], len(status["workers"])) == (1, 1, 1)
        worker_pid = status["workers"][0]["pid"]
    finally:
        up.send_signal(signal.SIGINT)
        code = up.wait(400)
    assert code == 0
    assert ESCAPE not in output.read_text()
    assert not is_alive(worker_pid)
    assert json.loads(run("status", "--json").out)["workers"] == []


@pytest.mark.usefixtures("hung_up")
def test_up_leaves_no_worker_behind_when_its_terminal_is_gone(home: Path) -> None:
    command = [sys.executable, "-m", "strandline", "up"]
    with forking.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as up:
        assert up.stdout is not None
        rows = rows_until_ready(up.stdout)
        up.stdout.close()
        up.send_signal(signal.SIGHUP)
        assert up.wait(400) != 0, "it could not say that it ended"
    assert not is_alive(int(rows["workers"]))


def rows_until_ready(output: IO[str]) -> dict[str, str]:
    """What ``up`` prints, by label, until it has said how it is stopped."""
    rows: dict[str, str] = {}
    while "stop" not in rows:
        label, _, value = output.readline().strip().partition(" ")
        rows[label] = value.strip()
    return rows


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_bytes_that_are_not_text_are_refused_as_wrong_usage() -> None:
    command: list[str | bytes] = [sys.executable, "-m", "strandline", "dead-letters", "list"]
    command += ["--namespace", b"\xff"]
    done = forking.run(command, capture_output=True, timeout=600, check=False)
    assert done.returncode == 2
    assert "Argument 4 holds bytes that are not UTF-8 text" in done.stderr
