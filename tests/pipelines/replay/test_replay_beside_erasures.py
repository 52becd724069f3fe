"""A replay passes over an owner while their erasure is unfinished."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from strandline import Memory
from strandline.erasure import Erasures
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import claim_replay
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say


class Died(Exception):
    pass


def die_behind_the_fence(step: str, _table: str, _rows: int) -> None:
    if step != "fence":
        raise Died


@pytest.fixture
def derive(database: Database, database_url: str, settings: Settings) -> Callable[[], None]:
    return lambda: drain_everything(database, database_url, settings)


@pytest.fixture
def memories(make_memory: MakeMemory, derive: Callable[[], None]) -> list[Memory]:
    made = [make_memory(f"s-{user}", user_id=user) for user in ("ana", "ben")]
    for memory in made:
        say(memory, "my boat is blue")
    derive()
    return made


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY, VECTORS])
@pytest.mark.parametrize("is_filled_first", [True, False])
@pytest.mark.parametrize("hold", [True, False])
def test_a_replay_ends_beside_an_erasure_whose_process_ended(
    rig: Rig,
    memories: list[Memory],
    derive: Callable[[], None],
    pipeline: str,
    *,
    is_filled_first: bool,
    hold: bool,
) -> None:
    """No worker takes the work that is due for such an owner."""
    replay = begin_generation(rig.database, pipeline, rig.settings, force=True, hold=hold)
    if is_filled_first:
        stop = threading.Event()

        def stop_when_filled(progress: Progress) -> None:
            if progress.phase in ("switching", "deriving"):
                stop.set()

        derive_generation(rig.database, replay, on_progress=stop_when_filled, stop=stop)
        replay = claim_replay(rig.database, replay.replay_id)
    erasures = Erasures.of_namespace(database_url=rig.url)
    with pytest.raises(Died):
        erasures.erase_user("ana", on_progress=die_behind_the_fence)
    passes = 0

    def derive_on_look(progress: Progress) -> None:
        nonlocal passes
        derive()
        passes += 1
        assert passes < 50, progress

    progress = derive_generation(rig.database, replay, on_progress=derive_on_look)
    assert progress.phase == ("held" if hold else "done")
    erasures.erase_user("ana")
    derive()
    assert not verify(rig.database).violations
    assert not rows_of(rig.url, "SELECT FROM strandline.due")
