"""What operators and their tools are told of a process: its parts, and its metrics."""

from __future__ import annotations

from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from strandline.schemas.wire.keys import NewKey
from tests.conftest import wait_until
from tests.support.servers.service_server import RunningService

SECRET = "sk-canary-4711"
PARTS = {
    "database": "served",
    "broker": "missing",
    "search by meaning": "served",
    "encrypted content": "missing",
    "signed receipts": "missing",
    "page": "missing",
    "tools by MCP": "served",
    "metrics": "served",
    "traces": "missing",
}


def parts(answer: httpx2.Response) -> dict[str, str]:
    return {part["name"]: part["state"] for part in answer.json()["capabilities"]}


def test_the_parts_of_the_service_are_listed_without_a_key(running: RunningService) -> None:
    with running.client(None) as client:
        answer = client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["status"] == "ok"
    assert parts(answer) == PARTS


def test_a_part_that_fails_is_degraded_and_nothing_secret_is_told(database_url: str) -> None:
    settings: dict[str, Any] = {
        "broker_url": f"redis://:{SECRET}@127.0.0.1:1/0",
        "openai_api_key": SECRET,
        "openai_base_url": "http://127.0.0.1:1/v1",
        "turn_delay_seconds": 0,
    }
    said = [{"role": "user", "content": "I sail."}, {"role": "assistant", "content": "Where?"}]
    with RunningService(database_url, **settings) as service, service.client(None) as client:
        with service.client(service.make_key(), user="ana") as ana:
            put = ana.post("/v1/sessions/s/messages", json={"messages": said, "policy": {"deliver": "turn"}})
            assert put.status_code == 201, put.text
        wait_until(
            lambda: parts(client.get("/healthz"))["broker"] == "degraded",
            timeout=10,
            what="the broker's loss",
        )
        answer = client.get("/healthz")
        assert answer.json()["status"] == "degraded"
        assert SECRET not in answer.text
        service.service.is_stopping = True
        stopping = client.get("/healthz").json()
    assert (stopping["status"], stopping["reason"]) == ("unavailable", "stopping")


def test_metrics_are_for_the_operator_of_the_installation(running: RunningService, key: NewKey) -> None:
    operator = running.make_key(None, scopes=("operate",))
    with running.client(operator) as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    names = {family.name for family in text_string_to_metric_families(answer.text)}
    assert {"strandline_database_up", "strandline_due", "strandline_workers"} <= names
    tenant = running.make_key("default", scopes=("operate",))
    for other, status in ((key, 403), (tenant, 403), (None, 401)):
        with running.client(other) as client:
            assert client.get("/metrics").status_code == status
