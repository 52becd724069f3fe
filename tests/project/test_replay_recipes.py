"""What docs/replay.md shows is run as it stands: by a shell, beside a real worker and model server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.processes import forking, shell
from tests.support.servers.model_server import Raw, RecordedRequest
from tests.support.stored import dead_letters
from tests.support.workers.hand_worker import say

TEXT = (Path(__file__).resolve().parent.parent.parent / "docs" / "replay.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
FIRST = {
    "STRANDLINE_TEXT_BACKEND": "openai",
    "STRANDLINE_EMBEDDING_BACKEND": "openai",
    "STRANDLINE_EMBEDDING_MODEL": "text-embedding-3-small",
    "STRANDLINE_EMBEDDING_DIMENSIONS": "256",
    "STRANDLINE_RETRY_BASE_SECONDS": "0.1",
}


def refuse_pier(request: RecordedRequest) -> Raw | None:
    refused = b'{"error": {"message": "refused", "code": "content_filter"}}'
    return Raw(400, refused) if "pier" in str(request.body.get("messages")) else None


def run(recipe: str, tmp_path: Path, database_url: str, **environment: str) -> str:
    """The recipe's commands, each of which must succeed; gives what they printed."""
    done = shell.run(
        recipe,
        cwd=tmp_path,
        env={**os.environ, **environment, "STRANDLINE_DATABASE_URL": database_url},
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize("title", RECIPES)
def test_the_commands_run_as_shown(rig: Rig, title: str, tmp_path: Path) -> None:
    environment = FIRST | {"OPENAI_BASE_URL": rig.model.base_url}
    if title == "After an outage":
        rig.model.behave(responder=refuse_pier)
    rig.start_worker(**environment)
    memory = rig.memory("talk", user_id="ana")
    say(memory, "my boat is blue", "I moor it at the pier")
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the first derivation")
    rig.model.behave()
    facts = sorted(fact.text for fact in memory.facts.list())

    out = run(RECIPES[title], tmp_path, rig.url, **environment)

    wait_until(lambda: nothing_due(rig.url), timeout=60, what="what is due again")
    texts = sorted(fact.text for fact in memory.facts.list())
    assert texts == sorted({*facts, "my boat is blue", "I moor it at the pier"})
    dimensions = rows_of(
        rig.url,
        "SELECT DISTINCT vector_dims(c.embedding) FROM strandline.chunk c JOIN strandline.generation g"
        " USING (generation_id) WHERE g.state = 'serving'",
    )
    if title == "Changing a prompt":
        assert "what changes: prompt extract" in out
        prompts = "SELECT prompts->>'extract' FROM strandline.generation WHERE state = 'serving'"
        assert (tmp_path / "prompts" / "extract.md").read_text() in [
            row[0] for row in rows_of(rig.url, prompts)
        ]
    assert dimensions == [(384,) if title == "Changing the embedding model" else (256,)]
    assert dead_letters(rig.url) == 0


def test_every_recipe_is_run() -> None:
    assert set(RECIPES) >= {
        "Changing a prompt",
        "Changing the embedding model",
        "After an outage",
        "Undoing a bad rollout",
    }


def test_ctrl_c_stops_a_replay_and_says_how_to_go_on(rig: Rig) -> None:
    environment = FIRST | {"OPENAI_BASE_URL": rig.model.base_url, "STRANDLINE_DATABASE_URL": rig.url}
    worker = rig.start_worker(**environment)
    say(rig.memory("talk", user_id="ana"), "my boat is blue")
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the first derivation")
    worker.kill()
    command = [sys.executable, "-m", "strandline", "replay", "--new", "--force", "--pipeline", "facts"]
    env = {**os.environ, **environment}
    # No worker runs, so it waits.
    waiting = forking.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    filled = "SELECT counts->>'phase' FROM strandline.replay"
    wait_until(lambda: rows_of(rig.url, filled) == [("switching",)], timeout=30, what="the replay")
    refused = forking.run(command, env=env, capture_output=True, check=False)
    assert refused.returncode == 1 and "strandline replay --resume 1" in refused.stderr
    waiting.send_signal(signal.SIGINT)
    out, _ = waiting.communicate(timeout=300)
    assert waiting.returncode == 130
    assert "strandline replay --resume 1" in out
    rig.start_worker(**environment)
    resumed = [*command[:3], "replay", "--resume", "1", "--json"]
    done = forking.run(resumed, env=env, capture_output=True, check=True, timeout=600)
    ((replay,),) = (json.loads(done.stdout)["replays"],)
    assert (replay["state"], replay["counts"]["phase"]) == ("done", "done")
    # A second time nothing differs, and nothing is asked.
    asked = rig.model.received
    checked = forking.run([*command[:4], "--json"], env=env, capture_output=True, check=True)
    for item in json.loads(checked.stdout)["replays"]:
        assert item["counts"]["batches"] == item["counts"]["same"] > 0
    assert rig.model.received == asked


def test_a_diff_tells_the_recall_on_questions_of_ones_own(rig: Rig, tmp_path: Path) -> None:
    environment = FIRST | {"OPENAI_BASE_URL": rig.model.base_url}
    rig.start_worker(**environment)
    say(rig.memory("talk", user_id="ana"), "my boat is blue", "I moor it at the pier")
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the first derivation")
    questions: list[dict[str, object]] = [
        {"question": "where do I moor it?", "expect": "the pier", "user": "ana"},
        {"question": "which colour has my boat?", "expect": "is green", "user": "ana"},
        {"question": "my boat", "user": "ana", "session": "talk", "evidence": [1, 9]},
    ]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    out = run(
        "strandline replay --new --force --hold --pipeline facts --json > begun.json\n"
        "strandline generations diff 4 --questions questions.jsonl --json",
        tmp_path,
        rig.url,
        **environment,
    )
    found = json.loads(out)
    assert (found["recall_old"], found["recall_new"]) == (0.5, 0.5)
    assert found["totals"] == {"same": 2} and found["owners"] == []
    assert (found["coverage_old"], found["coverage_new"]) == (0.5, 0.5)
    moored, colour, evidence = found["questions"]
    assert moored["expected_new"] and not colour["expected_new"] and evidence["expected_new"] is None
    assert "I moor it at the pier" in moored["found_old"] and moored["coverage_old"] is None
    assert evidence["coverage_new"] == 0.5
    (tmp_path / "questions.jsonl").write_text(json.dumps(questions[0] | {"user": "anna"}))
    out = run(
        "strandline generations diff 4 --questions questions.jsonl 2>&1 || true",
        tmp_path,
        rig.url,
        **environment,
    )
    assert "has nothing of user 'anna'" in " ".join(out.split())


def test_a_diff_shows_the_questions_that_find_something_else(rig: Rig, tmp_path: Path) -> None:
    environment = FIRST | {"OPENAI_BASE_URL": rig.model.base_url}
    rig.start_worker(**environment)
    say(rig.memory("talk", user_id="ana"), "my boat is blue", "I moor it at the pier")
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the first derivation")

    def forget_the_boat(request: RecordedRequest) -> str | None:
        data = str(request.body.get("messages"))
        is_extract = "<transcript>" in data and "<summary_so_far>" not in data
        return (
            '{"facts": []}' if is_extract and "boat is blue" in data.rpartition("<transcript>")[2] else None
        )

    rig.model.behave(responder=forget_the_boat)
    question = {"question": "boat", "user": "ana", "session": "talk", "expect": "blue", "evidence": [1]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question))
    out = run(
        "strandline replay --new --force --hold --pipeline facts --json > begun.json\n"
        "strandline generations diff 4 --questions questions.jsonl",
        tmp_path,
        rig.url,
        **environment,
    )
    assert "question: boat, coverage 100.0% before, 0.0% after\n  - my boat is blue\n" in out
    assert "recall on the questions: 100.0% before, 0.0% after" in out
    assert "coverage of their evidence: 100.0% before, 0.0% after" in out
