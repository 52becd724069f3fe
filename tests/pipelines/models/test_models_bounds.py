"""Bounds on a model server: it must answer within limits, and from the address that was called."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.pipelines.models.contract import ExtractTask, TranscriptLine
from strandline.pipelines.models.openai import client as openai_client
from strandline.pipelines.models.openai.embedder import OpenAIEmbedder, embedder_from
from strandline.pipelines.models.openai.models import OpenAITextModel, text_model_from
from strandline.schemas.errors import ModelError, ProviderSetupError, TransientModelError, UnusableAnswerError
from strandline.schemas.settings import Settings, load_settings
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest

EXTRACT = ExtractTask((TranscriptLine(1, "user", "Ann", "I keep bees", datetime(2024, 3, 11, tzinfo=UTC)),))


@pytest.fixture
def settings(server: ModelServer) -> Settings:
    return load_settings(openai_api_key="sk-secret", openai_base_url=server.base_url, embedding_dimensions=8)


@pytest.fixture
def model(settings: Settings) -> Iterator[OpenAITextModel]:
    made = text_model_from(settings, purpose="facts")
    yield made
    made.close()


@pytest.fixture
def embedder(settings: Settings) -> Iterator[OpenAIEmbedder]:
    made = embedder_from(settings)
    yield made
    made.close()


def good_answer(padding: int) -> bytes:
    """A completion that can be used, with blanks in it."""
    choice = {"message": {"content": '{"facts": []}' + " " * padding}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice]}).encode()


def test_an_answer_that_is_larger_than_any_model_gives_is_not_read(
    server: ModelServer, model: OpenAITextModel
) -> None:
    most = openai_client.MAX_COMPLETION_BYTES
    answer = good_answer(most - len(good_answer(0)))
    server.behave(responder=lambda _: Raw(200, answer))
    assert model.answer(EXTRACT).text == '{"facts":[]}'
    server.behave(responder=lambda _: Raw(200, answer + b" "))
    with pytest.raises(TransientModelError, match=f"larger than {most:,} bytes"):
        model.answer(EXTRACT)


@pytest.mark.parametrize("status", [200, 400, 503])
def test_an_answer_that_grows_as_it_is_read_is_not_read(
    server: ModelServer, model: OpenAITextModel, embedder: OpenAIEmbedder, status: int
) -> None:
    """It was asked not to be compressed; one that is, is read within the same bounds."""
    body = gzip.compress(good_answer(40_000_000))
    assert len(body) < 100_000
    server.behave(responder=lambda _: Raw(status, body, (("Content-Encoding", "gzip"),)))
    for ask in (lambda: model.answer(EXTRACT), lambda: embedder.embed(["a"])):
        with pytest.raises(TransientModelError, match="larger than"):
            ask()
    assert {request.accept_encoding for request in server.requests} == {"identity"}


@pytest.mark.parametrize(("encoding", "body"), [("br", b"x"), ("gzip", b"not gzip"), ("gzip, br", b"x")])
def test_a_compression_that_cannot_be_read_is_named(
    server: ModelServer, model: OpenAITextModel, encoding: str, body: bytes
) -> None:
    server.behave(responder=lambda _: Raw(200, body, (("Content-Encoding", encoding),)))
    with pytest.raises(TransientModelError, match="compressed"):
        model.answer(EXTRACT)


@pytest.mark.parametrize("size", [4, 1_600])
def test_as_many_vectors_as_are_asked_for_are_read(
    server: ModelServer, settings: Settings, size: int
) -> None:
    """However they are written: the longest numbers, of the most texts in one request."""
    embedder = embedder_from(settings.model_copy(update={"embedding_dimensions": size}))
    vector = [-1.2345678901234567e-100] * (size - 1) + [1.0]

    def respond(request: RecordedRequest) -> dict[str, Any]:
        texts = range(len(request.body["input"]))
        return {"data": [{"index": index, "embedding": vector} for index in texts]}

    server.behave(responder=respond)
    assert len(embedder.embed(["a"] * 256).vectors) == 256
    embedder.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_its_target_is_named(
    server: ModelServer, model: OpenAITextModel, embedder: OpenAIEmbedder, status: int
) -> None:
    with ModelServer() as elsewhere:
        host = elsewhere.base_url.removeprefix("http://").removesuffix("/v1")
        target = f"http://user:secret@{host}/v1/chat/completions?key=secret"
        server.behave(responder=lambda _: Raw(status, b"", (("Location", target),)))
        for ask in (lambda: model.answer(EXTRACT), lambda: embedder.embed(["a"])):
            with pytest.raises(ProviderSetupError, match=rf"redirects to {host}.*OPENAI_BASE_URL") as caught:
                ask()
            assert "secret" not in str(caught.value)
        assert elsewhere.requests == []


@pytest.mark.parametrize("location", [None, "", "//[", "http://\u202eevil", "/elsewhere"])
def test_a_redirect_to_nowhere_names_no_host(
    server: ModelServer, model: OpenAITextModel, location: str | None
) -> None:
    headers = () if location is None else (("Location", location.encode().decode("latin-1")),)
    server.behave(responder=lambda _: Raw(302, b"", headers))
    with pytest.raises(ProviderSetupError, match="redirects to another address"):
        model.answer(EXTRACT)


class DrippingServer:
    """Answers each request with a beginning, then piece after piece, until the client stops reading."""

    def __init__(
        self, begins: bytes, piece: bytes, *, pieces: int, pause_seconds: float, ends: bytes
    ) -> None:
        self._pieces = (begins, piece, ends)
        self._count, self._pause_seconds = pieces, pause_seconds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._answer, daemon=True)
        self.said_all = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"

    def __enter__(self) -> DrippingServer:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._thread.join(300)
        self._listening.close()

    def _answer(self) -> None:
        begins, piece, ends = self._pieces
        connection, _address = self._listening.accept()
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(begins)
            for _ in range(self._count):
                connection.sendall(piece)
                time.sleep(self._pause_seconds)
            connection.sendall(ends)
            self.said_all = True


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BODY = good_answer(0)
WHOLE = OK + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n" % (len(BODY), BODY)
DRIPS = {
    "statuses": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n", WHOLE),
    "headers": (OK, b"X-Pad: a\r\n", WHOLE.removeprefix(OK)),
    "trailers": (CHUNKED, b"X-Pad: a\r\n", b"\r\n"),
}


@pytest.mark.parametrize("what", sorted(DRIPS))
def test_whatever_a_server_drips_is_read_for_as_long_as_an_answer_may_take(what: str) -> None:
    begins, piece, ends = DRIPS[what]
    with DrippingServer(begins, piece, pieces=100, pause_seconds=0.1, ends=ends) as dripping:
        settings = load_settings(
            openai_api_key="sk-secret", openai_base_url=dripping.url, model_timeout_seconds=1
        )
        model = text_model_from(settings, purpose="facts")
        kind: type[ModelError] = TransientModelError
        says = "did not answer in time"
        if what == "trailers":  # its answer has begun
            kind, says = UnusableAnswerError, "did not end"
        with pytest.raises(kind, match=says):
            model.answer(EXTRACT)
        model.close()
    assert not dripping.said_all


@pytest.mark.parametrize("pause_seconds", [0.01, 0.3])
def test_an_answer_without_an_end_is_no_outage(pause_seconds: float) -> None:
    begins = OK.replace(b"json", b"json; charset=utf-8") + b"Content-Length: 100000\r\n\r\n"
    with DrippingServer(begins, b" ", pieces=1_000, pause_seconds=pause_seconds, ends=b"") as dripping:
        settings = load_settings(openai_api_key="k", openai_base_url=dripping.url, model_timeout_seconds=1)
        model = text_model_from(settings, purpose="facts")
        with pytest.raises(UnusableAnswerError, match="did not end"):
            model.answer(EXTRACT)
        model.close()
    assert not dripping.said_all


@pytest.mark.parametrize("what", sorted(DRIPS))
def test_what_a_server_sends_of_headers_is_not_kept_without_end(what: str) -> None:
    """Statuses that are not the answer are kept not at all; they end with the time."""
    begins, piece, ends = DRIPS[what]
    with DrippingServer(begins, piece * 10_000, pieces=10_000, pause_seconds=0.0, ends=ends) as flooding:
        settings = load_settings(
            openai_api_key="sk-secret", openai_base_url=flooding.url, model_timeout_seconds=2
        )
        model = text_model_from(settings, purpose="facts")
        with pytest.raises(TransientModelError):
            model.answer(EXTRACT)
        model.close()
    assert not flooding.said_all
