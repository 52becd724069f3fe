"""Models of an application's own: found by entry points, checked as a server's, recorded in the recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from strandline import ConfigurationError
from strandline.pipelines.generations.definitions import recipe_for
from strandline.pipelines.generations.registry import register
from strandline.pipelines.models.answers import open_numbers
from strandline.pipelines.models.contract import (
    ExtractTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    Task,
    TranscriptLine,
)
from strandline.pipelines.models.installed import InstalledTextModel, load_embedder, load_text_model
from strandline.schemas.errors import PermanentModelError, ProviderDownError, TransientModelError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import PIPELINES, SUMMARY_STAGE, VECTORS_STAGE
from tests.conftest import Rig, rows_of
from tests.support.workers.draining import drain_everything
from tests.support.workers.own_models import Scribe

TASK = SummaryTask("", (TranscriptLine(1, "user", None, "A boat.", datetime(2026, 1, 1, tzinfo=UTC)),), 100)
POINTS = (
    "scribe=Scribe compass=Compass same-compass=COMPASS flat=Flat endless=Endless nothing=WORDS gone=Gone"
)


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    info = tmp_path / "own_models-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: own-models\nVersion: 1.0\n", encoding="utf-8"
    )
    lines = [point.replace("=", " = tests.support.workers.own_models:") for point in POINTS.split()]
    (info / "entry_points.txt").write_text("\n".join(["[strandline.models]", *lines]), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    Scribe.asked.clear()
    yield
    Scribe.answer = None


def test_workers_derive_by_them_and_reads_embed_by_them(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {
        "text_backend": "installed",
        "summary_model": "scribe",
        "facts_model": "scribe",
        "embedding_backend": "installed",
        "embedding_model": "compass",
    }
    for name, value in chosen.items():
        monkeypatch.setenv(f"STRANDLINE_{name.upper()}", value)
    settings = load_settings(database_url=rig.url)
    adopt(rig.database, rig.url, settings)
    memory = rig.memory("s", memory_blocks=["summary", "vectors"])
    memory.put_messages([{"role": "user", "content": text} for text in ("My boat leaks.", "My dog barks.")])
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, settings, (SUMMARY_STAGE, VECTORS_STAGE))
    summary = memory.summarize()
    assert summary is not None and (summary.text, summary.model) == ("On boat, dog.", "scribe")
    assert summary.topics == ("boat", "dog")
    (hit, *_others) = memory.search("a boat")
    assert hit.similarity == pytest.approx(1.0, abs=1e-3) and hit.message.text == "My boat leaks."
    serving = (
        "SELECT config->>'backend', coalesce(config->>'model', config->>'embedder'), config->>'dimensions',"
        " prompts IS NOT NULL AND prompts::text <> '{}' FROM strandline.generation"
        " WHERE state = 'serving' AND pipeline IN ('summary', 'vectors') ORDER BY pipeline"
    )
    assert rows_of(rig.url, serving) == [
        ("installed", "scribe", None, True),
        ("installed", "compass", "4", False),
    ]
    last = memory.summarize_last(1)
    assert last is not None and last.text == "On dog."


def adopt(database: Database, database_url: str, settings: Settings) -> None:
    """Let the settings' recipes serve, as if no worker had run before."""
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM strandline.generation")
    register(database, {pipeline: recipe_for(pipeline, settings) for pipeline in PIPELINES})


def test_it_gets_the_prompt_and_its_answer_is_checked() -> None:
    model = load_text_model("scribe", 7.5, {"summary": "Write little."})
    Scribe.answer = 'Here it is: ```{"summary": "A boat.", "topics": [], "more": 1}```'
    answer = model.answer(TASK)
    assert answer.text == '{"summary":"A boat.","topics":[]}' and answer.model == "scribe"
    ((instructions, data, timeout_seconds),) = Scribe.asked
    assert instructions == "Write little." and "A boat." in data and timeout_seconds == 7.5
    assert answer.prompt_hash != load_text_model("scribe", 1.0).answer(TASK).prompt_hash


@pytest.mark.parametrize("answer", ["no JSON", '{"topics": []}', b"bytes", 7])
def test_an_answer_that_cannot_be_used_is_refused(answer: Any) -> None:
    Scribe.answer = answer
    with pytest.raises(PermanentModelError):
        load_text_model("scribe", 1.0).answer(TASK)


def test_its_errors_are_told_without_their_messages() -> None:
    model = load_text_model("scribe", 1.0)
    Scribe.answer = ValueError("My boat leaks.")
    with pytest.raises(TransientModelError) as told:
        model.answer(TASK)
    assert str(told.value) == "The model 'scribe' failed with ValueError."
    Scribe.answer = ProviderDownError("It is away until noon.")
    with pytest.raises(ProviderDownError, match="until noon"):
        model.answer(TASK)


def test_vectors_have_length_1_and_others_are_refused() -> None:
    answer = load_embedder("same-compass").embed(["a boat", "nothing known"])
    assert answer.model == "same-compass" and answer.vectors[1] == (0, 0, 0, 1)
    assert sum(number**2 for number in answer.vectors[0]) == pytest.approx(1)
    assert load_embedder("compass").embed([]).vectors == ()
    with pytest.raises(PermanentModelError, match="1 vectors of 4 numbers"):
        load_embedder("flat").embed(["a boat"])


@pytest.mark.parametrize(
    ("load", "name", "problem"),
    [
        (load_embedder, "absent", "No installed package has an entry point .absent."),
        (load_embedder, "scribe", r"has no method embed\(\)"),
        (load_embedder, "nothing", r"has no method embed\(\)"),
        (load_embedder, "endless", "has dimensions 0"),
        (load_embedder, "gone", "cannot be loaded: AttributeError"),
    ],
)
def test_what_is_no_model_is_named(load: Callable[[str], object], name: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load(name)


def test_a_cut_answer_leaves_the_other_lines_and_candidates_open() -> None:
    numbers = range(1, 25)
    candidates = tuple(NumberedFact(n, f"Ann sold boat {n}.", TASK.lines[0].created_at) for n in numbers)
    texts: dict[Task, str] = {
        ExtractTask(tuple(replace(TASK.lines[0], number=n) for n in numbers)): (
            '{"facts": [{"text": "Ann has a boat.", "messages": [3]}, {"te'
        ),
        MergeTask((), candidates): '{"operations": [{"op": "add", "candidate": 3, "fact": null}, {"op": "ad',
    }
    for task, text in texts.items():
        code = SimpleNamespace(complete=lambda *_, text=text, **__: text)
        answer = InstalledTextModel("own", code, 1.0, None).answer(task)
        assert open_numbers(answer.text) == {*numbers} - {3}
