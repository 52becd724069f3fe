"""``strandline generations`` and ``strandline replay`` say what does not exist, and what there is."""

from __future__ import annotations

import pytest

from strandline.cli.entry import run
from strandline.pipelines.generations.registry import register, wanted_recipes
from strandline.pipelines.replay.new_generation import begin_generation
from strandline.schemas.postgres.database import Database
from strandline.schemas.queries.derived.generations import FeedGeneration
from strandline.schemas.settings import load_settings

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", [["prune", "99"], ["diff", "99"], ["promote", "99"]], ids=" ".join)
def test_a_generation_that_is_not_there_is_told_with_where_they_are_listed(
    command: list[str], database_url: str, capfd: Capture
) -> None:
    assert run(["generations", *command, "--database-url", database_url]) == 1
    said = capfd.readouterr().err
    assert "Generation 99 does not exist" in said
    assert "; `strandline generations list` lists them." in said


def test_a_dry_run_of_a_replay_that_is_not_there_is_refused(database_url: str, capfd: Capture) -> None:
    assert run(["replay", "--resume", "424242", "--dry-run", "--database-url", database_url]) == 1
    assert "Replay 424242 is unknown;" in capfd.readouterr().err


@pytest.mark.parametrize("words", ["replay", "replay --dry-run", "replay --new", "generations list"])
def test_a_pipeline_that_does_not_exist_is_told_with_those_there_are(
    words: str, database_url: str, capfd: Capture
) -> None:
    assert run([*words.split(), "--pipeline", "foo", "--database-url", database_url]) == 1
    assert "Pipeline 'foo' is unknown here; the pipelines are facts, summary" in capfd.readouterr().err


@pytest.mark.parametrize(("force", "changes"), [([], "none: --force is needed"), (["--force"], "none")])
def test_a_dry_run_asks_for_force_unless_it_was_given(
    force: list[str], changes: str, database: Database, database_url: str, capfd: Capture
) -> None:
    register(database, wanted_recipes({"summary"}, load_settings(), {}))
    arguments = ["replay", "--new", "--pipeline", "summary", "--dry-run", *force]
    assert run([*arguments, "--database-url", database_url]) == 0
    assert f"  what changes: {changes}\n" in capfd.readouterr().out


def test_a_generation_whose_replay_has_not_gone_through_the_log_is_not_promoted(
    database: Database, database_url: str, capfd: Capture
) -> None:
    """Nothing of it is due yet, so it would serve everybody, and have nothing."""
    register(database, wanted_recipes({"summary"}, load_settings(), {}))
    generation = begin_generation(database, "summary", load_settings(), force=True).generation_id
    database.fetch(FeedGeneration(generation_id=generation or 0))
    assert run(["generations", "promote", str(generation), "--database-url", database_url]) == 1
    assert "has not gone through what was flushed before it" in capfd.readouterr().err
