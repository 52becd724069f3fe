"""The demo as its own process: on short files, with its worker killed, and with files it cannot use."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from uuid import uuid4

import pytest
from rich.console import Console

from strandline.cli.demo.command import smallest_token_limit
from strandline.cli.demo.play import Look, Play, Question, SeenEvent, await_consumed, read_conversation
from strandline.cli.demo.story import AnswerReport, EvidencePlaces, Story, ask
from strandline.cli.entry import run
from strandline.cli.terminal.output import percentile
from strandline.memory import Memory
from strandline.schemas.queries.conversation.sessions import ShowEventsRow
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, wait_until
from tests.support.processes import forking
from tests.support.processes.commands import run_here

DIGRESSIONS = ("the harbour", "the old bridge", "the bakery", "the night train", "the botanical garden")


@pytest.fixture(autouse=True)
def _embedded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The demo starts separate servers, in a directory that it removes again."""
    temporary = Path(tempfile.mkdtemp(prefix="demo-test-"))
    # As root, Postgres has a separate account, which has to pass through.
    temporary.chmod(0o711)
    monkeypatch.setenv("STRANDLINE_EMBEDDED", "auto")
    # A killed worker's lanes are free again after two seconds, not five.
    monkeypatch.setenv("STRANDLINE_WORKER_DEAD_AFTER_SECONDS", "2")
    monkeypatch.setenv("STRANDLINE_HEARTBEAT_INTERVAL_SECONDS", "0.5")
    monkeypatch.setenv("TMPDIR", str(temporary))
    yield
    assert not list(temporary.glob("strandline-demo-*")), "the demo left its home directory behind"
    for path in temporary.iterdir():
        path.rmdir()
    temporary.rmdir()


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """80 messages with facts, ids on some, a question beside them."""
    lines = []
    for turn in range(40):
        place = DIGRESSIONS[turn % len(DIGRESSIONS)]
        said = (
            f"I bought {turn + 2} lanterns near {place} and my neighbour number {turn} is called Ada{turn}."
        )
        lines.append({"role": "user", "content": said, "id": f"m{turn}", "name": "Ines"})
        lines.append(
            {
                "role": "assistant",
                "content": f"Noted: {turn + 2} lanterns, close to {place}, for turn {turn}.",
            }
        )
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    questions = [{"question": "Who is neighbour number 39?", "answer": "Ada39", "evidence": ["m39"]}]
    (tmp_path / "chat.qa.json").write_text(json.dumps(questions), encoding="utf-8")
    return path


@dataclass
class Demo:
    """A running demo and the lines it has written to stderr."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def has(self, pattern: str) -> bool:
        return any(re.search(pattern, line) for line in self.lines)

    def worker_pid(self) -> int:
        found = (re.search(r"worker +process (\d+)", line) for line in self.lines)
        return int(next(match.group(1) for match in found if match))


@pytest.fixture
def start_demo() -> Iterator[Callable[..., Demo]]:
    started: list[tuple[Demo, threading.Thread]] = []

    def start(*arguments: str) -> Demo:
        process = forking.Popen(
            [sys.executable, "-m", "strandline", "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        demo = Demo(process)
        stderr = process.stderr
        assert stderr is not None
        reader = threading.Thread(target=_collect, args=(stderr, demo.lines), daemon=True)
        reader.start()
        started.append((demo, reader))
        return demo

    yield start
    for demo, reader in started:
        if demo.process.poll() is None:
            demo.process.send_signal(signal.SIGINT)
            demo.process.wait(400)
        reader.join(100)
        assert demo.process.stdout is not None
        demo.process.stdout.close()


def _collect(stream: IO[str], lines: list[str]) -> None:
    with stream:
        lines.extend(stream)


def result_of(demo: Demo) -> dict[str, object]:
    assert demo.process.stdout is not None
    text = demo.process.stdout.read()
    demo.process.wait(600)
    loaded: dict[str, object] = json.loads(text)
    return loaded


def test_a_worker_killed_in_the_middle_costs_nothing(chat: Path, start_demo: Callable[..., Demo]) -> None:
    demo = start_demo(
        "--file", str(chat), "--token-limit", "1200", "--flush-size", "200", "--pace", "0.03", "--json"
    )
    wait_until(lambda: demo.has("flush event 2 "), timeout=60, what="the second flush")
    os.kill(demo.worker_pid(), signal.SIGKILL)
    result = result_of(demo)
    figures, checks = result["figures"], result["checks"]
    assert isinstance(figures, dict)
    assert isinstance(checks, list)
    assert demo.process.returncode == 0, checks
    assert all(check["ok"] for check in checks)
    assert figures["messages"] == 80
    assert figures["worker_ends"] == 1
    assert figures["events"] >= 5
    assert figures["applications"] == 3 * figures["events"]
    assert figures["get_tokens_max"] <= 1200
    assert figures["facts"] > 0
    assert demo.has("SIGKILL")
    questions = result["questions"]
    assert isinstance(questions, list)
    assert [question["evidence_given"] for question in questions] == [["m39"]]
    evidence = result["evidence"]
    assert isinstance(evidence, dict)
    assert (evidence["questions_with_all"], evidence["share_given"]) == (1, 1.0)
    assert demo.has("all the evidence for 1 of 1 question, and 100% of all evidence")


def look(consumed: int) -> Look:
    """Of three events, ``consumed`` are."""
    ends = [{"facts": 0.1} if number < consumed else {} for number in range(3)]
    row = ShowEventsRow(uuid4(), "threshold", 1, 2, 2, 9, "[]")
    return Look(events=[SeenEvent(row, end, {}) for end in ends])


@pytest.mark.parametrize(("looks", "waits"), [((0, 1, 2, 3), True), ((0, 1, 1), False)])
def test_the_demo_waits_for_work_that_goes_on_and_for_no_other(looks: tuple[int, ...], waits: bool) -> None:
    """With no patience at all, so that only a step further is waited for."""
    left = iter(looks)
    seen, waited = await_consumed(
        lambda: look(next(left)),
        ["facts"],
        patience_seconds=lambda: 0.0,
        pause=lambda _seconds: None,
    )
    assert (waited is not None) == waits
    assert sum(event.is_consumed_by(["facts"]) for event in seen.events) == looks[-1]
    assert list(left) == []


def test_another_worker_started_by_hand_takes_over(chat: Path, start_demo: Callable[..., Demo]) -> None:
    """With --no-restart the printed command, run in a second terminal, does the rest."""
    demo = start_demo(
        "--file",
        str(chat),
        "--token-limit",
        "1200",
        "--flush-size",
        "200",
        "--pace",
        "0.02",
        "--no-restart",
        "--json",
    )
    wait_until(lambda: demo.has("flush event 1 "), timeout=60, what="the first flush")
    os.kill(demo.worker_pid(), signal.SIGKILL)
    wait_until(lambda: demo.has("is not started again"), timeout=10, what="the demo to notice")
    (command,) = {line.strip() for line in demo.lines if line.strip().startswith("STRANDLINE_HOME=")}
    with forking.Popen(["sh", "-c", f"exec env {command}"], stdout=subprocess.DEVNULL) as worker:
        result = result_of(demo)
        assert worker.wait(300) == 0, "the demo ends workers that were attached to it"
    assert demo.process.returncode == 0, result["checks"]


def test_ctrl_c_ends_the_demo_and_its_worker(chat: Path, start_demo: Callable[..., Demo]) -> None:
    demo = start_demo("--file", str(chat), "--pace", "1", "--json")
    wait_until(lambda: demo.has("worker +process"), timeout=60, what="the play to start")
    pid = demo.worker_pid()
    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(400) == 130
    assert not demo.has("Traceback")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ctrl_c_also_ends_a_worker_that_was_attached(chat: Path, start_demo: Callable[..., Demo]) -> None:
    demo = start_demo("--file", str(chat), "--pace", "1", "--json")
    wait_until(lambda: demo.has("STRANDLINE_HOME="), timeout=60, what="the line that says how to attach")
    homes = (re.search(r"STRANDLINE_HOME=(\S+) ", line) for line in demo.lines)
    home = next(match.group(1) for match in homes if match)
    with forking.Popen(
        [sys.executable, "-m", "strandline", "worker"],
        env=os.environ | {"STRANDLINE_HOME": home},
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        try:
            assert worker.stdout is not None
            assert "is ready" in worker.stdout.readline()
            demo.process.send_signal(signal.SIGINT)
            assert demo.process.wait(400) == 130
            assert worker.wait(100) == 0
        finally:
            worker.kill()


def test_output_in_a_pipe_is_plain(chat: Path) -> None:
    chat.with_suffix(".qa.json").unlink()
    done = forking.run(
        [sys.executable, "-m", "strandline", "demo", "--file", str(chat), "--keep"],
        capture_output=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "local stand-ins" in done.stdout
    assert "FAILED" not in done.stdout
    steps = done.stdout.partition("== Try next")[2]
    assert re.findall(r"strandline (up|import|ask)\b", steps) == ["up", "import", "ask"]
    assert done.stderr == ""
    home = Path(done.stdout.rpartition("the home directory was kept: ")[2].strip())
    assert (home / "postgres").is_dir()
    shutil.rmtree(home)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"role": "user", "content": "a"}\n{"role": "user"}\n', "line 2"),
        ('{"role": "user", "content": "a"}\n\nnonsense\n', "line 3"),
        ('["user"]\n', "line 1"),
        ('{"role": "king", "content": "a"}\n', "line 1"),
        (
            '{"role": "user", "content": "a", "id": "x"}\n{"role": "user", "content": "b", "id": "x"}\n',
            "line 2",
        ),
        ("\n", "no messages"),
    ],
)
def test_a_line_that_is_no_message_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="utf-8")
    done = run_here("demo", "--file", str(path))
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert complaint in done.err


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = run_here("demo", "--file", str(tmp_path / "none.jsonl"))
    assert done.code == 1
    assert "none.jsonl cannot be read" in done.err


def test_answers_name_the_messages_that_they_come_from(make_memory: MakeMemory) -> None:
    memory = make_memory("talk", user_id="u", consume="background")
    said = ("My neighbour is called Ada Lindgren.", "I live in Bern, close to the bear park.")
    for name, text in zip(("a", "b"), said, strict=True):
        memory.put({"role": "user", "content": text, "id": name})
    memory.put({"role": "assistant", "content": "Noted.", "id": "c"})
    memory.flush(all=True)
    assert memory.get(wait_for=3, timeout=300).caught_up

    def ask_of(memory: Memory, text: str, *evidence: str) -> AnswerReport:
        question = Question(question=text, evidence=list(evidence))
        return ask(Play(memory, stored=memory.get_all()), question)

    named = "What is the name of my neighbour?"
    answer = ask_of(memory, named, "a", "elsewhere")
    assert "a" in [message.id for message in answer.retrieved]
    assert answer.facts == [], "the message says it"
    knowing = make_memory("talk", user_id="u", memory_blocks=["facts"])
    by_fact = ask_of(knowing, named, "a", "elsewhere")
    assert by_fact.facts[0].message_ids == ["a"]
    assert by_fact.retrieved == []
    assert answer.window_message_ids == by_fact.window_message_ids == []
    assert answer.evidence_given == by_fact.evidence_given == ["a"]
    assert answer.evidence_from == EvidencePlaces(messages=1, facts=0, summary=0, window=0)
    assert by_fact.evidence_from == EvidencePlaces(messages=0, facts=1, summary=0, window=0)
    summing_up = make_memory("talk", user_id="u", memory_blocks=["summary"])
    by_summary = ask_of(summing_up, "What is known?", "a", "b")
    assert by_summary.evidence_from == EvidencePlaces(messages=0, facts=0, summary=1, window=0)
    waiting = make_memory("waiting", user_id="u", memory_blocks=[])
    waiting.put({"role": "user", "content": said[0], "id": "a"})
    by_window = ask_of(waiting, named, "a", "elsewhere")
    assert by_window.evidence_from == EvidencePlaces(messages=0, facts=0, summary=0, window=1)


@pytest.mark.parametrize(("pids", "worker"), [([], "none"), ([9, 7], "process 7, 9")])
def test_the_workers_are_named_with_the_command_for_another_one(pids: list[int], worker: str) -> None:
    told = io.StringIO()
    Story(Console(file=told, width=300)).worker(pids, "the command", until="until Ctrl-C here")
    assert told.getvalue().split()[: len(worker.split()) + 1] == ["worker", *worker.split()]
    assert "from a second terminal, until Ctrl-C here:" in told.getvalue()
    assert "the command" in told.getvalue()


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([7.0], 0.99) == 7
    assert percentile([], 0.5) == 0


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--token-limit", "5"), 2, "--token-limit 5 is too small for the largest message of chat.jsonl;"),
        (("--token-limit", "99999999999"), 2, "not in the range"),
        (("--flush-size", "4001"), 2, "--flush-size 4001 is above the token limit, 4000,"),
        (("--pace", "inf"), 2, "not a finite number"),
        (("--session-id", ""), 1, "--session-id: is empty"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_is_started(
    options: tuple[str, ...], code: int, says: str, chat: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", "--file", str(chat), *options]) == code
    told = capfd.readouterr()
    assert says in told.err
    assert told.out == "", "it says first of all that it starts the servers"


def test_a_limit_that_is_too_small_is_told_with_the_smallest_that_works(
    chat: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    smallest = smallest_token_limit(read_conversation(chat, None, load_settings()).messages)
    assert run(["demo", "--file", str(chat), "--token-limit", str(smallest - 1)]) == 2
    assert f"the smallest limit that works is {smallest}." in capfd.readouterr().err
