"""The command line with any arguments: it does its work, or says in a sentence what is wrong."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import Memory
from strandline.cli.commands import COMMANDS
from strandline.cli.entry import cli, run
from tests.fuzz.running import fuzzed
from tests.fuzz.values import texts

# They run until they are told to stop; their options are read all the same.
LONG_RUNNING = {"up", "demo", "worker", "mcp", "serve"}
# Which hosts are tried, and how often something is shown again, is not for fuzzing.
LEFT_OUT = {"--database-url", "--broker-url", "--watch", "--interval", "--wait"}
UNEXPECTED = "Unexpected error"


def commands() -> dict[tuple[str, ...], click.Command]:
    """Every command by the words that call it."""
    found: dict[tuple[str, ...], click.Command] = {}

    def collect(words: tuple[str, ...], command: click.Command) -> None:
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                if (inner := command.get_command(context, name)) is not None:
                    collect((*words, name), inner)
        else:
            found[words] = command

    context = click.Context(cli)
    for name in COMMANDS:
        if (command := cli.get_command(context, name)) is not None:
            collect((name,), command)
    return found


FOUND = commands()
_words = st.one_of(
    texts.filter(lambda text: text not in LEFT_OUT),
    st.sampled_from(["s", "fuzz", "default", "1", "-1", "0", "facts", "summary", "--", "-", "--zyzzyva"]),
    st.integers().map(str),
    st.uuids().map(str),
)


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    """A command with some of its options and arguments, each with any value."""
    words, command = draw(st.sampled_from(sorted(FOUND.items(), key=lambda item: item[0])))
    line = list(words)
    parameters = [one for one in command.params if not set(one.opts) & LEFT_OUT]
    for parameter in draw(st.lists(st.sampled_from(parameters), max_size=3, unique=True)):
        if isinstance(parameter, click.Option):
            line.append(parameter.opts[0])
        if isinstance(parameter, click.Argument) or not getattr(parameter, "is_flag", False):
            line.append(draw(_values_of(parameter)))
    if words[0] == "replay":
        line.append("--dry-run")  # else it waits for workers
    if words[0] in LONG_RUNNING:
        line.append(draw(st.sampled_from(["--help", "--zyzzyva", "one too many"])))
    return line


def _values_of(parameter: click.Parameter) -> st.SearchStrategy[str]:
    choices = parameter.type.choices if isinstance(parameter.type, click.Choice) else ()
    return st.sampled_from([str(one) for one in choices]) | _words if choices else _words


@pytest.fixture
def stored(database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A database with a session in it, which commands find by the environment."""
    memory = Memory.from_defaults("s", user_id="fuzz", database_url=database_url)
    memory.put({"role": "user", "content": "I have a boat."})
    memory.flush(all=True)
    memory.close()
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    monkeypatch.setenv("STRANDLINE_BROKER_URL", "redis://127.0.0.1:1/0")
    monkeypatch.chdir(tmp_path)


def outcome(line: list[str]) -> tuple[int, str]:
    """The exit code and all that was printed, through streams that encode as a terminal's do."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patched:
        for name, stream in zip(("stdout", "stderr"), streams, strict=True):
            patched.setattr(sys, name, stream)
        patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8"))
        code = run([word.replace("\x00", "") for word in line])
    printed: list[Any] = [stream.buffer.getvalue() for stream in streams]
    return code, b"".join(printed).decode()


@pytest.mark.usefixtures("stored")
@given(line=lines())
@fuzzed()
def test_any_line_does_its_work_or_says_what_is_wrong(line: list[str]) -> None:
    code, said = outcome(line)
    assert code in (0, 1, 2), said
    assert UNEXPECTED not in said and "Traceback" not in said
    assert code == 0 or said.strip(), "it failed without a word"
