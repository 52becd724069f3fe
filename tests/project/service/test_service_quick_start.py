"""The quick start of docs/service.md, word for word: by a shell and curl, beside ``strandline up``."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.service.gate.problems import KINDS
from tests.support.processes import forking
from tests.support.servers.databases import temporary_database
from tools.api_reference import DOCUMENT, REFERENCE, reference

PAGE = Path(__file__).resolve().parents[3] / "docs" / "service.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## Quick start\n")[1].split("With your own servers:")[0]
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w*)\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
NEW_ENOUGH = (7, 82)


def curl_version() -> tuple[int, ...]:
    if shutil.which("curl") is None:
        return ()
    said = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.split()[1].split(".")[:2] if part.isdecimal())


def steps() -> list[tuple[str, str]]:
    """The commands of each step behind the set-up, and the answers that the page shows."""
    behind = BLOCKS[3:]
    assert [language for language, _ in behind] == ["", "json"] * (len(behind) // 2)
    return [(behind[n][1], behind[n + 1][1]) for n in range(0, len(behind), 2)]


def pattern(shown: str) -> str:
    """Of the answers as they are shown: `…` stands for anything, and curl ends no line."""
    return ".*".join(map(re.escape, shown.replace("\n", "").split("…")))


@pytest.fixture
def served(stack: EmbeddedStack, broker_url: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """What `strandline up` prints behind its labels, as soon as it says that it is ready."""
    with temporary_database(stack.database_url) as url:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "STRANDLINE_DATABASE_URL": url,
            "STRANDLINE_BROKER_URL": broker_url,
            "STRANDLINE_EMBEDDED": "never",
            "STRANDLINE_SERVICE_PORT": "0",
            "STRANDLINE_SERVICE_DRAIN_SECONDS": "0",
            "STRANDLINE_TEXT_BACKEND": "local",
            "STRANDLINE_EMBEDDING_BACKEND": "local",
        }
        process = forking.Popen(
            [sys.executable, "-m", "strandline", "up"], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            yield printed(process.stdout)
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def printed(lines: Iterator[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if match := re.fullmatch(r"  (\w+) +(\S.*)\n", line):
            found[match[1]] = match[2]
        if "key" in found:
            return found
    raise AssertionError(found)


@pytest.mark.skipif(curl_version() < NEW_ENOUGH, reason="needs curl 7.82, which has --json")
def test_each_step_answers_as_the_page_shows(served: dict[str, str], tmp_path: Path) -> None:
    (_, start), (_, assigned), (_, function) = BLOCKS[:3]
    assert start.splitlines()[-1] == "strandline up"
    variables = {"URL": served["service"], "KEY": served["key"]}
    assert re.findall(r"^(\w+)=", assigned, re.MULTILINE) == list(variables)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables}

    def answers(commands: str) -> str:
        script = ["bash", "-e", "-c", function + commands]
        done = subprocess.run(
            script, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    first, *others = steps()
    said = answers(first[0])
    assert re.fullmatch(pattern(first[1]), said, re.DOTALL)
    assert answers(first[0]) == said
    for commands, shown in others:
        assert re.fullmatch(pattern(shown), answers(commands), re.DOTALL), commands


# The reference of the HTTP service: current, and with every route, value and error of the document.


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return dict(json.loads(DOCUMENT.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def page() -> str:
    return REFERENCE.read_text(encoding="utf-8")


def test_the_reference_is_that_of_the_document(document: dict[str, Any], page: str) -> None:
    assert page == reference(document), "run `python -m tools.api_reference`"


def test_each_route_has_a_row_with_its_scope_and_a_section(document: dict[str, Any], page: str) -> None:
    rows = dict(re.findall(r"^\| `([A-Z]+ [^`]+)` \| ([^|]*) \|", page, re.MULTILINE))
    sections = set(re.findall(r"^### `([A-Z]+ [^`]+)`$", page, re.MULTILINE))
    scopes = {
        f"{method.upper()} {path}": (operation.get("x-strandline-scope", "none") or "*any*")
        + ("".join(f", *{holder}*" for holder in [operation.get("x-strandline-key")] if holder))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert rows == scopes
    assert sections == set(scopes)


def test_each_value_and_each_kind_of_error_is_there(document: dict[str, Any], page: str) -> None:
    assert set(re.findall(r"^### (\w+)$", page, re.MULTILINE)) == set(document["components"]["schemas"])
    text = json.dumps(document)
    kinds = set(re.findall(r"urn:strandline:problem:([\w-]+)", text))
    rows = set(re.findall(r"^\| \d{3} \| `([\w-]+)` \|", page, re.MULTILINE))
    assert kinds <= rows == {kind.name for kind in KINDS}


def test_what_repeating_gives_is_what_the_document_says(document: dict[str, Any]) -> None:
    changed = deepcopy(document)
    put = changed["paths"]["/v1/sessions/{session_id}/messages"]["post"]
    row = "| `POST /v1/sessions/{session_id}/messages` | write | header | %s |"
    assert row % "key" in reference(changed)
    put["x-strandline-repeating"] = "refused"
    assert row % "look" in reference(changed)


def test_the_tables_of_other_memories_name_routes_that_exist(document: dict[str, Any]) -> None:
    routes = {f"{m.upper()} {path}" for path, operations in document["paths"].items() for m in operations}
    rows = re.findall(r"^\|[^|]*\|[^|]*\|([^|]*)\|$", (REFERENCE.parent / "coming-from.md").read_text(), re.M)
    named = {route for row in rows for route in re.findall(r"`([A-Z]+ /v1/[^`]+)`", row)}
    assert len(named) > 20
    assert named <= routes
