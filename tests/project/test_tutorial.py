"""docs/tutorial.md, step by step: ``strandline up``, an application, its commands, and a model server."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from tests.conftest import wait_until
from tests.project.test_documentation import BLOCK
from tests.support.processes import forking
from tests.support.servers.databases import temporary_database
from tests.support.servers.model_server import ModelServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
STEPS = {
    found["tried"].removeprefix("tutorial: "): found["text"]
    for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    if found["tried"]
}


@contextmanager
def started(command: str, ready: str, environment: dict[str, str], folder: Path) -> Iterator[re.Match[str]]:
    """A command of the page as a process, once a line of its output matches ``ready``."""
    name, *arguments = shlex.split(command)
    process = forking.Popen(
        [sys.executable, "-m", name, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if match := re.search(ready, line):
                yield match
                break
        else:
            raise AssertionError("".join(said))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture
def environment(stack: EmbeddedStack, broker_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """As on a machine of the reader's, with a database and a broker that hold nothing yet."""
    with temporary_database(stack.database_url) as url:
        yield {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "STRANDLINE_DATABASE_URL": url,
            "STRANDLINE_BROKER_URL": broker_url,
            "STRANDLINE_EMBEDDED": "never",
        }


Run = Callable[[str], str]


@pytest.fixture
def run(environment: dict[str, str]) -> Run:
    """Runs commands of the page; what they print."""

    def run_all(commands: str) -> str:
        printed = []
        for command in commands.splitlines():
            assert command.startswith("strandline ")
            done = forking.run(
                [sys.executable, "-m", *shlex.split(command)],
                env=environment,
                capture_output=True,
                timeout=300,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            printed.append(done.stdout)
        return "".join(printed)

    return run_all


@contextmanager
def running(environment: dict[str, str], folder: Path) -> Iterator[str]:
    """``strandline up`` and the application, as the page starts them; the application's address."""
    up, serve = STEPS["serve"].splitlines()
    with (
        started(up, "is ready", environment, folder),
        started(f"{serve} --port 0", r"running on (http://\S+)", environment, folder) as served,
    ):
        yield served[1]


def talk(address: str) -> str:
    """Send the message that the page sends; the answer."""
    _curl, _x, method, url = shlex.split(STEPS["talk"])
    place = urlsplit(f"http://{url}")
    answer = httpx.request(method, f"{address}{place.path}?{place.query}", timeout=120)
    assert answer.status_code == 200, answer.text
    return str(answer.json())


def facts(run: Run) -> dict[str, str]:
    """Ben's live facts: their texts by id."""
    listed = json.loads(run("strandline facts list --user ben --json"))["facts"]
    return {fact["fact_id"]: fact["text"] for fact in listed}


def test_the_tutorial_from_an_echo_to_a_replay(
    environment: dict[str, str], run: Run, model_server: ModelServer, tmp_path: Path
) -> None:
    app = tmp_path / "chat.py"
    app.write_text(STEPS["chat.py"], encoding="utf-8")
    with running(environment, tmp_path) as address:
        assert talk(address) == "Messages that I was given: 1."
        wait_until(lambda: bool(facts(run)), timeout=60, what="a fact of the first turn")
        looked = run(STEPS["look"])
        assert "Bolt is afraid of thunder" in looked

    app.write_text(STEPS["chat.py"] + STEPS["model.py"], encoding="utf-8")
    environment |= {"OPENAI_API_KEY": "a-key", "OPENAI_BASE_URL": model_server.base_url}
    with running(environment, tmp_path) as address:
        assert talk(address)
        (fact_id,) = [fact for fact, text in facts(run).items() if "afraid of thunder" in text]
        run(STEPS["correct"].replace("FACT", fact_id))
        run(STEPS["replay"])
        texts = list(facts(run).values())
        assert "Bolt is no longer afraid of thunder." in texts
        assert not [text for text in texts if "is afraid of thunder" in text]


def test_a_reader_may_have_run_the_readme_before() -> None:
    """Its chats and users are others: a session keeps the policy of its first put."""
    readme = (PAGE.parents[1] / "README.md").read_text(encoding="utf-8")
    taken = set(re.findall(r'from_defaults\("(\w+)", user_id="(\w+)"', readme))
    _curl, _x, _method, url = shlex.split(STEPS["talk"])
    (chat, user) = re.findall(r"chats/(\w+)\?user_id=(\w+)", url)[0]
    assert taken
    assert not {chat, user} & {name for pair in taken for name in pair}
