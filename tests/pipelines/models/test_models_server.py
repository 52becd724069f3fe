"""The stand-in itself, where other tests rely on it: its own process, and control over HTTP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.model_server import ModelServer

ROOT = Path(__file__).parent.parent.parent.parent


def post(url: str, body: dict[str, Any], *, timeout: float = 60) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def counted(control: str) -> dict[str, int]:
    """How many requests it has received, and how many of them wait for their answer."""
    with urllib.request.urlopen(control, timeout=300) as response:
        found: dict[str, int] = json.load(response)
        return found


def test_a_model_server_process_is_controlled_over_http_and_ends_on_sigterm() -> None:
    command = [sys.executable, "-m", "tests.support.servers.model_server", "--latency", "3600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        base = process.stdout.readline().strip()
        try:
            embeddings = {"model": "m", "input": ["a"], "dimensions": 4}
            control = base.removesuffix("/v1") + "/control"
            with pytest.raises(OSError, match="timed out"):
                post(f"{base}/embeddings", embeddings, timeout=0.2)
            assert counted(control) == {"requests": 1, "open": 1}, "it waits before it answers"
            assert post(control, {"status": 503, "times": 1})[0] == 200
            assert [post(f"{base}/embeddings", embeddings)[0] for _ in range(2)] == [503, 200]
            assert post(control, {"nonsense": 1})[0] == 400
            assert counted(control) == {"requests": 3, "open": 1}
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=100) == 0


def test_the_model_server_closes_while_a_request_hangs() -> None:
    with ModelServer() as server:
        server.behave(hang=True)
        body = json.dumps({"model": "m", "input": "a"}).encode()
        request = urllib.request.Request(f"{server.base_url}/embeddings", body)
        with pytest.raises(OSError, match="timed out"):
            urllib.request.urlopen(request, timeout=0.2)


def test_misbehaviour_can_be_kept_to_one_path_and_what_came_is_recorded() -> None:
    with ModelServer() as server:
        server.behave(status=500, path="/chat/completions")
        chat = {"model": "m", "messages": []}
        assert post(f"{server.base_url}/chat/completions", chat)[0] == 500
        assert post(f"{server.base_url}/embeddings", {"model": "m", "input": "a"})[0] == 200
        assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v1/embeddings"]
        assert server.requests[0].body == chat
