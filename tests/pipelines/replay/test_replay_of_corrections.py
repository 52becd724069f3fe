"""Corrections and generations: those kept, and later ones, have the memory of the log as it stands."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import Memory
from strandline.pipelines.generations.registry import find, serving_generations
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.pipelines.replay.records import Selection
from strandline.pipelines.replay.switching import serve_everybody
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.fresh_session import derived_of, fresh_copy
from tests.support.messages import user
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything

PIPELINES = (FACTS, SUMMARY, VECTORS)


@pytest.fixture
def settings(database_url: str, model_server: ModelServer) -> Settings:
    return load_settings(
        database_url=database_url,
        openai_base_url=model_server.base_url,
        text_backend="openai",
        embedding_backend="local",
        retry_base_seconds=0.05,
    )


@pytest.fixture
def memory(make_memory: MakeMemory, database: Database, database_url: str, settings: Settings) -> Memory:
    """A session of five events, derived."""
    made = make_memory(user_id="ana")
    for number in range(1, 6):
        made.put_messages([user(f"number {number} is kumquat{number}"), answer(f"noted {number}")])
        made.flush(all=True)
    drain_everything(database, database_url, settings)
    return made


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def derive_anew(database: Database, settings: Settings, *, hold: bool = False) -> list[int]:
    """A new generation of each pipeline, while workers work; returns them."""
    runner = BackgroundRunner(database, prepare_stages(database, settings), settings)
    runner.start()
    try:
        made = []
        for pipeline in PIPELINES:
            replay = begin_generation(database, pipeline, settings, force=True, hold=hold)
            assert derive_generation(database, replay).phase == ("held" if hold else "done")
            made.append(replay.generation_id)
        return made
    finally:
        runner.stop()


def settle(database: Database, url: str, settings: Settings) -> None:
    """Do the work of all generations, also of those that do not serve."""
    runner = BackgroundRunner(database, prepare_stages(database, settings), settings)
    runner.start()
    try:
        wait_until(lambda: nothing_due(url), timeout=60, what="all generations to be fed")
    finally:
        runner.stop()


def correct(memory: Memory) -> None:
    memory.replace(3, "number 2 is mango")
    memory.rewind(9)
    memory.put(user("number 5 is lychee"))


def test_a_held_generation_follows_a_correction(rig: Rig, memory: Memory) -> None:
    held = derive_anew(rig.database, rig.settings, hold=True)
    correct(memory)
    for table in ("fact", "fact_revision", "fact_candidate", "chunk", "block_state"):
        rows = str(rows_of(rig.url, f"SELECT t::text FROM strandline.{table} t"))
        assert "kumquat2" not in rows and "kumquat5" not in rows, table
    assert not verify(rig.database).violations
    memory.flush(all=True)
    (copy,) = fresh_copy(rig.memory, [memory])
    settle(rig.database, rig.url, rig.settings)
    before = derived_of(rig.url, memory)
    assert before == derived_of(rig.url, copy)
    for generation_id in held:
        generation = find(rig.database, generation_id)
        assert generation is not None
        serve_everybody(rig.database, generation)
    assert {g.generation_id for g in serving_generations(rig.database).values()} >= set(held)
    assert derived_of(rig.url, memory) == before
    assert not verify(rig.database).violations


def test_a_later_generation_derives_the_log_as_it_stands(rig: Rig, memory: Memory) -> None:
    correct(memory)
    memory.flush(all=True)
    settle(rig.database, rig.url, rig.settings)
    before = derived_of(rig.url, memory)
    derive_anew(rig.database, rig.settings)
    assert derived_of(rig.url, memory) == before
    assert not verify(rig.database).violations


def test_a_replay_in_place_finds_nothing_to_put_right(rig: Rig, memory: Memory) -> None:
    correct(memory)
    memory.rewind(5)
    settle(rig.database, rig.url, rig.settings)
    for pipeline in PIPELINES:
        replay = begin_in_place(rig.database, pipeline, Selection())
        counts = replay_in_place(rig.database, replay, rig.settings)
        assert counts.batches == counts.same > 0, pipeline
        assert counts.made_due == 0
    assert nothing_due(rig.url)
    assert not verify(rig.database).violations
