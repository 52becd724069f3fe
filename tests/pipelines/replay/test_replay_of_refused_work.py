"""What a model refused, and what retention has removed since, in a generation that is made later."""

from __future__ import annotations

import pytest

from strandline import Retention, retention
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import FACTS, SUMMARY
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import Rig, rows_of
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
def test_what_was_refused_and_then_removed_is_void(rig: Rig, pipeline: str) -> None:
    """Nothing can be derived of it any more, and nothing was."""
    memory = rig.memory("s", user_id="ana")
    memory.put_messages([{"role": "user", "content": text} for text in ("my boat is blue", "and old")])
    rig.model.behave(responder=lambda _request: REFUSAL)
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings)
    rig.model.behave()
    age_messages(rig.url, "s", 40 * DAY)
    memory.set_retention(Retention(max_age_seconds=30 * DAY))
    assert retention.run(rig.database, at_once=True).removed
    runner = BackgroundRunner(rig.database, prepare_stages(rig.database, rig.settings), rig.settings)
    runner.start()
    try:
        replay = begin_generation(rig.database, pipeline, rig.settings, force=True)
        assert derive_generation(rig.database, replay).phase == "done"
    finally:
        runner.stop()
    ended = rows_of(
        rig.url,
        "SELECT DISTINCT g.state, r.outcome FROM strandline.receipt r"
        " JOIN strandline.generation g ON g.generation_id = r.generation_id"
        " WHERE g.pipeline = %s ORDER BY 1",
        pipeline,
    )
    assert ended == [("feeding", "dead"), ("serving", "void")]
    assert verify(rig.database, deep=True).violations == ()
