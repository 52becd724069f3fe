"""Quirks of gateways and proxies, and of servers behind them: read as meant, or named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from strandline.pipelines.models.answers import open_numbers, parse_extract, parse_merge
from strandline.pipelines.models.contract import ExtractTask, MergeTask, NumberedFact
from strandline.pipelines.models.openai.embedder import OpenAIEmbedder
from strandline.pipelines.models.openai.errors import Rejection, seconds_to_wait
from strandline.pipelines.models.openai.models import OpenAITextModel
from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
)
from tests.pipelines.models.openai.test_embedding_quirks import embedder, vectors
from tests.pipelines.models.test_quirks import (
    EXTRACT,
    GOOD,
    LINES,
    MERGE,
    MOMENT,
    Respond,
    chunk,
    error,
    said,
    stream,
)
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest, hashed_vector

__all__ = ["embedder"]

ACCENTED = {"facts": [{"text": "José has a boat in 東京.", "messages": [1]}]}
CUT_OFF = ("Content-Length", "999999")


def named_set(charset: str, encoding: str = "utf-8", facts: Any = ACCENTED) -> Raw:
    body = json.dumps(said(json.dumps(facts, ensure_ascii=False)), ensure_ascii=False).encode(encoding)
    return Raw(200, body, (("Content-Type", f"application/json; charset={charset}"),))


@pytest.mark.parametrize("charset", ["ISO-8859-1", "us-ascii", "windows-1252"])
def test_json_is_in_utf_8_whatever_a_gateway_calls_it(
    server: ModelServer, model: OpenAITextModel, charset: str
) -> None:
    server.behave(responder=lambda _: named_set(charset))
    (fact,) = parse_extract(model.answer(EXTRACT).text, 2)
    assert fact.text == "José has a boat in 東京."


def test_json_that_is_not_in_utf_8_is_in_the_set_that_is_named(
    server: ModelServer, model: OpenAITextModel
) -> None:
    facts = {"facts": [{"text": "José has a boat.", "messages": [1]}]}
    server.behave(responder=lambda _: named_set("ISO-8859-1", "latin-1", facts))
    (fact,) = parse_extract(model.answer(EXTRACT).text, 2)
    assert fact.text == "José has a boat."


BODY = json.dumps(said(GOOD)).encode()
PLACES: dict[str, Respond] = {
    "a blank error": lambda _: said(GOOD) | {"error": {"message": "", "type": "", "param": "", "code": None}},
    "an error of nulls": lambda _: said(GOOD) | {"error": {"message": None, "code": None}},
    "a page's end behind it": lambda _: Raw(200, BODY + b"\n<!-- served by gateway 3 -->"),
    "line breaks within texts": lambda _: Raw(200, BODY.replace(b"boat", b"boat\n\tor two")),
    "half an event behind its end": lambda _: Raw(
        200, stream({"content": GOOD}, ends=False).body + b'data: [DONE]\n\ndata: {"usa'
    ),
    "no end of the connection": lambda _: Raw(200, stream({"content": GOOD}).body, (CUT_OFF,)),
    "no end of the connection, and no stream": lambda _: Raw(200, BODY, (CUT_OFF,)),
}


@pytest.mark.parametrize("quirk", PLACES)
def test_an_answer_is_found(server: ModelServer, model: OpenAITextModel, quirk: str) -> None:
    server.behave(responder=PLACES[quirk])
    assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    assert len(server.requests) == 1


# What a server says that refuses one request, by status and body, and what is made of it.
TOO_LONG, MODERATED = "longer than the server takes", "moderation"
ONE_REFUSAL: dict[str, tuple[int, Any, type[ModelError], str]] = {
    "tokens of a minute": (
        429,
        {"type": "error", "error": {"message": "This request would exceed the rate limit of 20,000 tokens"}},
        RateLimitError,
        "429",
    ),
    "a rate above a limit": (429, {"message": "Requests rate exceeds the limit"}, RateLimitError, "429"),
    "tokens, and a wait": (
        429,
        {"detail": "ThrottlingException: Too many tokens, please wait before trying again."},
        RateLimitError,
        "429",
    ),
    "throttled tokens": (
        400,
        {"__type": "ThrottlingException", "message": "Too many tokens"},
        RateLimitError,
        "400",
    ),
    "a check": (
        403,
        {"error": "Content violates guidelines. API key ID: 1, Failed check: SAFETY_CHECK_TYPE_BIO"},
        PermanentModelError,
        MODERATED,
    ),
    "sensitive, in a 200": (
        200,
        {"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}},
        PermanentModelError,
        MODERATED,
    ),
    "a long prompt": (
        400,
        error("This model's maximum prompt length is 9 but the request contains 10."),
        PermanentModelError,
        TOO_LONG,
    ),
    "a token limit": (
        400,
        error("Your request exceeded model token limit: 8192"),
        PermanentModelError,
        TOO_LONG,
    ),
    "many input tokens": (400, {"message": "Too many input tokens."}, PermanentModelError, TOO_LONG),
    "a token size": (
        400,
        error("Input length 600 exceeds maximum allowed token size"),
        PermanentModelError,
        TOO_LONG,
    ),
    "inputs and new tokens": (
        422,
        error("`inputs` tokens + `max_new_tokens` must be <= 4"),
        PermanentModelError,
        TOO_LONG,
    ),
    "a maximum length": (500, error("Input exceeded the maximum length"), PermanentModelError, TOO_LONG),
    "a slow answer": (500, error("The request took longer than 60 s"), TransientModelError, "500"),
    "no reason": (400, error("The model has crashed. (Exit code: 6)"), PermanentModelError, "this input"),
}


@pytest.mark.parametrize("quirk", ONE_REFUSAL)
def test_a_refusal_of_one_request_is_named(server: ModelServer, model: OpenAITextModel, quirk: str) -> None:
    status, body, kind, reason = ONE_REFUSAL[quirk]
    raw = Raw(status, json.dumps(body).encode())
    server.behave(responder=lambda request: raw if "boat" in str(request.body) else None)
    with pytest.raises(ModelError, match=reason) as caught:
        model.answer(EXTRACT)
    assert type(caught.value) is kind


EACH_REFUSAL: dict[str, tuple[int, Any, type[ModelError], str]] = {
    "a proxy's filter": (
        403,
        "<html>Blocked: content filtering</html>",
        ProviderSetupError,
        "firewall",
    ),
    "a proxy's limit": (400, "<html>Request Header Too Large</html>", ProviderSetupError, "every request"),
    "a model's id": (400, error("foo/bar is not a valid model ID"), ProviderSetupError, "FACTS_MODEL"),
    "a model's access": (
        404,
        error("Unable to access model m.", code="model_not_available"),
        ProviderSetupError,
        "FACTS_MODEL",
    ),
    "a model's endpoints": (404, error("No endpoints found for m."), ProviderSetupError, "FACTS_MODEL"),
    "a model's identifier": (
        400,
        {"message": "The provided model identifier is invalid."},
        ProviderSetupError,
        "FACTS_MODEL",
    ),
    "a budget": (400, error("Budget is gone", type="budget_exceeded"), ProviderSetupError, "quota"),
    "a month's limit": (400, error("You have reached your API usage limits."), ProviderSetupError, "quota"),
    "reduced rates": (
        429,
        {"detail": "Without a payment method you have reduced rate limits of 3 RPM and 10K TPM"},
        RateLimitError,
        "429",
    ),
    "a memory that is full": (
        500,
        error("GPU memory use exceeds the limit"),
        ProviderSetupError,
        "every request with 500",
    ),
    "a queue that is full": (500, error("Concurrent calls exceed the limit"), RateLimitError, "500"),
    "a rate in a fault": (
        500,
        {"fault": {"faultstring": "Rate limit quota violation"}},
        RateLimitError,
        "500",
    ),
    "an error in a text": (
        400,
        error("Provider error", metadata={"raw": json.dumps(error("API key not valid."))}),
        ProviderSetupError,
        "OPENAI_API_KEY",
    ),
}


@pytest.mark.parametrize("quirk", EACH_REFUSAL)
def test_a_refusal_of_all_requests_is_named(server: ModelServer, model: OpenAITextModel, quirk: str) -> None:
    """Also after others were answered: no input is to blame."""
    status, body, kind, reason = EACH_REFUSAL[quirk]
    model.answer(EXTRACT)
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    server.behave(responder=lambda _: Raw(status, raw))
    with pytest.raises(ModelError, match=reason) as caught:
        model.answer(EXTRACT)
    assert type(caught.value) is kind


def test_a_server_that_crashes_between_answers_blames_no_input(
    server: ModelServer, model: OpenAITextModel
) -> None:
    model.answer(EXTRACT)
    server.behave(status=400, message="The model has crashed. (Exit code: 6)")
    with pytest.raises(ProviderSetupError, match="every request with 400"):
        model.answer(EXTRACT)


@pytest.mark.parametrize(
    ("words", "seconds"), [("try again in 1 day", 86_400.0), ("Limit resets in 0d 2h", 7_200.0)]
)
def test_a_wait_of_days_is_read(words: str, seconds: float) -> None:
    assert seconds_to_wait(Rejection(429, words)) == seconds


SIX = ExtractTask(tuple(replace(LINES[0], number=n, text=f"boat {n}") for n in range(1, 7)))
FACTS = json.dumps({"facts": [{"text": f"Ann has boat {n}.", "messages": [n]} for n in range(1, 7)]})
FIVE = MergeTask(MERGE.known, tuple(NumberedFact(n, f"Ann sold boat {n}.", MOMENT) for n in range(1, 6)))
UPDATES = json.dumps(
    {"operations": [{"op": "update", "candidate": n, "fact": 1, "text": f"new {n}"} for n in range(1, 6)]}
)


def broken(text: str) -> Raw:
    event = json.dumps(chunk(text))
    return Raw(200, f"data: {event}\n\ndata: {event[:9]}".encode(), (CUT_OFF,))


@pytest.mark.parametrize(
    ("task", "text", "left_open"),
    [
        (SIX, FACTS[:60], {2, 3, 4, 5, 6}),
        (SIX, FACTS[:230], {5, 6}),
        (FIVE, UPDATES[:100], {2, 3, 4, 5}),
        (FIVE, UPDATES[:230], {4, 5}),
    ],
    ids=["a fact", "some facts", "a decision", "some decisions"],
)
def test_of_a_connection_that_ends_in_the_middle_the_complete_items_are_used(
    server: ModelServer, model: OpenAITextModel, task: Any, text: str, left_open: set[int]
) -> None:
    model.answer(EXTRACT)
    server.behave(responder=lambda _: broken(text))
    assert open_numbers(model.answer(task).text) == left_open
    assert len(server.requests) == 2


def test_a_connection_that_ends_within_a_character_garbles_no_other(
    server: ModelServer, model: OpenAITextModel
) -> None:
    model.answer(EXTRACT)
    event = json.dumps(chunk(FACTS[:60].replace("Ann", "José")), ensure_ascii=False)
    headers = (CUT_OFF, ("Content-Type", "text/event-stream; charset=ISO-8859-1"))
    server.behave(responder=lambda _: Raw(200, f"data: {event}\n\ndata: é".encode()[:-1], headers))
    (fact,) = parse_extract(model.answer(SIX).text, 6)
    assert fact.text == "José has boat 1."


def test_a_draft_among_thoughts_that_were_cut_is_no_answer(
    server: ModelServer, model: OpenAITextModel
) -> None:
    draft = '<think>Without any it is {"facts": []}, but'
    answers = iter([said(draft, finish="length"), said(GOOD)])
    server.behave(responder=lambda _: next(answers))
    assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    server.behave(responder=lambda _: broken(draft))
    with pytest.raises(TransientModelError):
        model.answer(EXTRACT)


@pytest.mark.parametrize("task", [SIX, FIVE], ids=["facts", "decisions"])
def test_a_connection_that_ends_before_an_item_is_an_outage(
    server: ModelServer, model: OpenAITextModel, task: Any
) -> None:
    model.answer(EXTRACT)
    server.behave(responder=lambda _: broken(FACTS[:20]))
    with pytest.raises(TransientModelError):
        model.answer(task)


def test_a_server_whose_streams_all_break_is_asked_without(
    server: ModelServer, model: OpenAITextModel
) -> None:
    server.behave(responder=lambda one: broken(FACTS[:230]) if one.body.get("stream") else said(FACTS))
    for _ in range(3):
        assert len(parse_extract(model.answer(SIX).text, 6)) == 6
    assert not server.requests[-1].body.get("stream")


def test_a_server_that_ends_answers_early_is_asked_about_the_others(
    server: ModelServer, model: OpenAITextModel
) -> None:
    """Otherwise candidates without a decision would be added as they are, and lines forgotten."""
    server.behave(responder=lambda _: said(UPDATES[:100], finish="length"))
    answer = model.answer(FIVE).text
    assert open_numbers(answer) == {2, 3, 4, 5} and parse_merge(answer, 1, 5)[0].op == "update"
    server.behave(responder=lambda _: said(FACTS[:60], finish="length"))
    assert open_numbers(model.answer(SIX).text) == {2, 3, 4, 5, 6}


def rows(request: RecordedRequest) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = vectors(request.body["input"])["data"]
    return made


EMBEDDINGS: dict[str, Respond] = {
    "the first alone": lambda request: {"data": rows(request)[:1]},
    "one for equal texts": lambda request: vectors([*dict.fromkeys(request.body["input"])]),
    "numbers that begin again": lambda request: {
        "data": [{**row, "index": row["index"] % 2} for row in rows(request)]
    },
}


@pytest.mark.parametrize("quirk", EMBEDDINGS)
def test_texts_whose_vectors_cannot_be_told_are_asked_for_apart(
    server: ModelServer, embedder: OpenAIEmbedder, quirk: str
) -> None:
    server.behave(responder=EMBEDDINGS[quirk])
    texts = ["a boat", "a dog", "a boat", "a house"]
    for vector, text in zip(embedder.embed(texts).vectors, texts, strict=True):
        assert vector == pytest.approx(hashed_vector(text, 8), abs=1e-6)


def test_a_text_whose_vector_is_no_number_goes_without(server: ModelServer, embedder: OpenAIEmbedder) -> None:
    refused = Raw(500, json.dumps({"error": "json: unsupported value: NaN"}).encode())
    server.behave(responder=lambda one: refused if "b" in one.body["input"] else vectors(one.body["input"]))
    first, second, third = embedder.embed(["a", "b", "c"]).vectors
    assert first and third and second == ()


def test_throttled_embeddings_wait(server: ModelServer, embedder: OpenAIEmbedder) -> None:
    server.behave(status=429, message="Too many tokens, please wait before trying again.")
    with pytest.raises(RateLimitError):
        embedder.embed(["a", "b"])
