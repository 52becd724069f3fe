"""Which spans a process makes, which of them are recorded, and what they hold."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Iterator
from inspect import iscoroutinefunction
from types import ModuleType

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from strandline import ConflictError
from strandline.cli.terminal.streams import JsonFormatter
from strandline.client import RemoteService
from strandline.client.operations import Call
from strandline.producers.memory import SessionMemory
from strandline.producers.namespace_erasures import NamespaceErasures
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas import tracing
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import load_settings
from strandline.wiring.traces import MEMORY_OPERATIONS, operation_spans
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.messages import user
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything

CANARY = "xylophone-4711"
SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNSAMPLED = "00-5bf92f3577b34da6a3ce929d0e0e4736-10f067aa0ba902b7-00"
KEPT = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(KEPT))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], list[ReadableSpan]]]:
    """The spans since the last look; this process is traced during the test."""
    monkeypatch.setenv("STRANDLINE_TRACES", "true")
    monkeypatch.setattr(trace, "get_tracer", PROVIDER.get_tracer)
    operation_spans.cache_clear()
    KEPT.clear()

    def look() -> list[ReadableSpan]:
        found = KEPT.get_finished_spans()
        KEPT.clear()
        return list(found)

    yield look
    operation_spans.cache_clear()
    tracing.install(None)


class Breaking(SimpleSpanProcessor):
    """An application's own, with a defect."""

    def __init__(self, at: str) -> None:
        super().__init__(InMemorySpanExporter())
        self._at = at

    def on_start(self, *_arguments: object, **_more: object) -> None:
        if self._at == "start":
            raise RuntimeError(CANARY)

    def on_end(self, *_arguments: object) -> None:
        if self._at == "end":
            raise RuntimeError(CANARY)


@pytest.mark.parametrize("at", ["start", "end"])
def test_a_processor_that_fails_fails_no_put(
    make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, at: str
) -> None:
    provider = TracerProvider()
    provider.add_span_processor(Breaking(at))
    monkeypatch.setenv("STRANDLINE_TRACES", "true")
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    operation_spans.cache_clear()
    memory = make_memory("s")
    assert memory.put(user("I keep bees.")) == 1
    assert [message.text for message in memory.get()] == ["I keep bees."]
    lost = [record for record in caplog.records if record.message == "span lost"]
    assert lost and CANARY not in caplog.text
    operation_spans.cache_clear()
    tracing.install(None)


def test_a_module_that_is_being_imported_has_no_span_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", ModuleType("opentelemetry.trace"))
    assert tracing.current_traceparent() is None


def names(found: list[ReadableSpan]) -> list[str]:
    return [span.name for span in found]


def test_operations_of_memory_are_spans_by_the_conventions(
    make_memory: MakeMemory, spans: Callable[[], list[ReadableSpan]]
) -> None:
    memory = make_memory(f"s-{CANARY}", user_id=f"u-{CANARY}", memory_blocks=["facts"])
    memory.put(user(f"I keep a {CANARY}."))
    memory.get(CANARY)
    memory.search(CANARY)
    memory.facts.search(CANARY)
    memory.flush(all=True)
    memory.reset()
    found = spans()
    assert names(found) == ["update_memory", *["search_memory"] * 3, "send flush_event", "delete_memory"]
    for span in found:
        values = dict(span.attributes or {})
        assert values["gen_ai.memory.store.id"] == str(memory._subject.identity.shard_key)
        assert values.get("gen_ai.operation.name", span.name) == span.name
    assert CANARY not in "".join(span.to_json() for span in found)


def test_async_twins_are_spans_too_and_flushes_are_below_their_put(
    make_memory: MakeMemory, spans: Callable[[], list[ReadableSpan]]
) -> None:
    memory = make_memory("s", memory_blocks=["facts"], deliver="turn")

    async def talk() -> None:
        await memory.aput(user("I sail."))
        await memory.aput({"role": "assistant", "content": "Where?"})
        await memory.aclose()

    asyncio.run(talk())
    found = spans()
    assert names(found) == ["update_memory", "send flush_event", "update_memory"]
    assert found[1].parent is not None
    assert found[1].parent.span_id == found[2].context.span_id


def test_an_error_is_there_by_its_class(
    make_memory: MakeMemory, spans: Callable[[], list[ReadableSpan]]
) -> None:
    memory = make_memory("s")
    memory.put({**user("I sail."), "id": CANARY})
    with pytest.raises(ConflictError):
        memory.put({**user(f"I keep a {CANARY}."), "id": CANARY})
    failed = spans()[-1]
    assert (failed.attributes or {})["error.type"] == "ConflictError"
    assert (failed.status.is_ok, failed.status.description, failed.events) == (False, None, ())
    assert CANARY not in failed.to_json()


# They set or show what surrounds memory, begin work, or list.
WITHOUT_A_SPAN = """
    apply_optimization call_tool deliver figures find_erased_rows flush get_retention list optimize
    plan_session plan_user readmit_session readmit_user retention_acts set_policy set_retention show summarize
    topics verify
"""


def test_each_operation_is_one_of_the_conventions_or_known_to_be_none() -> None:
    traced = {name for of_kind in MEMORY_OPERATIONS.values() for name in of_kind.split()}
    offered = {
        name
        for face in (SessionMemory, OwnerFacts, NamespaceErasures)
        for name, method in vars(face).items()
        if hasattr(method, "__wrapped__") and not iscoroutinefunction(method)
    }
    assert offered - traced == set(WITHOUT_A_SPAN.split())
    assert traced - offered == {"put"}


@pytest.mark.parametrize(
    ("parents", "is_recorded"),
    [
        ([SAMPLED], True),
        ([UNSAMPLED], False),
        ([UNSAMPLED, SAMPLED], True),
        ([SAMPLED, UNSAMPLED], True),
        ([UNSAMPLED, UNSAMPLED], False),
        ([None, UNSAMPLED], True),
        ([None], True),
    ],
)
def test_a_batch_is_recorded_if_any_of_its_events_is(
    rig: Rig, spans: Callable[[], list[ReadableSpan]], parents: list[str | None], is_recorded: bool
) -> None:
    memory = rig.memory("s", user_id="u", memory_blocks=["facts"])
    for number, parent in enumerate(parents):
        with tracing.caller_context([] if parent is None else [(b"traceparent", parent.encode())]):
            memory.put(user(f"My boat is blue k{number}."))
            memory.flush(all=True)
    sent = {span.context.span_id for span in spans() if span.name == "send flush_event"}
    drain_everything(rig.database, rig.url, load_settings(text_backend="local"), ["extract"])
    found = spans()
    assert names(found) == (["process extract"] if is_recorded else [])
    for batch in found:
        assert batch.parent is None or batch.parent.span_id in sent
        assert (batch.attributes or {})["messaging.batch.message_count"] == len(parents)
        assert len(batch.links) == (len(parents) if len(parents) > 1 else 0)


def test_a_batch_that_fails_says_by_which_class(
    rig: Rig, spans: Callable[[], list[ReadableSpan]], model_server: ModelServer
) -> None:
    memory = rig.memory("s", user_id="u", memory_blocks=["facts"])
    memory.put(user(f"I keep a {CANARY}."))
    memory.flush(all=True)
    model_server.behave(status=400, message=f"No {CANARY} here.")
    settings = load_settings(
        openai_base_url=model_server.base_url, openai_api_key="unused", text_backend="openai"
    )
    drain_everything(rig.database, rig.url, settings, ["extract"])
    failed = [span for span in spans() if not span.status.is_ok and span.status.status_code.name == "ERROR"]
    assert {span.name.split()[0] for span in failed} == {"process", "chat"}
    assert CANARY not in "".join(span.to_json() for span in failed)


def test_a_line_of_the_log_and_a_request_name_the_present_span(
    spans: Callable[[], list[ReadableSpan]],
) -> None:
    operation_spans()
    record = logging.makeLogRecord({"msg": "moved"})
    service = RemoteService("http://127.0.0.1:1", "sl_x")
    call = Call("GET", "/v1/sessions")
    with tracing.caller_context([(b"traceparent", SAMPLED.encode())]):
        line, sent = json.loads(JsonFormatter().format(record)), service.request_of(call)
    assert (line["trace_id"], line["span_id"]) == tuple(SAMPLED.split("-")[1:3])
    assert sent["headers"]["traceparent"] == SAMPLED
    assert "trace_id" not in json.loads(JsonFormatter().format(record))
    assert "traceparent" not in service.request_of(call)["headers"]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-0-0-01",
        f"{SAMPLED}0",
        SAMPLED.replace("4bf92f3577b34da6", "0" * 16).replace("a3ce929d0e0e4736", "0" * 16),
        CANARY,
    ],
)
def test_a_header_that_is_none_begins_nothing(header: str, spans: Callable[[], list[ReadableSpan]]) -> None:
    operation_spans()
    with tracing.caller_context([(b"traceparent", header.encode())]):
        assert tracing.current_traceparent() is None


def test_nothing_is_traced_unless_it_is_wanted(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["facts"])
    memory.put(user("I sail."))
    memory.flush(all=True)
    assert rows_of(rig.url, "SELECT traceparent FROM strandline.flush_event") == [(None,)]


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    operation_spans.cache_clear()
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigurationError, match=r"pip install opentelemetry-api"):
        operation_spans()
