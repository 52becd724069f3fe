"""One trace leads from a put over HTTP to its model calls in another process, and holds no content."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from strandline.administration.keys import KeySpec, create_key
from tests.conftest import Rig, nothing_due, wait_until
from tests.support.processes.service_process import ServiceProcess
from tests.support.servers.otlp_receiver import receiving
from tests.support.servers.service_server import NO_AUTHORITIES
from tests.support.workers.busy_workers import environment

CANARY = "xylophone-4711"
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
EMBEDDINGS = {
    "STRANDLINE_EMBEDDING_BACKEND": "openai",
    "STRANDLINE_EMBEDDING_MODEL": "embedder",
    "STRANDLINE_EMBEDDING_DIMENSIONS": "256",
}
# Each span that is looked for, and the one above it.
ABOVE = {
    "update_memory": None,
    "send flush_event": "update_memory",
    "process extract": "send flush_event",
    "process merge": "send flush_event",
    "process summary": "send flush_event",
    "process vectors": "send flush_event",
    "chat facts-model": "process extract",
    "chat summary-model": "process summary",
    "embeddings embedder": "process vectors",
}
MODELS = {"STRANDLINE_FACTS_MODEL": "facts-model", "STRANDLINE_SUMMARY_MODEL": "summary-model"}


def test_a_put_over_http_and_its_model_calls_are_one_trace(rig: Rig, tmp_path: Path) -> None:
    with receiving() as receiver:
        traced = receiver.environment
        rig.start_worker(**environment(rig.model, **EMBEDDINGS, **MODELS, **traced))
        key = rig.database.run(create_key(KeySpec("default", ("write",), user_id=f"u-{CANARY}"))).key
        log = tmp_path / "service.txt"
        service = ServiceProcess(rig.url, log, STRANDLINE_TURN_DELAY_SECONDS="0", **traced)
        try:
            answer = httpx2.post(
                f"{service.url}/v1/sessions/s-{CANARY}/messages",
                headers={"Authorization": f"Bearer {key}", "traceparent": f"00-{TRACE}-{CALLER}-01"},
                timeout=60,
                json={
                    "messages": [
                        {"role": "user", "content": f"I keep a {CANARY} in Husum."},
                        {"role": "assistant", "content": "Noted."},
                    ],
                    "policy": {"deliver": "turn"},
                },
                verify=NO_AUTHORITIES,
            )
            assert answer.status_code == 201, answer.text
            wait_until(lambda: nothing_due(rig.url), timeout=120, what="everything to be derived")
            wait_until(lambda: ABOVE.keys() <= by_name(receiver.spans).keys(), timeout=60, what="all spans")
        finally:
            service.process.terminate()
            service.ended()
        spans = by_name(receiver.spans)
        assert all(CANARY.encode() not in body for body in receiver.bodies)
    assert {span.trace_id.hex() for span in spans.values()} == {TRACE}
    assert {name: parent_of(span, spans) for name, span in spans.items() if name in ABOVE} == ABOVE
    assert spans["update_memory"].parent_span_id.hex() == CALLER
    for span in spans.values():
        values = {one.key: one.value.string_value for one in span.attributes}
        assert re.fullmatch(r"[0-9a-f-]{36}|", values.get("gen_ai.memory.store.id", ""))


def by_name(spans: list[Span]) -> dict[str, Span]:
    return {span.name: span for span in spans}


def parent_of(span: Span, spans: dict[str, Span]) -> str | None:
    names = {one.span_id: name for name, one in spans.items()}
    return names.get(span.parent_span_id)
