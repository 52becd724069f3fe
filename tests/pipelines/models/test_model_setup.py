"""A wrong key, an unknown model or a used-up quota: named at once wherever one looks, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import SecretStr

from strandline.administration.status import read_status
from strandline.cli.doctor.models import check_models
from strandline.cli.doctor.servers import check_database
from strandline.cli.servers.targets import Servers
from strandline.pipelines.engine.failures import KEPT_SECONDS, Troubles
from strandline.pipelines.inspect.explain_message import explain
from strandline.schemas.queries.work.workers import TellCondition
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import SUMMARY_STAGE
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.wiring.assembly import prepare_stages
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.producers.doorbell.test_doorbell import some_lane
from tests.support.servers.model_server import ModelServer
from tests.support.workers.busy_workers import check_done_once, environment
from tests.support.workers.draining import drain_everything, due_lanes
from tests.support.workers.hand_worker import HandWorker

REFUSALS = [
    ({"status": 401, "code": "invalid_api_key"}, "the key was refused (401)"),
    ({"status": 403}, "access was refused (403)"),
    ({"status": 404, "code": "model_not_found"}, "does not have the model"),
    ({"status": 400, "message": "The model `m` does not exist."}, "does not have the model"),
    ({"status": 429, "code": "insufficient_quota"}, "the quota of the account is used up"),
    ({"status": 402}, "the quota of the account is used up"),
]
FAILURES = "SELECT sum(failures), (SELECT count(*) FROM strandline.dead_letter) FROM strandline.lane"


@pytest.mark.parametrize(("refusing", "says"), REFUSALS[::2])
def test_a_refusal_of_every_model_call_is_named_and_work_waits_until_it_is_mended(
    rig: Rig, refusing: dict[str, Any], says: str
) -> None:
    """At its first failure an event would be a dead letter here, so none was counted."""
    rig.model.behave(**refusing)
    worker = rig.start_worker(
        **environment(rig.model, "sk-secret-key", STRANDLINE_MAX_FAILURES="1"),
        STRANDLINE_PROVIDER_PROBE_SECONDS="0.5",
    )
    for number in range(5):
        memory = rig.memory(f"s{number}", user_id=f"u{number}", broker_url=rig.broker_url)
        memory.put({"role": "user", "content": f"harbour {number} is open", "id": f"m{number}"})
        memory.flush(all=True)

    def reasons() -> list[str]:
        report = read_status(rig.database, rig.settings)
        return [stage.reason for pipeline in report.pipelines for stage in pipeline.stages if stage.reason]

    wait_until(lambda: len(reasons()) == 2, timeout=60, what="a reason for extract and one for the summary")
    assert all(says in reason for reason in reasons())
    wait_until(lambda: len(rig.model.requests) > 8, timeout=60, what="the server to be probed again")
    for number in range(5):
        found = explain(rig.database, f"m{number}")
        assert isinstance(found, MessageExplanation)
        assert any(says in why for why in found.why), found.why
    servers = Servers(rig.url, None, "configured", "configured")
    checks = {check.name: check for check in check_database(servers, rig.settings)}
    assert (checks["work of summary"].result, says in checks["work of summary"].found) == ("problem", True)
    assert rows_of(rig.url, FAILURES) == [(0, 0)]
    postponed = [line for line in worker.output if "lane postponed" in line]
    assert postponed
    assert all("action=lane_postponed" in line and says in line and "lane=" in line for line in postponed)
    rig.model.behave()
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="the work to go on by itself")
    check_done_once(rig.database, rig.url, 5)
    assert reasons() == []
    assert worker.stop() == 0
    assert "sk-secret-key" not in "".join(worker.output)


def test_a_reason_of_one_worker_ends_when_another_does_the_work(rig: Rig) -> None:
    """A worker that does not try again itself would tell its reason for a minute more."""
    settings = rig.settings.model_copy(
        update={
            "openai_base_url": rig.model.base_url,
            "openai_api_key": SecretStr("sk"),
            "retry_base_seconds": 30,
        }
    )

    def reason() -> str | None:
        pipelines = read_status(rig.database, settings).pipelines
        return next(stage.reason for one in pipelines for stage in one.stages if stage.name == "extract")

    rig.model.behave(status=401)
    for user in ("ana", "bob"):
        rig.memory(f"of-{user}", user_id=user).put({"role": "user", "content": "I sail."})
        rig.memory(f"of-{user}", user_id=user).flush(all=True)
    drain_everything(rig.database, rig.url, settings, ["extract"])
    failed = "SELECT generation_id, shard_key FROM strandline.lane WHERE last_error IS NOT NULL LIMIT 1"
    ((generation, waiting),) = rows_of(rig.url, failed)
    other = HandWorker(rig.database, prepare_stages(rig.database, settings))
    told = json.dumps({"reasons": {f"{generation}/extract": "The key was refused."}})
    rig.database.fetch(TellCondition(worker_id=other.worker_id, condition=told))
    assert "The key was refused. The next attempt is at " in (reason() or "")
    rig.model.behave()
    of_others = "UPDATE strandline.lane SET next_attempt_at = now() WHERE shard_key <> %s RETURNING 1"
    rows_of(rig.url, of_others, waiting)  # the open breaker may have let none of them fail
    drain_everything(rig.database, rig.url, settings, ["extract"])
    assert reason() is None
    assert {lane.shard_key for lane in due_lanes(rig.url, ["extract"])} == {waiting}


@pytest.fixture
def chatting(model_server: ModelServer) -> Settings:
    """Settings of a server whose embeddings are well."""
    return load_settings(
        openai_api_key="sk-secret", openai_base_url=model_server.base_url, embedding_dimensions=8
    )


@pytest.mark.parametrize(("refusing", "says"), REFUSALS)
def test_doctor_asks_the_text_model_and_says_what_it_is_refused_for(
    refusing: dict[str, Any], says: str, model_server: ModelServer, chatting: Settings
) -> None:
    text, embedding = check_models(chatting, call=True)
    assert (text.result, embedding.result) == ("ok", "ok")
    assert "answered in" in text.found
    model_server.behave(**refusing, path="/chat/completions")
    text, embedding = check_models(chatting, call=True)
    assert (text.result, embedding.result) == ("problem", "ok")
    assert says in text.found
    assert "sk-secret" not in text.found
    asked = len(model_server.requests)
    assert [check.result for check in check_models(chatting, call=False)] == ["ok", "ok"]
    assert len(model_server.requests) == asked


def test_doctor_asks_each_text_model(model_server: ModelServer, chatting: Settings) -> None:
    two = chatting.model_copy(update={"summary_model": "other"})
    names = [check.name for check in check_models(two, call=True)]
    assert names == ["text model of facts and merge", "text model of summary", "embedding model"]
    asked = [request.body["model"] for request in model_server.requests if "messages" in request.body]
    assert asked == [two.facts_model, "other"]


def test_a_reason_is_kept_until_the_provider_answers_or_nothing_was_heard_of_it_for_long() -> None:
    now = [0.0]
    troubles = Troubles(clock=lambda: now[0])
    lane = some_lane(SUMMARY_STAGE)
    troubles.note(lane, "the key was refused (401)", 10.0)
    now[0] = 10.0 + KEPT_SECONDS - 1
    assert troubles.current() == {"1/summary": "the key was refused (401)"}
    now[0] += 1
    assert troubles.current() == {}
    troubles.note(lane, "the quota is used up", 0.0)
    troubles.settle(some_lane("extract"))
    assert json.dumps(troubles.current()) == '{"1/summary": "the quota is used up"}'
    troubles.settle(lane)
    assert troubles.current() == {}
