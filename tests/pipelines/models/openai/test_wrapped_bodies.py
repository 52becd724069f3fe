"""Bodies within other bodies or texts, amid words, and cut streams of lines: read as meant, or named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.pipelines.engine.failures import RetryPolicy
from strandline.pipelines.models.answers import parse_extract
from strandline.pipelines.models.openai.embedder import OpenAIEmbedder
from strandline.pipelines.models.openai.models import OpenAITextModel
from strandline.schemas.errors import ModelError, RateLimitError, TransientModelError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, nothing_due, wait_until
from tests.pipelines.models.openai.test_embedding_quirks import TEXTS, embedder, vectors
from tests.pipelines.models.test_quirks import EXTRACT, GOOD, Respond, chunk, said
from tests.support.servers.model_server import (
    ModelServer,
    Raw,
    RecordedRequest,
    answer_to,
    hashed_vector,
)
from tests.support.stored import dead_letters
from tests.support.workers.hand_worker import HandWorker

__all__ = ["embedder"]

BODY = json.dumps(said(GOOD))
HALVES = GOOD[:30], GOOD[30:]
# Around a body of a server, as a gateway's answer.
GATEWAYS: dict[str, Any] = {
    "a function's answer": lambda body: {"statusCode": 200, "headers": {"a": "b"}, "body": json.dumps(body)},
    "a function's object": lambda body: {"body": body},
    "JSON in JSON": json.dumps,
    "JSON in JSON in JSON": lambda body: json.dumps(json.dumps(body)),
    "data in a text": lambda body: {"code": 0, "msg": "success", "data": json.dumps(body)},
    "a batch's line": lambda body: {"id": "b", "response": {"status_code": 200, "body": body}, "error": None},
    "a payload": lambda body: {"payload": body},
    "within several": lambda body: {"result": {"data": {"body": body}}},
}
# In place of a body of OpenAI's form.
BODIES: dict[str, Any] = {
    "a response": {"response": GOOD, "done": True},
    "a result": {"result": {"response": GOOD}, "success": True, "errors": []},
    "a result with an object": {"result": {"response": json.loads(GOOD)}, "success": True},
    "a text": {"text": GOOD, "finish_reason": "COMPLETE"},
    "an output's text": {"output": {"text": GOOD, "finish_reason": "stop"}},
    "predictions": {"predictions": [{"content": GOOD}]},
    "results": {"results": [{"generated_text": GOOD}]},
    "results with words of their own": {"results": [{"outputText": GOOD}]},
    "a generation": {"generation": GOOD, "stop_reason": "stop"},
    "a result that says success": {"code": 0, "msg": "success", "result": GOOD},
    "thoughts in a text": said("", reasoning_text=GOOD),
}
TYPED = (
    {"type": "message_start", "message": {"content": []}},
    *(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
        for part in HALVES
    ),
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
)
RAW: dict[str, bytes] = {
    "a log's line before": b"INFO: served in 3 ms\n" + BODY.encode(),
    "a page's warning before": b"<br />\n<b>Warning</b>: x in <b>y.php</b><br />\n" + BODY.encode(),
    "a call of a script": b"callback(" + BODY.encode() + b");",
    "single quotes": str(said(GOOD)).encode(),
    "a trailing comma": BODY[:-1].encode() + b",}",
    "a number of thousands of digits": BODY[:-1].encode() + b', "n": ' + b"9" * 5_000 + b"}",
    "lines of responses": b"\n".join(
        json.dumps({"response": part, "done": part is HALVES[1]}).encode() for part in HALVES
    ),
    "events in texts": b"\n\n".join(
        b"data: " + json.dumps(json.dumps(one)).encode()
        for one in (chunk(HALVES[0]), chunk(HALVES[1], "stop"))
    ),
    "events with types": b"\n\n".join(b"data: " + json.dumps(one).encode() for one in TYPED),
}


def answering(body: Any) -> Respond:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda _: Raw(200, raw)


ANSWERS = {name: answering(around(said(GOOD))) for name, around in GATEWAYS.items()}
ANSWERS |= {name: answering(body) for name, body in (BODIES | RAW).items()}


@pytest.mark.parametrize("quirk", ANSWERS)
def test_an_answer_is_found(server: ModelServer, model: OpenAITextModel, quirk: str) -> None:
    server.behave(responder=ANSWERS[quirk])
    assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    assert len(server.requests) == 1


VECTORS: dict[str, Any] = GATEWAYS | {
    "rows in a text": lambda body: {"data": json.dumps(body["data"])},
    "numbers with commas": lambda body: {
        "data": [{"embedding": ", ".join(map(str, row["embedding"]))} for row in body["data"]]
    },
    "dense vectors": lambda body: {"dense_vecs": [row["embedding"] for row in body["data"]]},
}


@pytest.mark.parametrize("quirk", VECTORS)
def test_vectors_are_found(server: ModelServer, embedder: OpenAIEmbedder, quirk: str) -> None:
    server.behave(
        responder=lambda request: answering(VECTORS[quirk](vectors(request.body["input"])))(request)
    )
    for vector, text in zip(embedder.embed(TEXTS).vectors, TEXTS, strict=True):
        assert vector == pytest.approx(hashed_vector(text, 8), abs=1e-6)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ({"statusCode": 429, "body": '{"message": "slow down"}'}, RateLimitError, "429"),
        ({"data": {"error": {"code": 429, "message": "slow down"}}}, RateLimitError, "429"),
        ({"code": 503, "data": None}, TransientModelError, "503"),
        ({"data": "<html>"}, TransientModelError, "not of OpenAI's form"),
        (b"<html><script>var a = {b: [1]};</script></html>", TransientModelError, "not of OpenAI's form"),
        (BODY.encode()[:-9], TransientModelError, "not of OpenAI's form"),
        (b"<p>" + BODY.encode()[:-9], TransientModelError, "not of OpenAI's form"),
    ],
)
def test_an_error_within_a_body_is_named(
    server: ModelServer, model: OpenAITextModel, body: Any, kind: type[ModelError], reason: str
) -> None:
    server.behave(responder=answering(body))
    with pytest.raises(kind, match=reason) as caught:
        model.answer(EXTRACT)
    assert type(caught.value) is kind


def test_json_that_a_model_writes_is_no_body_of_its_server(
    server: ModelServer, model: OpenAITextModel
) -> None:
    server.behave(responder=answering({"response": '{"error": {"code": 401, "message": "no"}}'}))
    with pytest.raises(ModelError, match="stayed unusable"):
        model.answer(EXTRACT)


def lines_of(*parts: str) -> bytes:
    return b"\n".join(
        json.dumps({"message": {"content": part}, "done": part is parts[-1]}, ensure_ascii=False).encode()
        for part in parts
    )


@pytest.mark.parametrize("cut", [1, 9, 20, 24, 25, 40])
def test_lines_that_break_off_are_no_whole_answer(
    server: ModelServer, model: OpenAITextModel, cut: int
) -> None:
    """Also within a character."""
    broken = lines_of(GOOD[:-2], ', {"text": "東京"}]}')[:-cut]
    server.behave(responder=lambda _: Raw(200, lines_of(*HALVES) if server.received > 1 else broken))
    assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    assert server.received == 2


WORDS = "my boat is red", "my dog is Rex", "my car is old"


def failing(when: Respond, otherwise: Respond = lambda _: None) -> Respond:
    gone = Raw(504, b"<html>Gateway Time-out</html>")
    return lambda request: gone if when(request) else otherwise(request)


def asked(request: RecordedRequest) -> str:
    return str(request.body.get("messages", [{}])[-1].get("content")).rpartition("<transcript>")[2]


DRAINED: dict[str, tuple[Respond, int]] = {
    "a function's answer": (lambda request: wrapped(request, GATEWAYS["a function's answer"]), 3),
    "JSON in JSON": (lambda request: wrapped(request, GATEWAYS["JSON in JSON"]), 3),
    "504 for long answers": (failing(lambda request: asked(request).count('"n"') > 1), 3),
    "504 for one line": (failing(lambda request: "boat" in asked(request)), 2),
}


def wrapped(request: RecordedRequest, around: Any) -> Any:
    return answering(around(said(json.dumps(answer_to(asked_in_full(request))))))(request)


def asked_in_full(request: RecordedRequest) -> str:
    return "\n".join(str(message["content"]) for message in request.body["messages"])


@pytest.mark.parametrize("quirk", DRAINED)
def test_what_can_be_answered_is_remembered(
    database: Database,
    database_url: str,
    model_settings: Settings,
    model_server: ModelServer,
    make_memory: MakeMemory,
    quirk: str,
) -> None:
    respond, remembered = DRAINED[quirk]
    model_server.behave(responder=respond)
    memory = make_memory("s", user_id="ana", memory_blocks=["facts"])
    memory.put_messages([{"role": "user", "content": text} for text in WORDS])
    memory.flush(all=True)
    worker = HandWorker(
        database,
        prepare_stages(database, model_settings, [EXTRACT_STAGE, MERGE_STAGE]),
        retry=RetryPolicy(base_seconds=0.001, max_seconds=0.002, max_failures=3),
    )
    wait_until(
        lambda: not worker.drain_all(database_url) and nothing_due(database_url),
        timeout=60,
        what="every lane is done",
    )
    assert len(memory.facts.list()) == remembered
    assert dead_letters(database_url) == 0


def test_a_text_whose_vector_is_always_left_out_goes_without_one(
    server: ModelServer, embedder: OpenAIEmbedder
) -> None:
    def respond(request: RecordedRequest) -> Any:
        rows = vectors(request.body["input"])["data"]
        return {
            "data": [row for row, text in zip(rows, request.body["input"], strict=True) if "9" not in text]
        }

    server.behave(responder=respond)
    answer = embedder.embed(TEXTS)
    assert [bool(vector) for vector in answer.vectors] == ["9" not in text for text in TEXTS]
    assert len(server.requests) < 2 * len(TEXTS)
