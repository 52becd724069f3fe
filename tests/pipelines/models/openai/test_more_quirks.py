"""Further quirks of servers, each near one that is in another table: read as meant, or named."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from strandline.pipelines.models.answers import (
    MergeOperation,
    parse_extract,
    parse_merge,
    parse_summary,
)
from strandline.pipelines.models.openai.embedder import OpenAIEmbedder
from strandline.pipelines.models.openai.errors import (
    Rejection,
    retry_after_seconds,
    seconds_to_wait,
)
from strandline.pipelines.models.openai.models import OpenAITextModel
from strandline.pipelines.models.openai.request_forms import RequestForm
from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
)
from tests.pipelines.models.openai.test_embedding_quirks import (
    TEXTS,
    each,
    embedder,
    vectors,
)
from tests.pipelines.models.test_quirks import (
    BOAT,
    EXTRACT,
    GOOD,
    MERGE,
    REX,
    SUMMARY,
    Respond,
    chunk,
    error,
    refusing,
    said,
    saying,
)
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest, hashed_vector

__all__ = ["embedder"]

AROUND = {
    "marks of a template": f"<|start_header_id|>assistant<|end_header_id|>\n\n{GOOD}<|im_end|>",
    "another family's thoughts": f"<|begin_of_thought|>{json.dumps([REX])}<|end_of_thought|>{GOOD}",
    "an example of placeholders": '{"facts": [{"text": "string", "messages": [0]}]}\n' + GOOD,
    "an example with dots": '{"facts": [{"text": "...", "messages": [1]}]}\n' + GOOD,
    "line breaks in texts": GOOD.replace("owns a", "owns\na"),
    "a page's tags": f"<pre><code>{GOOD}</code></pre>",
    "no end": GOOD[:-1],
    "an end too many": GOOD + "}",
    "no beginning": GOOD[1:],
    "an assignment": f"facts = {json.dumps([BOAT, REX])};",
    "a box": f"\\boxed{{{GOOD}}}",
    "a call in a list": f'[TOOL_CALLS][{{"name": "extract", "arguments": {GOOD}}}]',
    "a function's list": f'functools[{{"name": "f", "arguments": {GOOD}}}]',
    "a function's tag": f"<function=extract>{GOOD}</function>",
    "a parameter's tag": f"<parameter=facts>{json.dumps([BOAT, REX])}</parameter>",
    "hidden blanks": GOOD.replace("{", "{\u200b\u00a0"),
    "digits of another script": GOOD.replace("[1]", "[\u0661]"),
    "a name of its own": json.dumps({"extracted_facts": [BOAT, REX], "count": 2}),
    "a key with a blank": GOOD.replace('"facts"', '"Facts "'),
    "a key in two words": json.dumps({"extractedFacts": [BOAT, REX], "number_of_facts": 2}),
    "each named": json.dumps({"facts": [{"fact_1": BOAT}, {"fact_2": REX}]}),
    "items": json.dumps({"data": {"items": [BOAT, REX]}}),
    "line numbers": GOOD.replace('"messages"', '"line_numbers"'),
    "message ids": GOOD.replace('"messages"', '"message_ids"'),
    "a sentence": GOOD.replace('"text"', '"sentence"'),
    "a range": GOOD.replace("[1]", '"1-1"'),
    "a start and an end": GOOD.replace("[1]", '{"start": 1, "end": 1}'),
    "texts in back quotes": GOOD.replace('"Ann owns a boat."', "`Ann owns a boat.`"),
    "a plus before a number": GOOD.replace("[1]", "[+1]"),
    "a zero before a number": GOOD.replace("[1]", "[01]"),
    "a comma at the beginning": GOOD.replace("[{", "[,{"),
    "a colon behind a number": GOOD.replace("[1]", '["1:"]'),
    "quotes within": GOOD.replace("owns a boat", 'owns a "boat"'),
}


@pytest.mark.parametrize("quirk", AROUND)
def test_json_is_found(server: ModelServer, model: OpenAITextModel, quirk: str) -> None:
    server.behave(responder=saying(AROUND[quirk]))
    facts = parse_extract(model.answer(EXTRACT).text, 2)
    assert [fact.messages for fact in facts] == [(1,), (2,)]
    assert "boat" in facts[0].text and facts[1].text == REX["text"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "operation",
    [
        {"operation": "ADD", "candidate": 1},
        {"action": "add", "candidate": 1},
        {"event": "ADD", "candidate": "1"},
        {"op": "add", "candidate_number": 1},
        {"op": "add.", "candidate": 1},
        {"op": "add_fact", "candidate": 1},
        {"op": ["add"], "candidate": [1]},
        {"op": "add", "candidate": "candidate 1", "fact": "null"},
        {"op": "add", "candidate": 1, "fact": ""},
        {"op": "add", "candidate": 1, "fact": 0},
        {"op": "add", "candidate": 1.0, "fact": []},
    ],
)
def test_an_operation_is_read(server: ModelServer, model: OpenAITextModel, operation: Any) -> None:
    other = {"op": "delete", "candidate": 1, "fact": 99}
    server.behave(responder=saying(json.dumps({"operations": [operation, other]})))
    assert json.loads(model.answer(MERGE).text)["operations"][0]["op"] == "add"
    assert parse_merge(model.answer(MERGE).text, 1, 1) == (MergeOperation("add", 1, None, None),)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        {"summary": {"text": "They talked."}},
        {"summary": {"content": "They talked.", "topics": ["x"]}},
        {"summary": [{"text": "They talked."}]},
        {"session_summary": "They talked.", "topics": []},
        {"Summary": "They talked."},
        {"result": {"summary": "They talked."}},
        [{"summary": "They talked."}],
        {"sessionSummary": "They talked.", "summary_language": "English"},
    ],
)
def test_a_summary_is_read(server: ModelServer, model: OpenAITextModel, answer: Any) -> None:
    server.behave(responder=saying(json.dumps(answer)))
    assert parse_summary(model.answer(SUMMARY).text).summary == "They talked."
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"text": "Ana lives in Oslo.", "summary_language": "English"},
        {"text": "Ana lives in Oslo.", "previous_summary": "Ana moves."},
        {"summary_of": "chat 7", "content": "Ana lives in Oslo."},
        {"summary_length": "short", "note": "Ana lives in Oslo."},
        {"summary_count": 1, "note": "Ana lives in Oslo."},
    ],
)
def test_a_name_that_only_holds_the_one_asked_for_is_another(
    server: ModelServer, model: OpenAITextModel, answer: Any
) -> None:
    server.behave(
        responder=lambda request: said(
            json.dumps(answer if len(request.body["messages"]) == 2 else {"summary": "They talked."})
        )
    )
    assert parse_summary(model.answer(SUMMARY).text).summary == "They talked."
    assert len(server.requests) == 2, "a repair"


@pytest.mark.parametrize(
    "op", [None, [], {}, 0, True, "no longer valid", "No longer true.", "now", "not new"]
)
def test_a_candidate_without_an_operation_that_is_known_is_added(op: Any) -> None:
    other = {"op": "add", "candidate": 2}
    answer = json.dumps({"operations": [{"op": op, "candidate": 1, "fact": 1}, other]})
    assert [one.op for one in parse_merge(answer, 1, 2)] == ["add", "add"]


@pytest.mark.parametrize(
    "op", ["no", "No.", "NOOP", "no-op", "no_op", "No change", "no changes", "none", "keep"]
)
def test_no_operation_says_that_a_fact_is_known(op: str) -> None:
    answer = json.dumps({"operations": [{"op": op, "candidate": 1, "fact": 1}]})
    assert parse_merge(answer, 1, 1) == (MergeOperation("duplicate", 1, 1, None),)


def events(*values: Any, between: str = "\n\n", end: str = "data: [DONE]\n\n") -> Raw:
    body = between.join(f"data: {json.dumps(value)}" for value in values) + between + end
    return Raw(200, body.encode(), (("Content-Type", "text/event-stream; charset=utf-8"),))


FIRST, SECOND = chunk(GOOD[:20]), chunk(GOOD[20:], "stop")
PLACES: dict[str, Respond] = {
    "no choices at first": lambda _: events({"choices": [], "prompt_filter_results": []}, FIRST, SECOND),
    "an empty reason in each": lambda _: events(
        *(
            {"choices": [{**one["choices"][0], "finish_reason": end}]}
            for one, end in ((FIRST, ""), (SECOND, "stop"))
        )
    ),
    "a delta that is null": lambda _: events({"choices": [{"index": 0, "delta": None}]}, FIRST, SECOND),
    "no index": lambda _: events(
        *(
            {"choices": [{k: v for k, v in one["choices"][0].items() if k != "index"}]}
            for one in (FIRST, SECOND)
        )
    ),
    "pings": lambda _: Raw(
        200,
        b"event: ping\ndata: {}\n\n"
        + events(FIRST).body.replace(b"data: [DONE]\n\n", b"")
        + b": wait\n\n"
        + events(SECOND).body,
        (("Content-Type", "text/event-stream"),),
    ),
    "single line breaks": lambda _: events(FIRST, SECOND, between="\n"),
    "old line breaks": lambda _: events(FIRST, SECOND, between="\r\r"),
    "no end": lambda _: events(FIRST, SECOND, end=""),
    "usage at the end": lambda _: events(FIRST, SECOND, {"choices": [], "usage": {"prompt_tokens": 3}}),
    "parts in a delta": lambda _: events(
        {
            "choices": [
                {"index": 0, "delta": {"content": [{"type": "text", "text": GOOD}]}, "finish_reason": "stop"}
            ]
        }
    ),
    "text in place of a delta": lambda _: events(
        {"choices": [{"index": 0, "text": GOOD[:9]}]},
        {"choices": [{"index": 0, "text": GOOD[9:], "finish_reason": "stop"}]},
    ),
    "messages in pieces": lambda _: Raw(
        200,
        b"\n".join(
            json.dumps({"message": {"role": "assistant", "content": part}, "done": done}).encode()
            for part, done in ((GOOD[:9], False), (GOOD[9:], False), ("", True))
        ),
    ),
    "one message": lambda _: {"message": {"role": "assistant", "content": GOOD}, "done": True},
    "output": lambda _: {"output": [{"type": "message", "content": [{"type": "output_text", "text": GOOD}]}]},
    "output after thoughts": lambda _: {
        "output": [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "{hm}"}]},
            {"type": "message", "content": [{"type": "output_text", "text": GOOD}]},
        ]
    },
    "content": lambda _: {
        "type": "message",
        "content": [{"type": "text", "text": GOOD}],
        "stop_reason": "end_turn",
    },
    "candidates": lambda _: {
        "candidates": [{"content": {"parts": [{"text": GOOD}]}, "finishReason": "STOP"}]
    },
    "a generated text": lambda _: Raw(200, json.dumps([{"generated_text": GOOD}]).encode()),
    "an output's message": lambda _: {"output": {"message": {"content": [{"text": GOOD}]}}},
    "an output's choices": lambda _: {"output": said(GOOD)},
    "an unknown character set": lambda _: Raw(
        200, json.dumps(said(GOOD)).encode(), (("Content-Type", "application/json; charset=utf8mb4"),)
    ),
    "a page's type": lambda _: Raw(200, json.dumps(said(GOOD)).encode(), (("Content-Type", "text/html"),)),
    "a null error": lambda _: said(GOOD) | {"error": {}, "errors": []},
    "an error that says success": lambda _: (
        said(GOOD) | {"base_resp": {"status_code": 0, "status_msg": "success"}}
    ),
    "a code of success": lambda _: said(GOOD) | {"code": 200, "msg": "success"},
}


@pytest.mark.parametrize("quirk", PLACES)
def test_an_answer_is_found(server: ModelServer, model: OpenAITextModel, quirk: str) -> None:
    server.behave(responder=PLACES[quirk])
    assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "finish",
    [
        "max_output_tokens",
        "MAX_TOKENS_REACHED",
        "max_new_tokens",
        "truncated",
        "token_limit_reached",
        "LENGTH",
    ],
)
def test_a_cut_answer_is_known(server: ModelServer, model: OpenAITextModel, finish: str) -> None:
    server.behave(responder=lambda _: said('{"facts": [{"text": "Ann', finish=finish))
    with pytest.raises(PermanentModelError, match="cut off"):
        model.answer(EXTRACT)


@pytest.mark.parametrize(
    "finish",
    [
        "content_filtered",
        "content-filter",
        "SAFETY",
        "guardrail_intervened",
        "moderation",
        "sensitive",
        "BLOCKED",
    ],
)
def test_a_filtered_answer_is_known(server: ModelServer, model: OpenAITextModel, finish: str) -> None:
    server.behave(responder=lambda _: said("", finish=finish))
    with pytest.raises(PermanentModelError, match="refused"):
        model.answer(EXTRACT)
    assert len(server.requests) == 1


REFUSALS: dict[str, tuple[int, Any, type[ModelError], str]] = {
    "capital names": (403, {"Message": "Rate limit exceeded"}, RateLimitError, "403"),
    "a rate with 403": (403, error("Rate Limit Exceeded", code="rateLimitExceeded"), RateLimitError, "403"),
    "a rate with 503": (503, error("Too many requests, slow down"), RateLimitError, "503"),
    "throttling": (
        400,
        {"__type": "ThrottlingException", "message": "Too many requests"},
        RateLimitError,
        "400",
    ),
    "throttled": (400, {"__type": "ThrottlingException", "Message": "Rate exceeded"}, RateLimitError, "400"),
    "a fault": (401, {"fault": {"faultstring": "Invalid ApiKey"}}, ProviderSetupError, "OPENAI_API_KEY"),
    "a key in a fault": (
        400,
        {"fault": {"faultstring": "Invalid ApiKey"}},
        ProviderSetupError,
        "OPENAI_API_KEY",
    ),
    "an error_message": (400, {"error_message": "Invalid API key"}, ProviderSetupError, "OPENAI_API_KEY"),
    "an errorMessage": (400, {"errorMessage": "API key not valid"}, ProviderSetupError, "OPENAI_API_KEY"),
    "errors in an error": (
        400,
        {"error": {"errors": [{"message": "API key expired", "reason": "keyInvalid"}]}},
        ProviderSetupError,
        "OPENAI_API_KEY",
    ),
    "XML": (
        400,
        b"<Error><Message>API key not valid</Message></Error>",
        ProviderSetupError,
        "OPENAI_API_KEY",
    ),
    "an inner code": (
        400,
        error("x", innererror={"code": "ResponsibleAIPolicyViolation"}),
        PermanentModelError,
        "moderation",
    ),
    "inspected": (
        400,
        error("Input data may contain inappropriate content.", code="data_inspection_failed"),
        PermanentModelError,
        "moderation",
    ),
    "sensitive": (
        400,
        error("The input contains sensitive content", code="1301"),
        PermanentModelError,
        "moderation",
    ),
    "overloaded": (200, {"type": "error", "error": {"type": "overloaded_error"}}, TransientModelError, "502"),
    "a rate by its type": (
        200,
        {"type": "error", "error": {"type": "rate_limit_error"}},
        RateLimitError,
        "429",
    ),
    "a key by its type": (
        200,
        {"error": {"type": "authentication_error"}},
        ProviderSetupError,
        "OPENAI_API_KEY",
    ),
    "no success": (
        200,
        {"success": False, "message": "Invalid API key"},
        ProviderSetupError,
        "OPENAI_API_KEY",
    ),
    "a code in words": (200, {"code": "InvalidApiKey", "message": "x"}, ProviderSetupError, "OPENAI_API_KEY"),
    "a status in words": (200, {"status": "error", "message": "Too many requests"}, RateLimitError, "429"),
    "a detail": (200, {"detail": "Rate limit exceeded"}, RateLimitError, "429"),
    "errors": (200, {"errors": [{"message": "Rate limit exceeded"}]}, RateLimitError, "429"),
    "a status in an error": (200, {"error": {"http_code": 429, "message": "x"}}, RateLimitError, "429"),
    "a rate within a stream": (
        200,
        events(chunk("{"), {"error": {"code": 429, "message": "x"}}).body,
        RateLimitError,
        "429",
    ),
    "an event of an error": (
        200,
        b'event: error\ndata: {"message": "Rate limit exceeded"}\n\n',
        RateLimitError,
        "429",
    ),
    "a region": (403, error("Country, region, or territory not supported"), ProviderSetupError, "region"),
    "a model that is retired": (410, error("The model m has been deprecated"), ProviderSetupError, "MODEL"),
    "a model that is not allowed": (
        403,
        error("Project does not have access to model m", code="model_not_found"),
        ProviderSetupError,
        "MODEL",
    ),
    "a model that does not load": (400, error("model m is not loaded"), ProviderSetupError, "MODEL"),
    "no model": (
        400,
        {"error": "No models loaded. Please load a model in the developer page."},
        ProviderSetupError,
        "MODEL",
    ),
    "an expired trial": (
        403,
        error("Your trial has expired, please add a payment method"),
        ProviderSetupError,
        "billing",
    ),
    "no balance": (402, error("Insufficient Balance"), ProviderSetupError, "billing"),
    "no balance with 429": (429, error("You have insufficient balance"), ProviderSetupError, "billing"),
    "credits with 400": (
        400,
        error("Your credit balance is too low to access the API"),
        ProviderSetupError,
        "billing",
    ),
    "a spending limit": (
        429,
        error("Monthly spending limit reached, see billing"),
        ProviderSetupError,
        "billing",
    ),
}


@pytest.mark.parametrize("quirk", REFUSALS)
def test_a_refusal_is_named(server: ModelServer, model: OpenAITextModel, quirk: str) -> None:
    status, body, kind, reason = REFUSALS[quirk]
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    server.behave(responder=lambda _: Raw(status, raw))
    with pytest.raises(ModelError, match=reason) as caught:
        model.answer(EXTRACT)
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    "headers",
    [
        {"ratelimit-reset": "30"},
        {"ratelimit": "limit=10, remaining=0, reset=30"},
        {"anthropic-ratelimit-requests-reset": "2024-03-11T09:30:30Z"},
        {"x-ratelimit-reset-requests": "2024-03-11T09:30:30Z"},
        {"retry-after": "2024-03-11T09:30:30Z"},
        {"x-ratelimit-reset-after": "30"},
        {"x-ms-retry-after-ms": "30000"},
        {"x-retry-after": "30"},
        {"retry-after": "30, 30"},
        {"retry-after": "30 seconds"},
        {"retry-after": "PT30S"},
        {"retry-after": "2024-03-11T09:30:30"},
        {"retry-after": "Mon, 11 Mar 2024 09:30:30"},
    ],
)
def test_a_wait_is_read(headers: dict[str, str]) -> None:
    assert retry_after_seconds(headers, now=1710149400.0) == 30.0


def test_a_moment_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        test_a_wait_is_read({"retry-after": "2024-03-11T09:30:30"})
        test_a_wait_is_read({"retry-after": "Mon, 11 Mar 2024 09:30:30"})
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "words",
    [
        "Quota resets at 2026-12-01T00:00:00Z",
        "resets on 2026-12-01",
        "resets: 2026-12-01",
        "Rate limit resets in 12:30",
        "retry after 12/01/2026",
        "Resets at 5 pm",
        "Limit resets on Dec 1",
        "try again at 17:00",
    ],
)
def test_a_date_in_words_is_no_wait(words: str) -> None:
    assert seconds_to_wait(Rejection(429, words)) is None


@pytest.mark.parametrize(
    "words",
    [
        "Please wait 20 seconds before retrying.",
        "Please try again in about 20 seconds.",
        "Please retry your request after 20 seconds.",
        "Rate limit resets in 20s.",
        "Try again in 0m20s",
        "Requests to this API have exceeded the call rate limit. Please retry after 20 seconds.",
        "too many requests, retry_after: 20",
        "Wait for 20 s.",
    ],
)
def test_a_wait_in_words(server: ModelServer, model: OpenAITextModel, words: str) -> None:
    server.behave(responder=lambda _: Raw(429, json.dumps(error(words)).encode()))
    with pytest.raises(RateLimitError) as caught:
        model.answer(EXTRACT)
    assert caught.value.retry_after_seconds == 20.0


def above(most: int, words: str, *, required: bool = False) -> Respond:
    def respond(request: RecordedRequest) -> Any:
        asked = request.body.get("max_tokens")
        if asked is None and required:
            return Raw(400, json.dumps(error("max_tokens: Field required")).encode())
        if asked is not None and asked > most:
            return Raw(400, json.dumps(error(words.format(asked=asked, most=most))).encode())
        return said(GOOD)

    return respond


@pytest.mark.parametrize(
    "words",
    [
        "'max_tokens' is not supported with this model (gpt-5-2025-08-07). Use 'max_completion_tokens'.",
        "Error code: 400 - 'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
        "model-2025-08-07 does not take max_tokens (request 5f2025-300)",
    ],
)
def test_a_number_that_is_no_limit_lowers_nothing(words: str) -> None:
    weaker = RequestForm().weaker(Rejection(400, words), 4_000)
    assert weaker is not None and weaker.limit != "max_tokens"
    assert weaker.most_tokens == RequestForm().most_tokens


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("Error code: 400 - max_tokens must be at most 2048.", 2048),
        ("max_tokens must be at most 2,048 tokens", 2048),
        ("max_tokens should be in [1,500]", 500),
        ("gpt-5-2025-08-07: max_tokens: 4000 > 2048", 2048),
    ],
)
def test_a_limit_is_lowered_to_the_number_that_is_one(words: str, most: int) -> None:
    weaker = RequestForm().weaker(Rejection(400, words), 4_000)
    assert weaker is not None and (weaker.limit, weaker.most_tokens) == ("max_tokens", most)


FORMS: dict[str, Respond] = {
    "a greatest limit, which is required": above(
        500,
        "max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens",
        required=True,
    ),
    "a greatest limit": above(
        500, "max_tokens is too large: {asked}. This model supports at most {most} completion tokens"
    ),
    "a range of limits": above(500, "max_tokens should be in [1, {most}]", required=True),
    "the roles of a template": refusing(
        lambda body: body["messages"][0]["role"] == "system",
        400,
        error("Only user and assistant roles are supported!"),
    ),
    "no strict schema": refusing(
        lambda body: body.get("response_format", {}).get("type") == "json_schema",
        400,
        error("'strict' is not supported"),
    ),
    "a schema's keyword": refusing(
        lambda body: body.get("response_format", {}).get("type") == "json_schema",
        400,
        error("Invalid schema: 'anyOf' is not permitted"),
    ),
    "a null temperature": refusing(
        lambda body: "temperature" in body,
        422,
        {"detail": [{"loc": ["body", "temperature"], "msg": "Extra inputs are not permitted"}]},
    ),
    "sampling": refusing(
        lambda body: "temperature" in body,
        400,
        error("sampling parameters are not supported; remove temperature"),
    ),
    "no options of streams": refusing(
        lambda body: "stream_options" in body, 400, error("Unknown parameter: 'stream_options'.")
    ),
    "no streams with a schema": refusing(
        lambda body: body.get("stream") and "response_format" in body,
        400,
        error("response_format is not supported when stream is true"),
    ),
    "no method": refusing(lambda body: body.get("stream"), 501, error("not implemented")),
}


@pytest.mark.parametrize("quirk", FORMS)
def test_a_form_is_found(server: ModelServer, model: OpenAITextModel, quirk: str) -> None:
    server.behave(responder=FORMS[quirk])
    for _ in range(3):
        assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    before = len(server.requests)
    assert before <= 7
    model.answer(EXTRACT)
    assert len(server.requests) == before + 1


def test_a_prompt_that_is_too_long_costs_few_requests_whatever_numbers_its_refusal_has(
    server: ModelServer, model: OpenAITextModel
) -> None:
    def respond(request: RecordedRequest) -> Raw:
        asked = request.body.get("max_tokens", 0)
        words = (
            f"maximum context length is 500 tokens, you requested {asked + 480} ({asked}, and 480 of input)"
        )
        return Raw(400, json.dumps(error(words)).encode())

    server.behave(responder=respond)
    with pytest.raises(PermanentModelError, match="longer than the server takes"):
        model.answer(EXTRACT)
    assert len(server.requests) <= 5


def nested(*path: str) -> Respond:
    def respond(request: RecordedRequest) -> Any:
        value: Any = [row["embedding"] for row in vectors(request.body["input"])["data"]]
        for name in reversed(path):
            value = {name: value}
        return value

    return respond


EMBEDDINGS: dict[str, Respond] = {
    "values": each(lambda row: {**row, "embedding": {"values": row["embedding"]}}),
    "a float list": each(lambda row: {**row, "embedding": {"float": row["embedding"]}}),
    "a text of numbers": each(lambda row: {**row, "embedding": json.dumps(row["embedding"])}),
    "vectors": nested("vectors"),
    "results": lambda request: {"results": vectors(request.body["input"])["data"]},
    "output": lambda request: {
        "output": {
            "embeddings": [
                {"text_index": row["index"], "embedding": row["embedding"]}
                for row in vectors(request.body["input"])["data"][::-1]
            ]
        }
    },
    "predictions": lambda request: {
        "predictions": [
            {"embeddings": {"values": row["embedding"]}} for row in vectors(request.body["input"])["data"]
        ]
    },
    "a vector's name": each(lambda row: {"index": row["index"], "vector": row["embedding"]}),
    "rows by number": lambda request: {
        "data": {str(row["index"]): row for row in vectors(request.body["input"])["data"]}
    },
    "a body in a list": lambda request: Raw(200, json.dumps([vectors(request.body["input"])]).encode()),
}


@pytest.mark.parametrize("quirk", EMBEDDINGS)
def test_vectors_are_found(server: ModelServer, embedder: OpenAIEmbedder, quirk: str) -> None:
    server.behave(responder=EMBEDDINGS[quirk])
    for vector, text in zip(embedder.embed(TEXTS).vectors, TEXTS, strict=True):
        assert vector == pytest.approx(hashed_vector(text, 8), abs=1e-6)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "words",
    [
        "Array too long, at most 16 elements",
        "inputs: ensure this value has at most 16 items",
        "Invalid 'input': array too long. Expected an array with maximum length 16",
        "batch_size must be <= 16",
        "The number of inputs exceeds the maximum of 16",
        "too many texts",
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_limit_of_texts_is_found(
    server: ModelServer, embedder: OpenAIEmbedder, words: str, status: int
) -> None:
    raw = json.dumps(error(words)).encode()
    server.behave(
        responder=lambda request: (
            Raw(status, raw) if len(request.body["input"]) > 16 else vectors(request.body["input"])
        )
    )
    assert all(embedder.embed(TEXTS * 3).vectors)
    before = len(server.requests)
    embedder.embed(TEXTS)
    assert len(server.requests) <= before + 4, "ten to sixteen at once"
