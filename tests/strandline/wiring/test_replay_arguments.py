"""Arguments of ``strandline.replay``'s functions: refused in our words, before anything is done."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from strandline import ConfigurationError, InvalidMessageError, StrandlineError, replay
from strandline.cli.entry import run
from strandline.pipelines.generations.recipe import Recipe
from strandline.schemas.errors import ReplayError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from tests.conftest import Rig

FUNCTIONS: list[Callable[..., Any]] = [
    getattr(replay, name) for name in replay.__all__ if inspect.isfunction(getattr(replay, name))
]
PARAMETERS = [(function, name) for function in FUNCTIONS for name in inspect.signature(function).parameters]
BEYOND = [0, -1, 2**31, 2**63, 99999999999999999999]

GENERATION = replay.Generation(1, "facts", "serving", Recipe("1", "owner", {}, {}), is_filled=True)
REPLAY = replay.Replay(1, "new", "facts", 1, replay.Selection(), "stopped", False, None, None)


@pytest.fixture
def usable(database: Database, settings: Settings) -> dict[str, Any]:
    """What each parameter without a default takes."""
    return {
        "database": database,
        "settings": settings,
        "pipeline": "facts",
        "selection": replay.Selection(),
        "replay": REPLAY,
        "replay_id": 1,
        "generation": GENERATION,
        "generation_id": 1,
        "new_id": 1,
        "new": False,
        "shard_key": UUID(int=1),
    }


def test_a_value_of_the_wrong_type_is_refused_by_the_arguments_name(usable: dict[str, Any]) -> None:
    for function, name in PARAMETERS:
        parameters = inspect.signature(function).parameters
        needed = {
            other: usable[other]
            for other, parameter in parameters.items()
            if parameter.default is inspect.Parameter.empty
        }
        with pytest.raises((ConfigurationError, InvalidMessageError), match=rf"^{name}\b.* must be "):
            function(**needed | {name: [{}]})


def test_a_selections_fields_are_checked_as_well(database: Database) -> None:
    unusable: dict[str, Any] = {
        "namespace": 5,
        "user_id": "a\x00",
        "session_id": "",
        "since": "2026-01-31",
        "until": datetime(2026, 1, 31),  # noqa: DTZ001
        "only_dead": None,
    }
    for name, value in unusable.items():
        with pytest.raises(StrandlineError, match=rf"^{name}\b"):
            replay.begin_in_place(database, "facts", replay.Selection(**{name: value}))


def test_a_rate_is_a_finite_number_that_postgres_can_keep(database: Database, settings: Settings) -> None:
    rates: list[Any] = [0, -1.0, 1e-301, float("nan"), float("inf"), True, "1"]
    for rate in rates:
        with pytest.raises(
            ConfigurationError, match=r"^calls_per_second is .* finite number, at least 1e-300\.$"
        ):
            replay.begin_generation(database, "facts", settings, calls_per_second=rate)


def test_a_wait_is_a_finite_number_of_seconds(database: Database) -> None:
    waits: list[Any] = [-1, -0.5, float("nan"), float("inf"), True, "1"]
    for wait in waits:
        with pytest.raises(ConfigurationError, match=r"^wait_seconds is .* finite number, at least 0\.$"):
            replay.derive_generation(database, REPLAY, wait_seconds=wait)


def test_a_url_in_place_of_a_database_is_not_quoted() -> None:
    url: Any = "postgresql://me:secret@127.0.0.1/x"
    with pytest.raises(ConfigurationError) as refused:
        replay.kept_generations(url)
    assert "secret" not in str(refused.value)


def test_numbers_that_nothing_has_are_told_as_such(database: Database) -> None:
    for number in BEYOND:
        with pytest.raises(ReplayError, match=f"^Generation {number} does not exist[,;]"):
            replay.prune(database, number)
        with pytest.raises(ReplayError, match=f"^Generation {number} does not exist[,;]"):
            replay.compare_generations(database, number)
        with pytest.raises(ReplayError, match=f"^Replay {number} is unknown;"):
            replay.claim_replay(database, number)
        assert replay.replays(database, replay_id=number) == []


@pytest.mark.parametrize(
    "command",
    [
        ["generations", "prune"],
        ["generations", "diff"],
        ["generations", "promote"],
        ["generations", "diff", "1", "--against"],
        ["replay", "--resume"],
    ],
    ids=" ".join,
)
def test_the_commands_say_so_too(
    command: list[str], database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    said = "Replay {} is unknown" if "--resume" in command else "Generation {} does not exist"
    for number in ("2147483648", "99999999999999999999"):
        assert run([*command, number, "--database-url", database_url]) == 1
        assert said.format(number) in capfd.readouterr().err


def test_what_serves_is_not_compared_with_itself(rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    number = replay.serving_generations(rig.database)["facts"].generation_id
    assert run(["generations", "diff", str(number), "--database-url", rig.url]) == 1
    assert capfd.readouterr().err == (
        f"strandline: Generation {number} of facts serves, so it would be compared with itself. Name another"
        f" one of that pipeline: strandline generations diff {number} --against GENERATION;"
        " `strandline generations list` lists them.\n"
    )
