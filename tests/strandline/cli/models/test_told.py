"""What one is told of a server that is slow, loads, fails on each input, or has a certificate of its own."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from strandline.pipelines.models.openai import client
from tests.conftest import Rig, wait_until
from tests.strandline.cli.models.test_models_command import run
from tests.support.servers.certificates import make_certificate
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest

__all__ = ["run"]


def checks(run: Any, **environment: str) -> dict[str, dict[str, str]]:
    _, out = run("models", "check", "--json", STRANDLINE_EMBEDDING_DIMENSIONS="8", **environment)
    return {check["name"]: check for check in json.loads(out)["checks"]}


def test_a_slow_embedder_is_told_of_with_the_setting_of_queries(run: Any, model_server: ModelServer) -> None:
    model_server.behave(latency=0.7, path="/embeddings")
    told = checks(run, OPENAI_BASE_URL=model_server.base_url)
    assert told["embedding"]["result"] == "ok"
    assert "found by words alone" in told["query_embedding"]["found"]
    assert "STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS" in told["query_embedding"]["advice"]


def test_a_server_that_loads_longer_than_calls_may_take_is_named_and_waited_for_with_more_time(
    run: Any, model_server: ModelServer
) -> None:
    def load(request: RecordedRequest) -> None:
        model_server.closing.wait(1.0)

    model_server.behave(responder=load)
    for seconds, result in (("0.3", "problem"), ("60", "ok")):
        told = checks(run, OPENAI_BASE_URL=model_server.base_url, STRANDLINE_MODEL_TIMEOUT_SECONDS=seconds)[
            "facts"
        ]
        assert told["result"] == result
        assert ("STRANDLINE_MODEL_TIMEOUT_SECONDS" in told["found"]) == (result == "problem")


def test_a_certificate_of_an_authority_of_ones_own_is_named(run: Any, tmp_path: Path) -> None:
    make_certificate(tmp_path, "localhost")
    with ModelServer() as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "memory.pem", tmp_path / "memory.key")
        server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
        address = server.base_url.replace("http://127.0.0.1", "https://localhost")
        for trusted, result in (("", "problem"), (str(tmp_path / "memory.pem"), "ok")):
            client._trusted_authorities.cache_clear()
            told = checks(run, OPENAI_BASE_URL=address, SSL_CERT_FILE=trusted)["facts"]
            assert told["result"] == result
            is_named = (
                "its certificate is not trusted; name your authority's file in SSL_CERT_FILE" in told["found"]
            )
            assert is_named == (result == "problem")
    client._trusted_authorities.cache_clear()


def test_status_gives_the_reason_while_failures_count(
    rig: Rig, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", rig.url)
    rig.model.behave(responder=lambda one: Raw(500, b"{}") if "<transcript>" in str(one.body) else None)
    memory = rig.memory("s", user_id="u", memory_blocks=["facts"], consume="background")
    memory.put({"role": "user", "content": "My cat is called Mio."})
    memory.flush(all=True)
    wait_until(lambda: "extract waits: " in run("status")[1], timeout=60, what="the reason")
    assert "The model server answered 500" in run("status")[1]
