"""The hook before models: whoever asks one, a marked address never reaches the server, and stays stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from strandline import ConfigurationError, Facts
from strandline.pipelines.engine.dead_letters import list_dead_letters
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.registry import register, serving_generations, settings_differing
from strandline.pipelines.generations.stages import build
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.models.contract import (
    ChooseTask,
    CondenseTask,
    ExtractTask,
    InstructTask,
    MergeTask,
    ModelAnswer,
    NumberedFact,
    SummaryTask,
    Task,
    TranscriptLine,
)
from strandline.pipelines.models.factory import build_text_model, with_recorded_embedder
from strandline.pipelines.models.redacting import RedactingTextModel
from strandline.pipelines.own_code.bounded_calls import BoundedCalls
from strandline.pipelines.redaction.hook import Redaction, RedactionHook
from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderDownError,
    TransientModelError,
    UnredactedError,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import PIPELINES
from strandline.wiring.assembly import prepare_stages
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support import sample_hooks
from tests.support.sample_hooks import CANARY
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything, due_lanes
from tests.support.workers.hand_worker import HandWorker

ROOT = Path(__file__).resolve().parent.parent.parent.parent
HIDE = "tests.support.sample_hooks:hide"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def environment(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    """Settings with the stand-in as model and embedder, for this process and those that it starts."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setenv("STRANDLINE_EMBEDDING_DIMENSIONS", "256")
    monkeypatch.setenv("STRANDLINE_EMBEDDING_MODEL", "stand-in")
    monkeypatch.setenv("STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS", "20")

    def change(**settings: str) -> Settings:
        for name, value in settings.items():
            monkeypatch.setenv(f"STRANDLINE_{name.upper()}", value)
        return load_settings()

    return change


def adopt(database: Database, database_url: str, settings: Settings) -> None:
    """Let the settings' recipes serve, as if no worker had run before."""
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM strandline.generation")
    register(database, {pipeline: recipe_for(pipeline, settings) for pipeline in PIPELINES})


def sent(server: ModelServer) -> str:
    return json.dumps([request.body for request in server.requests], ensure_ascii=False)


def kinds_of_requests(server: ModelServer) -> set[str]:
    """The sections of the prompts that were sent, and whether texts were embedded."""
    tags = ("transcript", "candidates", "summary_so_far", "question", "instruction", "<facts>")
    return {tag for tag in (*tags, '"input"') if tag in sent(server)}


@pytest.fixture
def _let_go() -> Iterator[None]:
    sample_hooks.letting_go.clear()
    yield
    sample_hooks.letting_go.set()


def test_a_marked_address_never_reaches_the_server_and_is_stored_as_it_was_said(
    rig: Rig, environment: Callable[..., Settings]
) -> None:
    """Every task and every text of an embedder, from a worker process and from producers."""
    settings = environment(redact_before_models=HIDE, max_facts="3")
    adopt(rig.database, rig.url, settings)
    rig.start_worker(PYTHONPATH=str(ROOT), STRANDLINE_SWEEP_INTERVAL_SECONDS="0.2")
    memory = rig.memory("s", user_id="ana")
    for number in range(3):
        memory.put_messages(
            [
                {"role": "user", "name": f"Ana {CANARY}", "content": f"Note {number}: I am at {CANARY} now."},
                {"role": "assistant", "content": f"Noted {number} for {CANARY}."},
            ]
        )
        memory.flush(all=True)
    memory.facts.add(f"Ana also reads {CANARY}")
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the worker to derive everything")
    memory.facts.instruct(f"add {CANARY}", wait=300)
    memory.put_messages(
        [{"role": "user", "content": f"Still {CANARY}"}, {"role": "assistant", "content": "Yes."}]
    )
    memory.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the worker to derive everything")
    memory.search(f"who is {CANARY}?")
    assert not memory.get(f"where is {CANARY}?").omitted
    memory.facts.choose(f"which is {CANARY}?")
    memory.facts.optimize()
    last = memory.summarize_last(2)
    assert last is not None and "[hidden]" in last.text
    assert kinds_of_requests(rig.model) == {
        "transcript", "candidates", "summary_so_far", "question", "instruction", "<facts>", '"input"'
    }  # fmt: skip
    assert "canary" not in sent(rig.model) and sent(rig.model).count("[hidden]") > 20
    # What is stored is what was said; what is derived of it is not.
    assert CANARY in memory.get_all()[0].text and CANARY in str(memory.get_all()[0].name)
    derived = [fact.text for fact in memory.facts.list() if "reads" not in fact.text]
    assert derived and not any(CANARY in text for text in derived)
    said = [fact for fact in memory.facts.list() if fact.text.startswith("Note 0")]
    assert [fact.text for fact in said] == ["Note 0: I am at [hidden] now."]
    # A fact still names the messages that it comes from.
    (revision,) = rows_of(
        rig.url,
        "SELECT seqs FROM strandline.fact_revision WHERE fact_id = %s AND operation = 'add'",
        said[0].fact_id,
    )
    assert revision == ([1],)
    assert verify(rig.database, deep=True).violations == ()


def test_the_recipe_records_the_hook_and_a_process_without_the_setting_applies_it(
    rig: Rig, environment: Callable[..., Settings]
) -> None:
    with_hook = environment(redact_before_models="contacts,tests.support.sample_hooks:Marked")
    adopt(rig.database, rig.url, with_hook)
    for generation in serving_generations(rig.database).values():
        assert generation.recipe.config["redactor"] == "contacts,tests.support.sample_hooks:Marked"
        assert generation.recipe.config["redactor_version"] == "1,7"
    without = environment(redact_before_models="")
    stages = build(serving_generations(rig.database)["summary"], without)
    assert isinstance(stages["summary"].model, RedactingTextModel)  # type: ignore[attr-defined]
    changes = settings_differing(serving_generations(rig.database), without)
    assert changes["facts"] == [
        "redactor: contacts,tests.support.sample_hooks:Marked -> none",
        "redactor version: 1,7 -> none",
    ]
    assert changes.keys() == {"facts", "summary", "vectors"}
    config = serving_generations(rig.database)["vectors"].recipe.config
    assert with_recorded_embedder(without, config).redact_before_models.startswith("contacts")


def test_a_hook_that_is_set_later_is_applied_at_once_and_the_difference_is_told(
    rig: Rig, environment: Callable[..., Settings]
) -> None:
    adopt(rig.database, rig.url, environment())
    settings = environment(redact_before_models=HIDE)
    stages = build(serving_generations(rig.database)["facts"], settings)
    assert isinstance(stages["extract"].model, RedactingTextModel)  # type: ignore[attr-defined]
    changes = settings_differing(serving_generations(rig.database), settings)
    assert all(f"redactor: none -> {HIDE}" in change for change in changes.values()) and len(changes) == 3


def test_a_recipe_whose_hook_is_not_installed_is_left_to_other_workers(
    rig: Rig, environment: Callable[..., Settings]
) -> None:
    settings = environment(redact_before_models=HIDE)
    adopt(rig.database, rig.url, settings)
    with psycopg.connect(rig.url) as connection:
        connection.execute(
            "UPDATE strandline.generation"
            " SET config = jsonb_set(config::jsonb, '{redactor}', '\"gone.away:hook\"')"
        )
    with pytest.raises(ConfigurationError, match=r"redaction hook gone.away:hook cannot be imported"):
        build(serving_generations(rig.database)["facts"], environment(redact_before_models=""))


@pytest.mark.usefixtures("_let_go")
@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        ("failing", "raised ValueError at sample_hooks.py"),
        ("hanging", "did not return within 0.2 seconds"),
        ("returning_nothing", "returned NoneType"),
    ],
)
def test_a_hook_that_fails_sends_nothing_and_ends_as_a_dead_letter(
    rig: Rig, environment: Callable[..., Settings], hook: str, reason: str
) -> None:
    settings = environment(
        redact_before_models=f"tests.support.sample_hooks:{hook}", redact_timeout_seconds="0.2"
    )
    adopt(rig.database, rig.url, settings)
    memory = rig.memory("s", memory_blocks=["summary"])
    memory.put({"role": "user", "content": f"I am {CANARY}"})
    memory.flush(all=True)
    worker = HandWorker(rig.database, prepare_stages(rig.database, settings))
    (lane,) = due_lanes(rig.url, ["summary"])
    outcomes: list[str] = []

    def is_dead() -> bool:
        outcomes.append(worker.drain(lane))
        return bool(list_dead_letters(rig.database))

    wait_until(is_dead, timeout=30, what="the event to be given up")
    assert outcomes.count("postponed") == worker.retry.max_failures, "an error that may pass is tried again"
    (letter,) = list_dead_letters(rig.database)
    assert reason in letter.reason and "canary" not in letter.reason
    assert rig.model.requests == []


def test_what_a_hook_refuses_is_a_dead_letter_at_once_and_the_rest_goes_on(
    rig: Rig, environment: Callable[..., Settings]
) -> None:
    settings = environment(redact_before_models="tests.support.sample_hooks:Refusing")
    adopt(rig.database, rig.url, settings)
    memory = rig.memory("s", memory_blocks=["vectors"])
    for text in ("One", "The secret", "Two"):
        memory.put({"role": "user", "content": text})
        memory.flush(all=True)
    drain_everything(rig.database, rig.url, settings, ("vectors",))
    assert [letter.reason for letter in list_dead_letters(rig.database)] == [
        "A redaction hook refused the request's text: it tells a secret"
    ]
    assert "secret" not in sent(rig.model) and "Two" in sent(rig.model)


def test_a_query_that_cannot_be_redacted_is_searched_for_by_its_words(
    rig: Rig, environment: Callable[..., Settings]
) -> None:
    settings = environment(redact_before_models=HIDE)
    adopt(rig.database, rig.url, settings)
    memory = rig.memory("s", memory_blocks=["vectors"])
    memory.put({"role": "user", "content": "The anchor is on deck."})
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, settings, ("vectors",))
    embedded = len(rig.model.requests)
    environment(redact_before_models="tests.support.sample_hooks:failing")
    later = rig.memory("s", memory_blocks=["vectors"])
    (hit,) = later.search("anchor", limit=1)
    assert hit.message.text == "The anchor is on deck."
    assert len(rig.model.requests) == embedded
    with pytest.raises(ModelError, match="raised ValueError"):
        later.summarize_last(1)
    assert len(rig.model.requests) == embedded


class Scripted:
    """A text model that notes what it is shown, and answers as told."""

    model = "scripted"

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = json.dumps(answer)
        self.shown: list[Task] = []

    def wait_seconds(self) -> float:
        return 0.0

    def answer(self, task: Task) -> ModelAnswer:
        self.shown.append(task)
        return ModelAnswer(self._answer, self.model, "0" * 16, 1, 1)


def asked(task: Task, answer: dict[str, Any]) -> tuple[Task, Any]:
    model = Scripted(answer)
    redaction = Redaction((RedactionHook.check(sample_hooks.hide, "hide"),), 5.0, BoundedCalls(4))
    text = RedactingTextModel(model, redaction).answer(task).text
    return model.shown[0], json.loads(text)


def facts(*texts: str) -> tuple[NumberedFact, ...]:
    return tuple(NumberedFact(number, text, NOW) for number, text in enumerate(texts, 1))


def lines(text: str) -> tuple[TranscriptLine, ...]:
    return (TranscriptLine(1, "user", f"Ana {text}", f"I am {text}", NOW),)


def test_a_fact_that_was_shown_redacted_is_not_worded_anew_by_a_merge() -> None:
    task = MergeTask(facts(f"At {CANARY}", "Likes tea"), facts("Moved", "Likes green tea", f"Is {CANARY}"))
    operations = [
        {"op": "update", "candidate": 1, "fact": 1, "text": "At [hidden], moved"},
        {"op": "update", "candidate": 2, "fact": 2, "text": "Likes green tea"},
        {"op": "add", "candidate": 3, "fact": None, "text": "Is [hidden]"},
    ]
    shown, answer = asked(task, {"operations": operations})
    assert isinstance(shown, MergeTask) and [fact.text for fact in shown.known] == [
        "At [hidden]",
        "Likes tea",
    ]
    assert answer["operations"] == [
        {"op": "add", "candidate": 1, "fact": None, "text": None},
        operations[1],
        {"op": "add", "candidate": 3, "fact": None, "text": None},
    ]


def test_facts_that_were_shown_redacted_are_not_condensed_nor_reworded_on_request() -> None:
    task = CondenseTask(facts(f"At {CANARY}", "Likes tea", "Likes milk", "Likes cake"), 2)
    merged = [
        {"text": "At [hidden], likes tea", "merged": [1, 2], "topics": []},
        {"text": "Likes milk and cake", "merged": [3, 4], "topics": []},
    ]
    _shown, answer = asked(task, {"facts": merged, "kept": []})
    assert answer == {"facts": merged[1:], "kept": [1, 2]}
    instructed = InstructTask(f"I moved to {CANARY}", facts(f"At {CANARY}"))
    shown, answer = asked(instructed, {"operations": [{"op": "update", "fact": 1, "text": "At [hidden]"}]})
    assert isinstance(shown, InstructTask) and shown.instruction == "I moved to [hidden]"
    assert answer["operations"] == [{"op": "add", "fact": None, "text": "At [hidden]"}]


@pytest.mark.parametrize(
    "task",
    [
        ExtractTask(lines(CANARY), context=lines(CANARY)),
        SummaryTask(f"So far {CANARY}", lines(CANARY), 100),
        MergeTask(facts(CANARY), facts(CANARY)),
        CondenseTask(facts(CANARY), 1),
        InstructTask(CANARY, facts(CANARY)),
        ChooseTask(CANARY, facts(CANARY), 1),
    ],
    ids=lambda task: str(task.name),
)
def test_no_text_of_any_task_is_left_out(task: Task) -> None:
    """A field that is added to a task and holds what people said is to be redacted as well."""
    model = Scripted({"operations": [], "facts": [], "kept": [1]})
    redaction = Redaction((RedactionHook.check(sample_hooks.hide, "hide"),), 5.0, BoundedCalls(4))
    RedactingTextModel(model, redaction).answer(task)
    assert "canary" in repr(task) and "canary" not in repr(model.shown[0])
    of_operators = {"ExtractTask": {"instructions", "more_instructions"}, "SummaryTask": {"instructions"}}
    texts = {field.name for field in fields(task) if isinstance(getattr(task, field.name), str | tuple)}
    unseen = {name for name in texts if "hidden" not in repr(getattr(model.shown[0], name))}
    assert unseen - {"name", "switched_off"} <= of_operators.get(type(task).__name__, set())


@pytest.mark.usefixtures("_let_go")
def test_errors_of_a_hook_become_those_that_the_engine_knows() -> None:
    task = CondenseTask(facts("the secret"), 1)

    def model(hook: object) -> RedactingTextModel:
        calls = BoundedCalls(1)
        seconds = 0.1 if hook is sample_hooks.hanging else 5.0
        return RedactingTextModel(Scripted({}), Redaction((RedactionHook.check(hook, "h"),), seconds, calls))

    def away(_text: str) -> str:
        raise ProviderDownError("The recogniser is down.")

    with pytest.raises(PermanentModelError, match="tells a secret"):
        model(sample_hooks.Refusing).answer(task)
    with pytest.raises(ProviderDownError, match="recogniser"):
        model(away).answer(task)
    with pytest.raises(UnredactedError) as told:
        model(sample_hooks.failing).answer(task)
    assert told.value.counts and told.value.is_unpaid and isinstance(told.value, TransientModelError)
    full = model(sample_hooks.hanging)
    with pytest.raises(UnredactedError, match="did not return"):
        full.answer(task)
    with pytest.raises(UnredactedError, match="was not called") as waits:
        full.answer(task)
    assert not waits.value.counts, "an event whose hook was not called is not to blame"


def test_without_the_setting_models_are_as_they_were(environment: Callable[..., Settings]) -> None:
    model = build_text_model(environment(), purpose="facts")
    assert type(model).__name__ == "GuardedTextModel"


def test_facts_without_a_session_are_chosen_by_a_model_that_sees_them_redacted(
    rig: Rig, environment: Callable[..., Settings]
) -> None:
    adopt(rig.database, rig.url, environment(redact_before_models="contacts"))
    owner = Facts.for_owner(user_id="ana", database_url=rig.url)
    owner.add(f"Write to Ana at {CANARY}")
    chosen = owner.choose("How do I write to Ana?")
    assert [fact.text for fact in chosen] == [f"Write to Ana at {CANARY}"], "what is given is what is stored"
    assert "[email]" in sent(rig.model) and "canary" not in sent(rig.model)
    owner.close()
