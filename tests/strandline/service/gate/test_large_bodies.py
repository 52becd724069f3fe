"""What is large: its share of bytes, its thread, its turns, and what is refused before it is built."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.producers.reading import read
from strandline.producers.writing import validate
from strandline.service import route
from strandline.service.gate import bodies
from strandline.service.gate.limits import Admission, Asker, ClassLimits
from strandline.service.gate.problems import ProblemError
from strandline.service.gate.turns import Aside
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
ASIDE = "strandline-large"


def separators(value: Any) -> int:
    """The commas of a value as JSON, outside of its texts."""
    if not isinstance(value, (dict, list)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max(0, len(value) - 1) + sum(map(separators, inner))


@settings(max_examples=200)
@given(value=VALUES, most=st.integers(1, 12), indent=st.none() | st.just(1), ascii_only=st.booleans())
def test_a_body_is_refused_by_its_values_whatever_its_texts_hold(
    value: Any, most: int, indent: int | None, ascii_only: bool
) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "MAX_VALUES", most)
        if separators(value) < most:
            bodies.check_values(body)
            return
        with pytest.raises(ProblemError) as refusal:
            bodies.check_values(body)
    assert refusal.value.kind.status == 413


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


BYTES = ClassLimits(8, 8, 60, max_bytes=100, bytes_per_key=50, bytes_per_namespace=80)


async def test_a_permit_weighs_the_bytes_of_its_body() -> None:
    order: list[str] = []

    admission, gates = Admission(BYTES), {}

    async def hold(name: str, size: int) -> None:
        gates[name] = asyncio.Event()
        async with admission.permit(Asker(name[0], name[:2]), size):
            order.append(name)
            await gates[name].wait()

    tasks = []
    for name, size in [
        ("Aa1", 30),
        ("Aa2", 30),
        ("Ab1", 40),
        ("Ac1", 20),
        ("Bd1", 30),
        ("Bd2", 0),
        ("Be1", 0),
    ]:
        tasks.append(asyncio.create_task(hold(name, size)))
        await settle()
    # Of key a 60, of namespace A 90, of all 100 would be exceeded; what is small needs no bytes.
    assert order == ["Aa1", "Ab1", "Bd1", "Bd2", "Be1"]
    gates["Aa1"].set()
    await settle()
    assert order[5:] == ["Aa2"]
    gates["Ab1"].set()
    await settle()
    assert order[6:] == ["Ac1"]
    for gate in gates.values():
        gate.set()
    await asyncio.gather(*tasks)
    for _ in range(2):  # nothing was lost
        await admission.take(Asker("A", "Aa"), 50)
        admission.give_back(Asker("A", "Aa"), 50)


async def test_a_body_larger_than_a_share_is_alone_and_not_refused() -> None:
    admission, asker = Admission(BYTES), Asker("A", "Aa")
    async with admission.permit(asker, 10_000):
        waiting = asyncio.create_task(admission.take(asker, 1))
        await settle()
        assert not waiting.done()
    await waiting


async def test_what_is_large_is_done_one_at_a_time_for_a_namespace_in_turns_of_keys() -> None:
    aside, order = Aside(), []
    lock, other_is_done = threading.Lock(), threading.Event()

    def work(name: str) -> str:
        assert lock.acquire(blocking=False), "two pieces of work at the same time"
        order.append(name)
        if name == "Aa1":
            assert other_is_done.wait(60), "another tenant's work waits for this one"
        lock.release()
        return threading.current_thread().name

    def other_work() -> str:
        other_is_done.set()
        return threading.current_thread().name

    names = ["Aa1", "Aa2", "Aa3", "Ab1"]
    works = [aside.run(Asker("A", name[:2]), partial(work, name)) for name in names]
    threads = await asyncio.gather(*works, aside.run(Asker("B", "Bc"), other_work))
    assert all(thread.startswith(ASIDE) for thread in threads)
    aside.close()
    assert order[0] == "Aa1" and order.index("Ab1") < order.index("Aa3")


@pytest.fixture(scope="module")
def running(stack: EmbeddedStack) -> Iterator[RunningService]:
    with temporary_database(stack.database_url) as url, RunningService(url) as service:
        yield service


@pytest.fixture
def client(running: RunningService) -> Iterator[httpx2.Client]:
    with running.client(running.make_key(), user="ana") as client:
        yield client


def note_threads(patch: pytest.MonkeyPatch, module: Any, name: str, threads: list[str]) -> None:
    call: Callable[..., Any] = getattr(module, name)

    def noting(*arguments: Any, **named: Any) -> Any:
        threads.append(threading.current_thread().name)
        return call(*arguments, **named)

    patch.setattr(module, name, noting)


LARGE = {"role": "user", "content": "harbour, herring " * 2_000, "id": "m1"}
MANY = {"role": "user", "content": "x", "id": "m2", "metadata": {f"k{number}": 1 for number in range(300)}}


@pytest.mark.parametrize("message", [LARGE, MANY], ids=["bytes", "values"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/sessions/large/messages", lambda message: {"messages": [message]}),
        ("PUT", "/v1/sessions/large/runs/r", lambda message: {"messages": [message]}),
        ("POST", "/v1/sessions/large/import", lambda message: {"messages": [message]}),
        ("POST", "/v1/sessions/large/context", lambda message: {"messages": [message], "begun_only": False}),
    ],
    ids=["put", "run", "import", "context"],
)
def test_a_large_body_is_read_and_checked_beside_the_event_loop(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: Any, message: Any
) -> None:
    parsed: list[str] = []
    checked: list[str] = []
    note_threads(monkeypatch, route, "read_model", parsed)
    note_threads(monkeypatch, validate, "prepare", checked)
    response = client.request(method, path, json=body(message))
    assert response.is_success, response.text
    assert len(parsed) == 1 and parsed[0].startswith(ASIDE)
    assert "service" not in checked


def test_a_small_body_is_read_on_the_loop(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    checked: list[str] = []
    note_threads(monkeypatch, route, "read_model", parsed)
    note_threads(monkeypatch, validate, "prepare", checked)
    body = {"messages": [{"role": "user", "content": "I like herring."}]}
    assert client.post("/v1/sessions/small/messages", json=body).status_code == 201
    assert (parsed, checked) == (["service"], ["service"])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "x", "metadata": {f"k{number}": 1 for number in range(60_000)}},
        {"role": "user", "content": "x", "extra": {f"k{number}": 1 for number in range(50_000)}},
        {"role": "user", "content": [{"type": "text", "text": "a"}] * 20_000},
    ],
    ids=["metadata", "extra", "parts"],
)
def test_too_many_values_are_refused_before_they_are_built(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch, message: Any
) -> None:
    parsed: list[str] = []
    note_threads(monkeypatch, route, "read_model", parsed)
    response = client.post("/v1/sessions/many/messages", json={"messages": [message]})
    assert response.status_code == 413 and "25,000 values" in response.json()["detail"]
    assert parsed == []


def test_a_body_that_nothing_reads_beside_the_loop_is_small(running: RunningService) -> None:
    with running.client(running.make_key(scopes=["read"]), user="ana") as client:
        assert client.post("/mcp", json={"more": "x" * 70_000}).status_code == 413


def test_a_large_window_is_read_and_written_beside_the_event_loop(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = {"role": "user", "content": "x", "metadata": {"k": "y" * 10_000}}
    assert client.post("/v1/sessions/wide/messages", json={"messages": [message] * 40}).status_code == 201
    threads: list[str] = []
    note_threads(monkeypatch, read, "read_snapshot", threads)
    assert client.post("/v1/sessions/wide/context", json={}).status_code == 200
    assert threads and all(name.startswith(ASIDE) for name in threads)
