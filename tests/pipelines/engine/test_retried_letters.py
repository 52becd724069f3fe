"""Unusable answers: tried again with less, then as dead letters that retry themselves, while others go on."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from strandline.cli.entry import run
from strandline.pipelines.engine.dead_letters import list_dead_letters, retry_dead_letter
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.work.dead_letters import RipeLetters
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import STAGES, Lane
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.wiring.assembly import prepare_stages
from strandline.workers.sweep import Sweep
from strandline.workers.worker import Worker
from tests.conftest import Rig, nothing_due, rows_of
from tests.pipelines.conftest import Drain
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest
from tests.support.workers.draining import drain_everything, due_lanes

BAD = "zyzzyva"
REFUSAL = Raw(400, json.dumps({"error": {"message": "flagged", "code": "content_filter"}}).encode())
RIPE = """
UPDATE strandline.dead_letter SET retry_at = now() - interval '1 s' WHERE retry_at IS NOT NULL RETURNING 1
"""


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    return load_settings(database_url=database_url, embedding_backend="local", dead_letter_retries=2)


def fail(model_server: ModelServer, answer: str | Raw = "no JSON", where: str = "<transcript>") -> None:
    """The model has no usable answer to prompts with the word in the section ``where``."""

    def respond(request: RecordedRequest) -> str | Raw | None:
        prompt = json.dumps(request.body)
        return answer if BAD in prompt and where in prompt else None

    model_server.behave(responder=respond)


def sweep(database: Database) -> list[Lane]:
    rung: list[Lane] = []
    Sweep(
        database,
        ring=rung.extend,
        take_over=lambda _lanes: None,
        stages=list(STAGES),
        batch_size=100,
        dead_after_seconds=30,
    ).tick()
    return rung


def facts(url: str) -> list[str]:
    return [
        text for (text,) in rows_of(url, "SELECT text FROM strandline.fact WHERE live ORDER BY said_at, text")
    ]


def put(memory: Any, *texts: str) -> None:
    for text in texts:
        memory.put({"role": "user", "content": text})
    assert memory.flush(all=True)


def check(database: Database) -> None:
    assert [one.sentence for one in verify(database, deep=True).violations] == []


def reasons(database: Database, url: str, seq: int) -> str:
    """What `explain` says of the message with that number, of the only session."""
    ((message_id,),) = rows_of(url, "SELECT id FROM strandline.message WHERE seq = %s", seq)
    explanation = explain(database, message_id)
    assert isinstance(explanation, MessageExplanation)
    return " ".join(explanation.why)


def test_a_letter_retries_itself_while_later_events_go_on(
    rig: Rig, drain: Drain, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = rig.memory("s", memory_blocks=["facts"])
    fail(rig.model)
    put(memory, f"the {BAD} sleeps")
    drain()
    put(memory, "the boat is blue")
    drain()
    assert facts(rig.url) == ["the boat is blue"]
    (letter,) = list_dead_letters(rig.database)
    assert letter.retry_at is not None and letter.retries == 0
    assert 240 < (letter.retry_at - letter.died_at).total_seconds() < 360
    assert f"a worker tries again {letter.retry_at:%Y-%m-%d %H:%M}" in reasons(rig.database, rig.url, 1)
    for command in ("status", "dead-letters list"):
        assert run([*command.split(), "--database-url", rig.url]) == 0
        assert f"{letter.retry_at:%H:%M}" in capsys.readouterr().out, command
    assert sweep(rig.database) == [], "not before its time"
    check(rig.database)

    rig.model.behave()
    assert rows_of(rig.url, RIPE) == [(1,)]
    assert sweep(rig.database) == [letter.lane]
    check(rig.database)
    drain()
    assert facts(rig.url) == [f"the {BAD} sleeps", "the boat is blue"]
    assert list_dead_letters(rig.database) == []
    check(rig.database)


def test_a_letter_is_retried_so_often_and_then_waits_for_a_person(rig: Rig, drain: Drain) -> None:
    fail(rig.model)
    put(rig.memory("s", memory_blocks=["facts"]), f"the {BAD} sleeps")
    drain()
    waits = []
    for retries in range(3):
        (letter,) = list_dead_letters(rig.database)
        assert letter.retries == retries
        if letter.retry_at is not None:
            waits.append((letter.retry_at - letter.died_at).total_seconds())
        assert rows_of(rig.url, RIPE) == [(1,)] * (retries < 2)
        sweep(rig.database)
        drain()
    assert [round(wait / 300) for wait in waits] in ([1, 5], [1, 6], [1, 7])
    (letter,) = list_dead_letters(rig.database)
    assert letter.retry_at is None and sweep(rig.database) == []
    check(rig.database)
    assert retry_dead_letter(rig.database, letter).outcome == "due"
    drain()
    (letter,) = list_dead_letters(rig.database)
    assert letter.retries == 0 and letter.retry_at is not None, "after a person's it has all of its own again"
    check(rig.database)


def test_what_a_server_refuses_is_not_retried(rig: Rig, drain: Drain) -> None:
    fail(rig.model, REFUSAL)
    put(rig.memory("s", memory_blocks=["facts"]), f"the {BAD} sleeps")
    drain()
    (letter,) = list_dead_letters(rig.database)
    assert letter.retry_at is None


class Died(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("point", ["loaded", "called", "stored", "applying", "applied"])
def test_a_worker_that_dies_before_or_within_the_retry_loses_nothing(
    rig: Rig, drain: Drain, point: str
) -> None:
    fail(rig.model)
    put(rig.memory("s", memory_blocks=["facts"]), f"the {BAD} sleeps")
    drain()
    assert rows_of(rig.url, RIPE) == [(1,)]
    ripe = RipeLetters(stages=list(STAGES), limit=10)
    assert len(rig.database.fetch(ripe)) == 1, "and here it dies"
    check(rig.database)
    rig.model.behave()
    assert rows_of(rig.url, RIPE) == [(1,)]
    assert len(sweep(rig.database)) == 1
    assert rig.database.fetch(ripe) == [], "once"

    def die(reached: str) -> None:
        if reached == point:
            raise Died

    stages = prepare_stages(rig.database, rig.settings, STAGES)
    worker = Worker(rig.database, stages, rig.settings, ring=lambda _lanes: None, with_sweep=False, reach=die)
    worker.start()
    for lane in due_lanes(rig.url):
        with pytest.raises(Died):
            worker.drain(lane)
    worker.stop()
    drain()
    assert facts(rig.url) == [f"the {BAD} sleeps"]
    check(rig.database)


def test_a_letter_of_a_session_that_was_reset_only_ends(rig: Rig, drain: Drain) -> None:
    fail(rig.model)
    memory = rig.memory("s", memory_blocks=["facts"])
    put(memory, f"the {BAD} sleeps")
    drain()
    memory.reset()
    assert rows_of(rig.url, RIPE) == [(1,)]
    assert sweep(rig.database) == []
    assert list_dead_letters(rig.database) == []
    check(rig.database)


@pytest.mark.parametrize("stage", ["extract", "merge"])
def test_what_comes_late_never_ends_what_is_newer(rig: Rig, drain: Drain, stage: str) -> None:
    old, new = f"Ana of the {BAD} lives in Porto", "Ana lives in Lisbon"
    fail(rig.model, where="<transcript>" if stage == "extract" else "<candidates>")
    memory = rig.memory("s", memory_blocks=["facts"])
    if stage == "merge":
        put(memory, "Ana lives")
        drain()
    put(memory, old)
    drain()
    put(memory, new)
    drain()
    assert len(list_dead_letters(rig.database, stage=stage)) == 1

    def end_the_known(request: RecordedRequest) -> str | None:
        prompt = str(request.body.get("messages", [{}])[-1].get("content", ""))
        if "<candidates>" not in prompt:
            return None
        known = [
            json.loads(line)
            for line in re.findall(r"^{.*}$", prompt.split("<candidates>\n", maxsplit=1)[0], re.M)
        ]
        number = next(row["n"] for row in known if row["text"] == new)
        return json.dumps(
            {"operations": [{"op": "invalidate", "candidate": 1, "fact": number, "text": None}]}
        )

    rig.model.behave(responder=end_the_known)
    assert rows_of(rig.url, RIPE) == [(1,)]
    sweep(rig.database)
    drain()
    assert new in facts(rig.url)
    ended = "SELECT text, valid_until > valid_from FROM strandline.fact WHERE NOT live"
    assert rows_of(rig.url, ended) == [(old, True)]
    check(rig.database)


def test_a_late_fold_comes_where_it_was_said(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s", memory_blocks=["summary"])
    fail(rig.model, where="<summary_so_far>")
    for text in ("alpha first", f"the {BAD} sleeps", "gamma last"):
        put(memory, text)
        drain()
    rig.model.behave()
    assert rows_of(rig.url, RIPE) == [(1,)]
    assert len(sweep(rig.database)) == 1
    drain()
    newest = "SELECT state->>'text' FROM strandline.block_state ORDER BY ordinal DESC LIMIT 1"
    text = rows_of(rig.url, newest)[0][0]
    assert text.index("alpha") < text.index(BAD) < text.index("gamma")
    check(rig.database)


@pytest.mark.parametrize("answer", ["no JSON", REFUSAL], ids=["unusable", "refused"])
@pytest.mark.parametrize("place", [0, 7, 19])
def test_a_line_does_not_take_its_neighbours(rig: Rig, drain: Drain, answer: str | Raw, place: int) -> None:
    fail(rig.model, answer)
    memory = rig.memory("s", memory_blocks=["facts", "summary"])
    texts = [f"I like thing {number}" + (f" {BAD}" if number == place else "") for number in range(20)]
    put(memory, *texts)
    drain()
    assert facts(rig.url) == [text for text in texts if BAD not in text]
    assert list_dead_letters(rig.database) == []
    asked = [request for request in rig.model.requests if "/chat/" in request.path]
    assert len(asked) <= 60, "halved, not asked about each line"
    assert "alone; stage extract left it out" in reasons(rig.database, rig.url, place + 1)
    assert "left it out" not in reasons(rig.database, rig.url, (place + 1) % 20 + 1)
    (summary,) = rows_of(rig.url, "SELECT state->>'text' FROM strandline.block_state")[0]
    assert "thing 3" in summary or place == 3
    check(rig.database)


@pytest.mark.parametrize("blocks", [["facts", "summary"], ["vectors"]])
def test_a_line_that_a_server_fails_on_takes_none_of_its_neighbours(rig: Rig, blocks: list[str]) -> None:
    fail(rig.model, Raw(500, b"NaN"), "input" if blocks == ["vectors"] else "<transcript>")
    settings = load_settings(database_url=rig.url, embedding_backend="openai", embedding_dimensions=8)
    texts = ["I like tea", f"I like {BAD}", "I like rye", "I like the sea", "I like oats"]
    put(rig.memory("s", memory_blocks=blocks), *texts)
    for _ in range(settings.max_failures):
        assert not nothing_due(rig.url)
        drain_everything(rig.database, rig.url, settings)
        rows_of(rig.url, "UPDATE strandline.lane SET next_attempt_at = clock_timestamp() RETURNING 1")
    assert nothing_due(rig.url) and list_dead_letters(rig.database) == []
    embedded = rows_of(
        rig.url, "SELECT embedding IS NOT NULL FROM strandline.chunk WHERE piece = 0 ORDER BY from_seq"
    )
    if blocks == ["vectors"]:
        assert embedded == [(BAD not in text,) for text in texts]
    else:
        assert facts(rig.url) == [text for text in texts if BAD not in text]
        ((summary,),) = rows_of(rig.url, "SELECT state->>'text' FROM strandline.block_state")
        assert "oats" in summary
    check(rig.database)


def test_a_model_that_answers_nothing_is_not_asked_about_each_line(rig: Rig, drain: Drain) -> None:
    fail(rig.model)
    memory = rig.memory("s", memory_blocks=["facts"])
    put(memory, *(f"{BAD} {number}" for number in range(60)))
    drain()
    assert [letter.message_count for letter in list_dead_letters(rig.database)] == [60]
    assert len(rig.model.requests) <= 40
    check(rig.database)


def test_what_is_too_long_for_a_model_is_asked_in_parts(rig: Rig, drain: Drain) -> None:
    too_long = Raw(400, json.dumps({"error": {"message": "x", "code": "context_length_exceeded"}}).encode())

    def respond(request: RecordedRequest) -> Raw | None:
        return too_long if len(json.dumps(request.body)) > 20_000 else None

    rig.model.behave(responder=respond)
    memory = rig.memory("s", memory_blocks=["facts"])
    put(memory, *(f"Item {number}: " + "I like sailing along the coast. " * 19 for number in range(60)))
    drain()
    assert len(facts(rig.url)) == 60
    check(rig.database)
