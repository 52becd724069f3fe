"""What a model refused, and what retention has removed since, in a generation that is made later."""

from __future__ import annotations

import pytest

from strandline import Retention, retention
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import FACTS, SUMMARY
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, rows_of
from tests.support.aging import DAY, age_messages
from tests.support.servers.model_server import ModelServer, Raw
from tests.support.workers.draining import drain_everything

REFUSAL = Raw(400, b'{"error": {"message": "refused", "code": "content_filter"}}')


@pytest.fixture
def settings(database_url: str, model_server: ModelServer) -> Settings:
    return load_settings(
        database_url=database_url, openai_base_url=model_server.base_url, text_backend="openai"
    )


@pytest.mark.parametrize("pipeline", [FACTS, SUMMARY])
def test_what_was_refused_and_then_removed_is_void(
    make_memory: MakeMemory,
    database: Database,
    database_url: str,
    settings: Settings,
    model_server: ModelServer,
    pipeline: str,
) -> None:
    """Nothing can be derived of it any more, and nothing was."""
    memory = make_memory("s", user_id="ana")
    memory.put_messages([{"role": "user", "content": text} for text in ("my boat is blue", "and old")])
    model_server.behave(responder=lambda _request: REFUSAL)
    memory.flush(all=True)
    drain_everything(database, database_url, settings)
    model_server.behave()
    age_messages(database_url, "s", 40 * DAY)
    memory.set_retention(Retention(max_age_seconds=30 * DAY))
    assert retention.run(database, at_once=True).removed
    runner = BackgroundRunner(database, prepare_stages(database, settings), settings)
    runner.start()
    try:
        replay = begin_generation(database, pipeline, settings, force=True)
        assert derive_generation(database, replay).phase == "done"
    finally:
        runner.stop()
    ended = rows_of(
        database_url,
        "SELECT DISTINCT g.state, r.outcome FROM strandline.receipt r"
        " JOIN strandline.generation g ON g.generation_id = r.generation_id"
        " WHERE g.pipeline = %s ORDER BY 1",
        pipeline,
    )
    assert ended == [("feeding", "dead"), ("serving", "void")]
    assert verify(database, deep=True).violations == ()
