"""Quirks of servers that embed: each is played, and every text gets its vector, or the cause is named."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline.pipelines.models.openai.embedder import OpenAIEmbedder, embedder_from
from strandline.schemas.errors import ModelError, ProviderSetupError, RateLimitError, TransientModelError
from strandline.schemas.settings import load_settings
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest, hashed_vector

Respond = Callable[[RecordedRequest], Any]
TEXTS = [f"Day {number}: I walked." for number in range(40)]


@pytest.fixture
def embedder(server: ModelServer) -> Iterator[OpenAIEmbedder]:
    settings = load_settings(
        openai_base_url=server.base_url, openai_api_key="k", embedding_model="e", embedding_dimensions=8
    )
    made = embedder_from(settings)
    yield made
    made.close()


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def vectors(texts: list[str], **beside: Any) -> dict[str, Any]:
    rows = [{"index": n, "embedding": hashed_vector(text, 8)} for n, text in enumerate(texts)]
    return {"data": rows, **beside}


def each(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Respond:
    return lambda request: {"data": [change(row) for row in vectors(request.body["input"])["data"]]}


def without_zero(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "index" or value}


def in_base64(row: dict[str, Any], numbers: str = "<8f") -> dict[str, Any]:
    return {**row, "embedding": base64.b64encode(struct.pack(numbers, *row["embedding"])).decode()}


def in_width(numbers: str) -> dict[str, Any]:
    row = {"embedding": [1] * int(numbers[1:-1])}
    return {"data": [in_base64(row, numbers)] * len(TEXTS)}


def refusing_texts(when: Callable[[list[str]], bool], status: int, body: Any) -> Respond:
    raw = json.dumps(body).encode()
    return lambda request: Raw(status, raw) if when(request.body["input"]) else vectors(request.body["input"])


def without(name: str, status: int, message: str) -> Respond:
    return lambda request: (
        Raw(status, json.dumps({"detail": message}).encode())
        if name in request.body
        else vectors(request.body["input"])
    )


EMBEDDINGS: dict[str, Respond] = {
    "no numbers": each(lambda row: {"embedding": row["embedding"]}),
    "the first number left out": each(without_zero),
    "numbers from 1": each(lambda row: {**row, "index": row["index"] + 1}),
    "the same number for each": each(lambda row: {**row, "index": 0}),
    "base64": each(in_base64),
    "base64 of the other order": each(lambda row: in_base64(row, ">8f")),
    "base64 for addresses": each(
        lambda row: {**row, "embedding": in_base64(row)["embedding"].translate({43: "-", 47: "_", 61: None})}
    ),
    "numbers in texts": each(lambda row: {**row, "embedding": list(map(str, row["embedding"]))}),
    "a number that is none": each(lambda row: {**row, "index": "first"}),
    "a bare list": lambda request: Raw(
        200, json.dumps([row["embedding"] for row in vectors(request.body["input"])["data"]]).encode()
    ),
    "a list of lists": lambda request: {
        "embeddings": {"float": [row["embedding"] for row in vectors(request.body["input"])["data"]]}
    },
    "a gateway's own body": lambda request: {"code": 0, "data": vectors(request.body["input"])},
    "an event": lambda request: Raw(200, f"data: {json.dumps(vectors(request.body['input']))}\n\n".encode()),
    "no reason for no format": without("encoding_format", 422, "extra fields not permitted"),
    "one text that is no list": lambda request: (
        vectors([request.body["input"]])
        if isinstance(request.body["input"], str)
        else Raw(422, b'{"detail": "str type expected"}')
    ),
    "a list in a list": each(lambda row: {**row, "embedding": [row["embedding"]]}),
    "numbers as texts": each(lambda row: {**row, "index": str(row["index"])}),
    "no format": without("encoding_format", 400, "Value for argument 'encoding_format' is not valid"),
    "one text at once": refusing_texts(lambda ts: len(ts) > 1, 400, error("The max number of inputs is 1.")),
    "ten at once": refusing_texts(lambda ts: len(ts) > 10, 400, error("batch size should not exceed 10")),
    "32 at once": refusing_texts(lambda ts: len(ts) > 32, 422, {"message": "batch size 40 > maximum 32"}),
    "so many characters": refusing_texts(
        lambda ts: sum(map(len, ts)) > 300,
        400,
        {"message": "Too many tokens overall, split into more batches."},
    ),
}


@pytest.mark.parametrize("quirk", EMBEDDINGS)
def test_every_text_gets_its_vector_and_what_works_is_remembered(
    server: ModelServer, embedder: OpenAIEmbedder, quirk: str
) -> None:
    server.behave(responder=EMBEDDINGS[quirk])
    for vector, text in zip(embedder.embed(TEXTS).vectors, TEXTS, strict=True):
        assert vector == pytest.approx(hashed_vector(text, 8), abs=1e-6)
    before = len(server.requests)
    embedder.embed(TEXTS)
    made = [EMBEDDINGS[quirk](one) for one in server.requests[before:]]
    assert all(getattr(one, "status", 200) == 200 for one in made), "nothing is refused any more"


@pytest.mark.parametrize("most", [1, 10, 32])
def test_a_limit_that_is_met_holds_for_the_rest_of_the_call(
    server: ModelServer, embedder: OpenAIEmbedder, most: int
) -> None:
    server.behave(
        responder=refusing_texts(lambda ts: len(ts) > most, 400, error(f"at most {most} inputs are taken"))
    )
    texts = [f"Day {number}: I walked." for number in range(1_000)]
    assert all(embedder.embed(texts).vectors)
    sizes = [len(request.body["input"]) for request in server.requests]
    assert sum(size > most for size in sizes) <= 10, "halvings of the first request"


@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_a_text_that_is_too_long_is_cut_and_its_neighbours_stay_together(
    server: ModelServer, embedder: OpenAIEmbedder, status: int
) -> None:
    long = "我每天早上去河边散步。" * 60
    server.behave(
        responder=refusing_texts(
            lambda ts: max(map(len, ts)) > 200, status, error("input is too large: less than 512 tokens")
        )
    )
    answer = embedder.embed([*TEXTS, long])
    assert all(answer.vectors) and len(answer.vectors) == 41
    before = len(server.requests)
    embedder.embed(TEXTS)
    assert len(server.requests) == before + 1


def test_a_text_that_is_refused_however_short_goes_without_a_vector(
    server: ModelServer, embedder: OpenAIEmbedder
) -> None:
    server.behave(responder=refusing_texts(lambda ts: any("nurse" in text for text in ts), 400, error("no")))
    answer = embedder.embed(["a nurse " * 40, *TEXTS])
    assert answer.vectors[0] == () and all(answer.vectors[1:])


@pytest.mark.parametrize(
    "none",
    [
        "[1, 2]",
        "[" + "NaN," * 7 + "NaN]",
        "[" + "null," * 7 + "null]",
        "null",
        "[]",
        '"?"',
        f'"{"[" * 5000}"',
    ],
)
def test_a_vector_that_is_none_is_left_out(server: ModelServer, embedder: OpenAIEmbedder, none: str) -> None:
    body = json.dumps(vectors(["a", "b"])).replace(json.dumps(hashed_vector("b", 8)), none)
    server.behave(responder=lambda _: Raw(200, body.encode()))
    first, second = embedder.embed(["a", "b"]).vectors
    assert len(first) == 8 and second == ()


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (404, {"error_msg": "Not Found"}, ProviderSetupError, "STRANDLINE_EMBEDDING_BACKEND=local"),
        (404, error("model not found"), ProviderSetupError, "STRANDLINE_EMBEDDING_MODEL"),
        (400, error("input_type is required"), ProviderSetupError, "every request"),
        (200, error("x", code=429), RateLimitError, "429"),
        (503, {}, TransientModelError, "503"),
        (
            501,
            error("This server does not support embeddings"),
            ProviderSetupError,
            "EMBEDDING_BACKEND=local",
        ),
        (200, {"data": [{"embedding": None}] * 40}, TransientModelError, "did not return one"),
        (200, in_width("<8e"), ProviderSetupError, "4 dimensions.*is of float32; have the server send that"),
        (200, in_width("<9e"), ProviderSetupError, "4 dimensions.*is of float32; have the server send that"),
        (200, in_width("<8d"), ProviderSetupError, "16 dimensions.*is of float32; have the server send that"),
        (200, in_width("<8b"), ProviderSetupError, "2 dimensions.*is of float32; have the server send that"),
    ],
)
def test_what_refuses_every_text_is_an_outage(
    server: ModelServer, embedder: OpenAIEmbedder, status: int, body: Any, kind: type[ModelError], reason: str
) -> None:
    server.behave(responder=lambda _: Raw(status, json.dumps(body).encode()))
    with pytest.raises(ModelError, match=reason) as caught:
        embedder.embed(TEXTS)
    assert type(caught.value) is kind
