"""What one key does to another tenant of a service process, at its worst."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from strandline.administration.keys import KeySpec, create_key
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading
from tests.support.processes.service_process import ServiceProcess

CONNECTIONS = (4, 32, 128)
SECONDS = 5.0
MOST_TIMES_ALONE = 3.0
MOST_MS = 50.0
MOST_MB = 300.0
# What each kind is answered, so that it is known to cost what it is to cost; others 200.
ANSWERS = {
    "60,000 fields of metadata": 413, "20,000 fields of extra": 201, "30,000 parts": 413, "8,000 parts": 201,
    "1,000 messages": 201, "bodies of 16 kB": 201, "forks": 201,
}  # fmt: skip
PROBED = {
    "live": ("GET", "/healthz/live", None),
    "put": (
        "POST",
        "/v1/sessions/calm-{}/messages",  # another one now and then, so that none grows
        {"messages": [{"role": "user", "content": "I like herring."}]},
    ),
    "context": ("POST", "/v1/sessions/calm/context", {"input": "What do I like?"}),
}


def run(ground: Ground) -> Iterator[Reading]:
    """Another tenant's put, context and liveness beside one key's largest bodies, forks and searches."""
    with TemporaryDirectory() as folder:
        process = ServiceProcess(ground.database_url, Path(folder) / "log")
        try:
            yield from _crowd(ground, process, Path(folder))
        finally:
            process.process.terminate()
            process.ended()


def _crowd(ground: Ground, process: ServiceProcess, folder: Path) -> Iterator[Reading]:
    calm, loud = (_make_key(ground, namespace) for namespace in ("calm", "loud"))
    _post(process, calm, "/v1/sessions/calm/messages", PROBED["put"][2])
    _fill(process, loud)
    alone = [_probe(process, calm) for _ in range(2)]
    bounds = {name: max(MOST_MS, *(MOST_TIMES_ALONE * one[name] for one in alone)) for name in PROBED}
    for kind, (path, body) in _kinds().items():
        status = _ask(HTTPConnection("127.0.0.1", process.port, timeout=60), loud, "POST", path, body)
        assert status == ANSWERS.get(kind, 200), (kind, status)
    before = _memory_mb(process, "VmRSS")
    _forget_peak(process)
    for kind, (path, body) in _kinds().items():
        for connections in CONNECTIONS:
            with _flooding(process, loud, folder / "request", connections, path, body):
                time.sleep(1.0)
                beside = _probe(process, calm)
            for name in PROBED:
                what = f"{name}, p99, beside {connections} times {kind} (alone {alone[0][name]:.1f} ms)"
                yield Reading(what, beside[name], bounds[name], "ms")
    most = _memory_mb(process, "VmHWM")
    yield Reading("memory of the process at its most, more than before", most - before, MOST_MB, "MB")


def _kinds() -> dict[str, tuple[str, Any]]:
    """Requests of one key, each the worst of its kind."""

    def put(*messages: dict[str, Any]) -> tuple[str, Any]:
        return "/v1/sessions/loud/messages", {"messages": [{"role": "user", **one} for one in messages]}

    return {
        "60,000 fields of metadata": put({"content": "x", "metadata": {f"k{i}": i for i in range(60_000)}}),
        "20,000 fields of extra": put({"content": "x", "extra": {f"k{i}": i for i in range(20_000)}}),
        "30,000 parts": put({"content": [{"type": "text", "text": "a"}] * 30_000}),
        "8,000 parts": put({"content": [{"type": "text", "text": "a"}] * 8_000}),
        "1,000 messages": put(*[{"content": "hello, world " * 70}] * 1_000),
        "bodies of 16 kB": put({"content": "x", "metadata": {f"k{i}": i for i in range(1_200)}}),
        "forks": ("/v1/sessions/filled/fork", {}),
        "searches": ("/v1/sessions/filled/search", {"query": "harbour herring " * 6_000, "scope": "owner"}),
        "contexts": ("/v1/sessions/filled/context", {"input": "harbour"}),
    }


def _fill(process: ServiceProcess, key: str) -> None:
    """A session of six megabytes in a large window."""
    policy = {"token_limit": 2**31 - 1}
    for _ in range(6):
        messages = [{"role": "user", "content": "The harbour is cold. " * 48}] * 1_000
        _post(process, key, "/v1/sessions/filled/messages", {"messages": messages, "policy": policy})


def _make_key(ground: Ground, namespace: str) -> str:
    return ground.database().run(create_key(KeySpec(namespace, ("read", "write")))).key


def _probe(process: ServiceProcess, key: str) -> dict[str, float]:
    """The 99th percentile of each kind of request, in milliseconds, one after the other for some seconds."""
    took: dict[str, list[float]] = {name: [] for name in PROBED}
    ends_at = time.monotonic() + SECONDS
    connection = HTTPConnection("127.0.0.1", process.port, timeout=60)
    while time.monotonic() < ends_at or len(took["live"]) < 2:
        for name, (method, path, body) in PROBED.items():
            began = time.monotonic()
            status = _ask(connection, key, method, path.format(len(took["live"]) // 50), body)
            took[name].append(1_000 * (time.monotonic() - began))
            assert status < 300, (name, status)
    connection.close()
    return {name: statistics.quantiles(times, n=100)[98] for name, times in took.items()}


def _post(process: ServiceProcess, key: str, path: str, body: Any) -> None:
    status = _ask(HTTPConnection("127.0.0.1", process.port, timeout=60), key, "POST", path, body)
    assert status < 300, status


def _ask(connection: HTTPConnection, key: str, method: str, path: str, body: Any) -> int:
    headers = {"Authorization": f"Bearer {key}", "Strandline-User": "ana", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    response.read()
    return response.status


@contextmanager
def _flooding(
    process: ServiceProcess, key: str, file: Path, connections: int, path: str, body: Any
) -> Iterator[None]:
    content = json.dumps(body)
    file.write_text(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nStrandline-User: ana\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}"
    )
    command = [
        sys.executable,
        "-m",
        "tests.soak.measuring.flood",
        str(process.port),
        str(connections),
        str(file),
    ]
    flood = subprocess.Popen(command)
    try:
        yield
    finally:
        flood.kill()
        flood.wait()


def _memory_mb(process: ServiceProcess, what: str) -> float:
    """What the process has now (``VmRSS``), or had at its most (``VmHWM``)."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1_000


def _forget_peak(process: ServiceProcess) -> None:
    Path(f"/proc/{process.process.pid}/clear_refs").write_text("5")
