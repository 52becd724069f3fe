"""What is derived again outlives a reset that forgets nothing, whichever of the two comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from strandline import Memory
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.in_place import InPlace, begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.pipelines.replay.records import Selection
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import SUMMARY, VECTORS
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of
from tests.support.fresh_session import derived_of
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

Work = Callable[[], None]


@pytest.fixture
def settings(database_url: str, model_server: ModelServer) -> Settings:
    return load_settings(
        database_url=database_url,
        openai_base_url=model_server.base_url,
        text_backend="openai",
        embedding_backend="local",
    )


@pytest.fixture
def work(database: Database, database_url: str, settings: Settings) -> Work:
    def drained() -> None:
        drain_everything(database, database_url, settings)
        assert nothing_due(database_url)
        assert verify(database, deep=True).violations == ()

    return drained


@pytest.fixture
def memory(make_memory: MakeMemory, work: Work) -> Memory:
    """Three events, derived."""
    made = make_memory("trunk", user_id="ana")
    say(made, "event 1", "event 2", "event 3")
    work()
    return made


def in_place(database: Database, settings: Settings, pipeline: str) -> InPlace:
    return replay_in_place(database, begin_in_place(database, pipeline, Selection()), settings)


@pytest.mark.parametrize("pipeline", [VECTORS, SUMMARY])
@pytest.mark.parametrize("is_reset_first", [True, False])
def test_what_is_asked_again_stays_after_a_reset(
    rig: Rig, memory: Memory, work: Work, pipeline: str, *, is_reset_first: bool
) -> None:
    before = derived_of(rig.url, memory)
    rows_of(rig.url, "DELETE FROM strandline.answer RETURNING 1")
    if is_reset_first:
        memory.reset()
    assert in_place(rig.database, rig.settings, pipeline).asked_again == 1
    if not is_reset_first:
        memory.reset()
    work()
    assert derived_of(rig.url, memory) == before


def test_what_a_fork_took_over_is_asked_again_after_its_reset(rig: Rig, memory: Memory, work: Work) -> None:
    """No answers are stored for it."""
    branch = rig.memory(memory.fork("branch").session_id, user_id="ana")
    say(branch, "event 4")
    work()
    before = derived_of(rig.url, branch)
    assert len(before.chunks) == 4
    branch.reset()
    # Each event that the fork took over has a batch of its own.
    assert in_place(rig.database, rig.settings, VECTORS).asked_again == 3
    work()
    assert derived_of(rig.url, branch) == before


@pytest.mark.parametrize("kind", ["rewind", "replace", "pop"])
def test_what_a_correction_left_stays_after_a_reset(
    memory: Memory, database_url: str, work: Work, kind: str
) -> None:
    """Though it is still to be derived again when the session is reset."""
    match kind:
        case "rewind":
            memory.rewind(2)
        case "replace":
            memory.replace(2, "event two")
        case _:
            memory.pop()
    expected = [message.text for message in memory.get_all()]
    memory.reset()
    work()
    derived = derived_of(database_url, memory)
    assert list(derived.facts) == sorted(expected)
    assert len(derived.chunks) == len(expected)
    assert derived.summary == " ".join(expected)


def test_what_its_source_gave_up_stays_in_a_fork_that_is_reset(
    make_memory: MakeMemory, memory: Memory, work: Work
) -> None:
    branch = make_memory(memory.fork("branch").session_id, user_id="ana")
    memory.rewind(2)
    branch.reset()
    work()
    assert {fact.text for fact in branch.facts.list()} == {"event 1", "event 2", "event 3"}


@pytest.mark.parametrize("pipeline", [VECTORS, SUMMARY])
@pytest.mark.parametrize("is_reset_first", [True, False])
def test_a_new_generation_has_what_the_one_before_derives_again(
    rig: Rig, memory: Memory, work: Work, pipeline: str, *, is_reset_first: bool
) -> None:
    """Also what is from before a reset, or becomes that meanwhile, and is applied nowhere at the moment."""
    before = derived_of(rig.url, memory)
    rows_of(rig.url, "DELETE FROM strandline.answer RETURNING 1")
    if is_reset_first:
        memory.reset()
    assert in_place(rig.database, rig.settings, pipeline).asked_again == 1
    replay = begin_generation(rig.database, pipeline, rig.settings, force=True)
    assert derive_generation(rig.database, replay).phase == "done"
    if not is_reset_first:
        memory.reset()
    work()
    assert derived_of(rig.url, memory) == before


def test_what_nothing_was_derived_from_is_void(memory: Memory, database_url: str, work: Work) -> None:
    """As ever: what is pending for the first time when a session is reset is not derived."""
    before: Any = derived_of(database_url, memory)
    say(memory, "event 4")
    memory.reset()
    work()
    assert derived_of(database_url, memory) == before
