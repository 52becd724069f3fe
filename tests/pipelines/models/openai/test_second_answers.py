"""A first answer that can be used in part: what becomes of it, whatever the second request meets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from strandline.pipelines.models.answers import parse_extract, parse_instruct
from strandline.pipelines.models.contract import ExtractTask, InstructTask, NumberedFact
from strandline.pipelines.models.openai.embedder import embedder_from
from strandline.pipelines.models.openai.models import OpenAITextModel
from strandline.schemas.errors import TransientModelError
from strandline.schemas.settings import load_settings
from tests.pipelines.models.test_quirks import BOAT, EXTRACT, GOOD, MOMENT, REX, said
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest

# The fact of one line of six, and the beginning of another.
CUT = said(json.dumps({"facts": [BOAT, REX]})[:-25], finish="length")
SIX = ExtractTask(tuple(replace(EXTRACT.lines[0], number=n) for n in range(1, 7)))
NO_SOURCES = said(json.dumps({"facts": [{**BOAT, "messages": [], "topics": ["boats", "harbours", "ropes"]}]}))


def asked_first(first: Any, then: Any) -> Any:
    """Answers prompts that have not been asked about before, and what comes after, in two ways."""
    seen: list[RecordedRequest] = []

    def respond(request: RecordedRequest) -> Any:
        if "<transcript>" not in str(request.body["messages"]):
            return said("{}")
        seen.append(request)
        return first if len(seen) == 1 else then

    return respond


@pytest.mark.parametrize(
    "then",
    [
        said("no JSON"),
        said("", refusal="No."),
        NO_SOURCES,
        Raw(400, b'{"error": {"message": "maximum context length is 2048 tokens"}}'),
        Raw(400, b'{"error": {"message": "x", "code": "content_filter"}}'),
        Raw(429, b'{"error": {"message": "tokens per minute"}}'),
    ],
    ids=["unusable", "declined", "says less", "too long", "filtered", "rate"],
)
def test_the_complete_items_of_the_first_are_used(
    server: ModelServer, model: OpenAITextModel, then: Any
) -> None:
    server.behave(responder=asked_first(CUT, then))
    (fact,) = parse_extract(model.answer(SIX).text, 6)
    assert len(server.requests) > 1
    assert fact.text == BOAT["text"]


@pytest.mark.parametrize("first", [CUT, NO_SOURCES], ids=["in part", "in no part"])
def test_an_outage_is_waited_for(server: ModelServer, model: OpenAITextModel, first: Any) -> None:
    server.behave(responder=asked_first(first, Raw(503, b"")))
    with pytest.raises(TransientModelError):
        model.answer(SIX)


def test_text_that_utf_8_lacks_is_not_sent_back(server: ModelServer, model: OpenAITextModel) -> None:
    lone = Raw(200, json.dumps(said("no json \ud83d")).encode())
    server.behave(responder=asked_first(lone, said(GOOD)))
    assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": {"content": GOOD}, "delta": {"content": ""}, "finish_reason": "stop"}]},
        said(GOOD, refusal=""),
        Raw(200, b"\n" * 40 + json.dumps(said(GOOD)).encode()),
    ],
    ids=["message and delta", "an empty refusal", "empty lines before"],
)
def test_an_answer_is_found(server: ModelServer, model: OpenAITextModel, body: Any) -> None:
    server.behave(responder=lambda _: body)
    assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    assert len(server.requests) == 1


def test_an_error_next_to_choices_is_seen(server: ModelServer, model: OpenAITextModel) -> None:
    choices = [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]
    server.behave(responder=lambda _: {"error": {"code": 502, "message": "gone"}, "choices": choices})
    with pytest.raises(TransientModelError, match="502"):
        model.answer(EXTRACT)


def test_an_instruction_may_keep_all(server: ModelServer, model: OpenAITextModel) -> None:
    server.behave(responder=lambda _: said('{"operations": [{"op": "none", "fact": 1}]}'))
    task = InstructTask("Is that so?", (NumberedFact(1, "Ann has a boat.", MOMENT),))
    assert parse_instruct(model.answer(task).text, 1) == ()


def test_a_query_is_embedded_within_its_time_whatever_the_server_refuses(server: ModelServer) -> None:
    def respond(request: RecordedRequest) -> Raw:
        server.closing.wait(0.2)
        return Raw(400, b'{"error": {"message": "no"}}')

    server.behave(responder=respond)
    settings = load_settings(openai_base_url=server.base_url, openai_api_key="k", embedding_backend="openai")
    embedder = embedder_from(settings)
    with pytest.raises(TransientModelError, match="time"):
        embedder.embed(["a question about boats " * 9], timeout_seconds=0.5)
    assert len(server.requests) <= 3
    embedder.close()


def test_a_text_like_that_of_the_probe_is_any_text(server: ModelServer) -> None:
    def respond(request: RecordedRequest) -> Raw | None:
        texts = request.body["input"]
        is_refused = "word" in texts and not is_probing(texts)
        return Raw(422, b'{"error": {"message": "no"}}') if is_refused else None

    def is_probing(texts: list[str]) -> bool:
        return texts == ["word"] and len(server.requests) > 4

    server.behave(responder=respond)
    settings = load_settings(
        openai_base_url=server.base_url,
        openai_api_key="k",
        embedding_backend="openai",
        embedding_dimensions=8,
    )
    embedder = embedder_from(settings)
    hello, word = embedder.embed(["hello", "word"]).vectors
    assert len(hello) == 8 and word == ()
    embedder.close()
