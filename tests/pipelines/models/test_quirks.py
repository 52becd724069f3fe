"""Quirks of servers that speak OpenAI's protocol: each is played, and the answer read or the cause named."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from strandline.pipelines.models.answers import (
    MergeOperation,
    open_numbers,
    parse_extract,
    parse_merge,
    parse_summary,
)
from strandline.pipelines.models.contract import (
    ExtractTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    TranscriptLine,
)
from strandline.pipelines.models.openai.embedder import embedder_from
from strandline.pipelines.models.openai.errors import retry_after_seconds
from strandline.pipelines.models.openai.models import OpenAITextModel, text_model_from
from strandline.schemas.errors import (
    ModelError,
    PermanentModelError,
    ProviderSetupError,
    RateLimitError,
    TransientModelError,
    UnusableAnswerError,
)
from strandline.schemas.settings import load_settings
from tests.support.servers.model_server import ModelServer, Raw, RecordedRequest

MOMENT = datetime(2024, 3, 11, 9, 30, tzinfo=UTC)
LINES = tuple(
    TranscriptLine(n, "user", None, text, MOMENT) for n, text in enumerate(("I own a boat", "Rex"), 1)
)
EXTRACT = ExtractTask(LINES)
SUMMARY = SummaryTask("", LINES, 100)
MERGE = MergeTask((NumberedFact(1, "Ann has a boat.", MOMENT),), (NumberedFact(1, "Ann sold it.", MOMENT),))
BOAT = {"text": "Ann owns a boat.", "messages": [1]}
REX = {"text": "Ann's dog is Rex.", "messages": [2]}
GOOD = json.dumps({"facts": [BOAT, REX]})
Respond = Callable[[RecordedRequest], Any]


def said(text: str | None, *, finish: str | None = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "finish_reason": finish, "message": {"content": text, **message}}]}


def saying(text: str) -> Respond:
    return lambda _: said(text)


# Text around and inside JSON.
AROUND = {
    "a fence": f"Here:\n```json\n{GOOD}\n```",
    "thoughts with braces": f"<think>{{hm}} {{not it}}</think>{GOOD}",
    "thoughts with another answer": f'<thinking>{{"facts": []}}</thinking>\n{GOOD}',
    "only the end of thoughts": f'First {{"facts": []}}, no.\n</think>\n```\n{GOOD}\n```',
    "thoughts in brackets": f'[THINK]the form {{"facts": [...]}}[/THINK]{GOOD}',
    "channels": f"<|channel|>analysis<|message|>User {{wants}} it<|end|><|channel|>final<|message|>{GOOD}",
    "talk": f"Sure! {GOOD} Anything else?",
    "a word before": f"json\n{GOOD}",
    "a byte order mark": f"\ufeff{GOOD}",
    "twice": f"{GOOD}\n{GOOD}",
    "an empty answer before": f'If there were nothing: {{"facts": []}}. But there is: {GOOD}',
    "within a string": json.dumps(GOOD),
    "a tag": f"<answer>{GOOD}</answer>",
    "one key around": json.dumps({"answer": {"facts": [BOAT, REX]}}),
    "keys of a schema around": json.dumps({"properties": {"facts": [BOAT, REX]}}),
    "a bare list": json.dumps([BOAT, REX]),
    "one object a line": f"{json.dumps(BOAT)}\n{json.dumps(REX)}",
    "trailing commas": GOOD.replace("]}", ",],}").replace(",],}, {", ",]}, {"),
    "single quotes": str({"facts": [BOAT, {**REX, "text": "Ann's dog is Rex."}]}),
    "doubled braces": GOOD.replace("{", "{{").replace("}", "}}"),
    "words of Python": GOOD.replace('"messages": [1]', '"messages": [1], "said_by": None, "ok": True'),
    "comments": GOOD.replace("{", "{ // a note\n", 1).replace("]}]", "]} /* end */]"),
    "a wrong escape": GOOD.replace("Ann's", "Ann\\'s"),
    "not a number": GOOD.replace('"messages": [2]', '"messages": [2], "score": NaN'),
    "another value before": f"[1, 2] {GOOD}",
    "an example of the form": '{"facts": [...]}' + f"\n{GOOD}",
    "an ellipsis at the end": GOOD.replace("}]", "}, ...]"),
    "other words for thoughts": f'<analysis>{{"facts": []}}</analysis>{GOOD}',
    "a family's word for thoughts": f'<seed:think>{{"facts": []}}</seed:think>{GOOD}',
    "a call in words": f'<tool_call>{{"name": "extract", "arguments": {GOOD}}}</tool_call>',
    "a call with text": json.dumps({"name": "extract", "arguments": GOOD}),
    "an object further in": json.dumps({"status": "ok", "data": {"facts": [BOAT, REX]}}),
    "an object in a list": json.dumps([{"facts": [BOAT]}, {"facts": [REX]}]),
    "a list in a list": json.dumps([[BOAT, REX]]),
    "each item by its number": json.dumps({"facts": {"1": BOAT, "2": REX}}),
    "each item in an object": json.dumps([{"fact": BOAT}, {"fact": REX}]),
    "the list as text": json.dumps({"facts": json.dumps([BOAT, REX])}),
    "a string in a fence": f"```\n{json.dumps(GOOD)}\n```",
    "escaped marks": GOOD.replace('"', '\\"'),
    "marks for a page": GOOD.replace('"', "&quot;"),
    "printed marks": re.sub('"([^"]*)"', "\u201c\\1\u201d", GOOD),
    "marks of another keyboard": GOOD.replace('": ', '"\uff1a').replace(", ", "\uff0c"),
    "names in capitals": GOOD.replace('"text"', '"Text"').replace('"messages"', '"MESSAGES "'),
    "other names": GOOD.replace('"text"', '"fact"').replace('"messages"', '"lines"'),
    "no comma": GOOD.replace('.", "messages"', '." "messages"'),
    "semicolons": GOOD.replace("}, {", "}; {"),
    "equals signs": GOOD.replace('": ', '" = '),
    "notes of Python": GOOD.replace("[{", "[ # a note\n{", 1),
    "tuples": GOOD.replace("[1]", "(1,)"),
    "a name twice": GOOD.replace('"messages": [1]', '"messages": [1], "messages": [1]'),
    "an object behind another": json.dumps({"facts": [BOAT]}) + json.dumps({"facts": [REX]}),
    "an object a line, each with a list": "\n".join(
        json.dumps({"facts": facts}) for facts in ([], [BOAT], [BOAT, REX], [])
    ),
    "a fence for each": "".join(f"```json\n{json.dumps({'facts': [fact]})}\n```\n" for fact in (BOAT, REX)),
    "a list of calls": json.dumps([{"name": "f", "arguments": {"facts": [fact]}} for fact in (BOAT, REX)]),
    "a list of calls with text": json.dumps(
        [{"function": {"name": "f", "arguments": json.dumps({"facts": [fact]})}} for fact in (BOAT, REX)]
    ),
    "calls in words": "\n".join(
        f"<tool_call>{json.dumps({'name': 'f', 'arguments': {'facts': [fact]}})}</tool_call>"
        for fact in (BOAT, REX)
    ),
    "a count beside": json.dumps({"number_of_facts": 2, "items": [BOAT, REX]}),
    "words and an empty value beside": json.dumps({"status": "ok", "error": None, "results": [BOAT, REX]}),
    "a count beside, one key around": json.dumps({"answer": {"total": 2, "data": [BOAT, REX]}}),
    "a count beside, in a fence": f"```json\n{json.dumps({'n': 2, 'list': [BOAT, REX], 'more': False})}\n```",
    "marks by their numbers": GOOD.replace('"', "&#34;"),
    "wide marks": GOOD.translate({ord("{"): "\uff5b", ord("}"): "\uff5d"}),
    "items by their names": json.dumps({"1": BOAT, "2": REX}),
    "the name that lines have": GOOD.replace('"messages": [1]', '"n": 1'),
    "a number of a message": GOOD.replace('"messages": [1]', '"message_number": 1'),
    "a fact's text": GOOD.replace('"text"', '"fact_text"'),
    "names without quotes": GOOD.replace('"facts"', "facts").replace('"text"', "text"),
}


@pytest.mark.parametrize("quirk", AROUND)
def test_json_is_found_and_mended_in_what_a_model_writes(
    server: ModelServer, model: OpenAITextModel, quirk: str
) -> None:
    server.behave(responder=saying(AROUND[quirk]))
    facts = parse_extract(model.answer(EXTRACT).text, 2)
    assert [(fact.text, fact.messages) for fact in facts] == [(BOAT["text"], (1,)), (REX["text"], (2,))]
    assert len(server.requests) == 1


def test_a_tag_in_what_a_user_said_is_part_of_a_fact(server: ModelServer, model: OpenAITextModel) -> None:
    tagged = {"text": "Ann's tag is </think>.", "messages": [1]}
    server.behave(responder=saying("Sure:\n" + json.dumps({"facts": [tagged]})))
    (fact,) = parse_extract(model.answer(EXTRACT).text, 2)
    assert fact.text == tagged["text"]


# Near misses of the form: what each item of a list is read as.
ITEMS: dict[str, tuple[object, str | None]] = {
    "one number for a list": ({"text": "a1", "messages": 1}, "a1"),
    "a number as text": ({"text": "a1", "messages": ["1"]}, "a1"),
    "a number with a letter": ({"text": "a1", "messages": ["n1"]}, "a1"),
    "a number in words": ({"text": "a1", "messages": "line 1"}, "a1"),
    "a number with a point": ({"text": "a1", "messages": [1.0]}, "a1"),
    "topics as text": ({"text": "a1", "messages": [1], "topics": "boats"}, "a1"),
    "speakers in a list": ({"text": "a1", "messages": [1], "said_by": ["Ann"]}, "a1"),
    "a year as a number": ({"text": "a1", "messages": [1], "about_date": 2024}, "a1"),
    "objects for texts": ({"text": "a1", "messages": [1], "topics": {"a": 1}, "said_by": {}}, "a1"),
    "a list in a list": ({"text": "a1", "messages": [[1]]}, "a1"),
    "an object for a number": ({"text": "a1", "messages": [{"n": 1}]}, "a1"),
    "sentences": ({"text": ["a1"], "messages": [1]}, "a1"),
    "nothing": (None, None),
    "another form": ({"memory": "a1"}, None),
    "a number": (7, None),
    "a placeholder": ({"text": "…", "messages": [1]}, None),
    "a word of the form": ({"text": "<string>", "messages": [1]}, None),
    "no line that exists": ({"text": "a1", "messages": [9]}, None),
}


@pytest.mark.parametrize("quirk", ITEMS)
def test_an_item_is_read_as_meant_or_left_out_and_its_neighbours_stay(
    server: ModelServer, model: OpenAITextModel, quirk: str
) -> None:
    item, read_as = ITEMS[quirk]
    server.behave(responder=saying(json.dumps({"facts": [REX, item]})))
    facts = parse_extract(model.answer(EXTRACT).text, 2)
    assert [fact.text for fact in facts] == [REX["text"], *([read_as] if read_as else [])]
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "answer", ['{"facts": null}', "{}", "[]", '{"facts": []}', '{"result": {"facts": []}}']
)
def test_what_says_that_there_is_nothing_is_an_answer(
    server: ModelServer, model: OpenAITextModel, answer: str
) -> None:
    server.behave(responder=saying(answer))
    assert parse_extract(model.answer(EXTRACT).text, 2) == ()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("op", "meant"),
    [
        ("ADD", "add"),
        ("Update", "update"),
        ("NONE", "duplicate"),
        ("noop", "duplicate"),
        ("DELETE", "invalidate"),
    ],
)
def test_operations_are_read_as_meant(
    server: ModelServer, model: OpenAITextModel, op: str, meant: Any
) -> None:
    fact = None if meant == "add" else 1
    operation = {"op": op, "candidate": "1", "fact": fact, "text": None}
    server.behave(responder=saying(json.dumps({"operations": [operation, {"op": "what", "candidate": 1}]})))
    merged = parse_merge(model.answer(MERGE).text, 1, 1)
    assert merged == (MergeOperation(meant, 1, fact, None),)


@pytest.mark.parametrize("summary", [["They talked.", "Much."], "They talked. Much.", "[1] They talked."])
def test_a_summary_may_be_a_list_of_sentences(
    server: ModelServer, model: OpenAITextModel, summary: object
) -> None:
    server.behave(responder=saying(json.dumps({"summary": summary, "topics": "talk"})))
    read = parse_summary(model.answer(SUMMARY).text)
    written = summary if isinstance(summary, str) else "They talked. Much."
    assert (read.summary, read.topics) == (written, ("talk",))


@pytest.mark.parametrize("summary", ["…", "string"])
def test_a_summary_that_says_nothing_is_asked_for_again_and_read_as_empty(
    server: ModelServer, model: OpenAITextModel, summary: str
) -> None:
    server.behave(responder=saying(json.dumps({"summary": summary})))
    assert parse_summary(model.answer(SUMMARY).text).summary == ""
    assert "says nothing" in server.requests[-1].body["messages"][-1]["content"]


def test_lines_counted_from_zero_are_asked_for_again_and_then_moved(
    server: ModelServer, model: OpenAITextModel
) -> None:
    zero = {"facts": [{**BOAT, "messages": [0]}, {**REX, "messages": [1]}]}
    server.behave(responder=saying(json.dumps(zero)))
    assert [fact.messages for fact in parse_extract(model.answer(EXTRACT).text, 2)] == [(1,), (2,)]
    assert "numbered from 1" in server.requests[-1].body["messages"][-1]["content"]


@pytest.mark.parametrize("finish", ["stop", "length", "MAX_TOKENS"])
def test_of_a_list_that_is_cut_the_complete_items_are_used_and_the_other_lines_left_open(
    server: ModelServer, model: OpenAITextModel, finish: str
) -> None:
    server.behave(responder=lambda _: said(GOOD[:-12], finish=finish))
    answer = model.answer(EXTRACT).text
    (fact,) = parse_extract(answer, 2)
    assert fact.text == BOAT["text"] and open_numbers(answer) == {2}
    assert len(server.requests) == 1


def add(number: int) -> dict[str, Any]:
    return {"op": "add", "candidate": number, "fact": None, "text": None}


END = {"op": "invalidate", "candidate": 12, "fact": 1, "text": None}


@pytest.mark.parametrize(
    ("operations", "left_open"),
    [
        ([*map(add, range(1, 13))], {*range(13, 25)}),
        ([*map(add, range(1, 24, 2))], {*range(2, 25, 2)}),
        ([*map(add, range(1, 12)), END], {*range(12, 25)}),
        ([END], {*range(1, 25)} - {12}),
        ([add(99), add(3)], {*range(1, 25)} - {3}),
        ([{**END, "fact": 9}, add(3)], {*range(1, 25)} - {3}),
        ([], {*range(1, 25)}),
    ],
)
def test_of_a_merge_that_is_cut_the_complete_decisions_are_used_and_the_other_candidates_left_open(
    server: ModelServer, model: OpenAITextModel, operations: list[Any], left_open: set[int]
) -> None:
    numbers = range(1, 25)
    task = MergeTask(MERGE.known, tuple(NumberedFact(n, f"Ann sold boat {n}.", MOMENT) for n in numbers))
    text = json.dumps({"operations": [*operations, add(24)]})
    server.behave(responder=lambda _: said(text[: -len(json.dumps(add(24))) + 3], finish="length"))
    assert open_numbers(model.answer(task).text) == left_open
    server.behave(responder=lambda _: said(json.dumps({"operations": [*map(add, numbers)]})))
    assert open_numbers(model.answer(task).text) == {*range(11, 25)}, "a few at once from then on"
    assert open_numbers(model.answer(task).text) == {*range(21, 25)}
    assert open_numbers(model.answer(task).text) == frozenset()


BODY = json.dumps(said(GOOD)).encode()


def chunk(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def call(*facts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "arguments": json.dumps({"facts": facts})}}


def text_part(fact: dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": json.dumps({"facts": [fact]})}


# Where the text of an answer stands.
PLACES: dict[str, Respond] = {
    "parts": lambda _: said([{"type": "thinking", "text": "hm"}, {"type": "text", "text": GOOD}]),  # type: ignore[arg-type]
    "thoughts, without content": lambda _: said(None, reasoning_content=GOOD),
    "thoughts, with empty content": lambda _: said("", reasoning=GOOD),
    "arguments of a call": lambda _: said(None, tool_calls=[{"function": {"name": "f", "arguments": GOOD}}]),
    "parts in parts": lambda _: said([{"type": "text", "text": {"value": GOOD}}]),  # type: ignore[arg-type]
    "no text but JSON": lambda _: said(json.loads(GOOD)),
    "other thoughts": lambda _: said("", reasoning_details=[{"type": "reasoning.text", "text": GOOD}]),
    "an older call": lambda _: said(None, function_call={"name": "f", "arguments": GOOD}),
    "arguments that are no text": lambda _: said(
        None, tool_calls=[{"function": {"arguments": json.loads(GOOD)}}]
    ),
    "a call for each fact": lambda _: said(
        None, tool_calls=[{"function": {"arguments": json.dumps(item)}} for item in (BOAT, REX)]
    ),
    "several calls, each with facts": lambda _: said(None, tool_calls=[call(BOAT), call(REX)]),
    "a call for each fact, none and one of both": lambda _: said(
        None, tool_calls=[call(), call(BOAT), call(BOAT, REX)]
    ),
    "words next to a call": lambda _: said("I note that.", tool_calls=[call(BOAT, REX)]),
    "thoughts next to a call": lambda _: said(
        None, reasoning_content="It has a {boat}.", tool_calls=[call(BOAT, REX)]
    ),
    "a part for each fact": lambda _: said([text_part(BOAT), text_part(REX)]),  # type: ignore[arg-type]
    "facts in the text and in a call": lambda _: said(json.dumps({"facts": [BOAT]}), tool_calls=[call(REX)]),
    "a choice for each fact": lambda _: {
        "choices": [
            {**said(json.dumps({"facts": [fact]}))["choices"][0], "index": n}
            for n, fact in enumerate((BOAT, REX))
        ]
    },
    "words in one choice, the call in another": lambda _: {
        "choices": [
            said("I note that.")["choices"][0],
            {**said(None, tool_calls=[call(BOAT, REX)])["choices"][0], "index": 1},
        ]
    },
    "a choice without a message": lambda _: {"choices": [{"text": GOOD, "finish_reason": "stop"}]},
    "a choice that is the message": lambda _: {"choices": [{"role": "assistant", "content": GOOD}]},
    "a message that is text": lambda _: {"choices": [{"message": GOOD}]},
    "one choice without a list": lambda _: {"choices": said(GOOD)["choices"][0]},
    "a gateway's own body": lambda _: {"code": 0, "message": "ok", "data": said(GOOD)},
    "the second choice": lambda _: {"choices": [said("")["choices"][0], said(GOOD)["choices"][0]]},
    "a list of one body": lambda _: Raw(200, json.dumps([said(GOOD)]).encode()),
    "another character set": lambda _: Raw(
        200, json.dumps(said(GOOD)).encode("utf-16"), (("Content-Type", "application/json; charset=utf-16"),)
    ),
    "a body with a byte order mark": lambda _: Raw(200, b"\xef\xbb\xbf" + json.dumps(said(GOOD)).encode()),
    "no name of its character set": lambda _: Raw(200, json.dumps(said(GOOD)).encode("utf-16")),
    "marks that keep it from running": lambda _: Raw(200, b")]}'\n" + BODY),
    "more behind it": lambda _: Raw(200, BODY + b"\n\0" + BODY),
    "gzip": lambda _: Raw(200, gzip.compress(BODY), (("Content-Encoding", "gzip"),)),
    "gzip, next to another word": lambda _: Raw(
        200, gzip.compress(BODY), (("Content-Encoding", "identity, GZIP"),)
    ),
    "gzip, and no word of it": lambda _: Raw(200, gzip.compress(BODY)),
    "gzip in two pieces": lambda _: Raw(200, gzip.compress(BODY[:40]) + gzip.compress(BODY[40:])),
    "a word of gzip alone": lambda _: Raw(200, BODY, (("Content-Encoding", "gzip"),)),
    "deflate": lambda _: Raw(200, zlib.compress(BODY), (("Content-Encoding", "deflate"),)),
    "deflate without its marks": lambda _: Raw(
        200, zlib.compress(BODY, wbits=-15), (("Content-Encoding", "deflate"),)
    ),
    "no reason for its end": lambda _: said(GOOD, finish=None),
    "an error that is none": lambda _: said(GOOD) | {"error": None},
    "a stream that was not asked for": lambda _: stream({"content": GOOD}),
    "a stream of thoughts": lambda _: stream(
        {"reasoning_content": GOOD[:9]}, {"reasoning_content": GOOD[9:]}
    ),
    "a stream of an older call": lambda _: stream(
        {"function_call": {"arguments": GOOD[:9]}}, {"function_call": {"arguments": GOOD[9:]}}
    ),
    "a stream in lines": lambda _: Raw(
        200, b"\n".join(json.dumps(one).encode() for one in (chunk(GOOD[:9]), chunk(GOOD[9:], "stop")))
    ),
    "a stream in a list": lambda _: Raw(200, json.dumps([chunk(GOOD[:9]), chunk(GOOD[9:], "stop")]).encode()),
    "an event of several lines": lambda _: Raw(
        200,
        b"id: 1\nretry: 9\ndata: "
        + json.dumps(chunk(GOOD), indent=1).replace("\n", "\ndata: ").encode()
        + b"\n\ndata: [done]\n\n",
    ),
    "all of it at the end of a stream": lambda _: Raw(
        200, f"data: {json.dumps(chunk(GOOD[:9]))}\n\ndata: {json.dumps(said(GOOD))}\n\n".encode()
    ),
    "a stream of a call": lambda _: stream(
        {"tool_calls": [{"index": 0, "function": {"arguments": GOOD[:9]}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": GOOD[9:]}}]},
    ),
    "a stream of two calls at once": lambda _: stream(
        *(
            {"tool_calls": [{"index": index, "function": {"arguments": arguments[cut]}}]}
            for cut in (slice(9), slice(9, None))
            for index, arguments in enumerate(call(fact)["function"]["arguments"] for fact in (BOAT, REX))
        )
    ),
}


def stream(*deltas: dict[str, Any], ends: bool = True) -> Raw:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events = [": keep alive\n\n", *(f"event: chunk\r\ndata: {json.dumps(chunk)}\r\n\r\n" for chunk in chunks)]
    body = "".join([*events, *(["data: [DONE]\n\n"] if ends else [])]).encode()
    return Raw(200, body, (("Content-Type", "text/event-stream"),))


@pytest.mark.parametrize("quirk", PLACES)
def test_an_answer_is_read_wherever_the_server_puts_it(
    server: ModelServer, model: OpenAITextModel, quirk: str
) -> None:
    server.behave(responder=PLACES[quirk])
    assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    assert len(server.requests) == 1


def refusing(when: Callable[[dict[str, Any]], Any], status: int, body: Any) -> Respond:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return lambda request: Raw(status, raw) if when(request.body) else said(GOOD)


def streams(body: dict[str, Any]) -> bool:
    return bool(body.get("stream"))


def has_schema(body: dict[str, Any]) -> bool:
    return bool(body.get("response_format", {}).get("type") == "json_schema")


def has_system(body: dict[str, Any]) -> bool:
    return bool(body["messages"][0]["role"] == "system")


# A request in a form that the server does not take, in which words it says so.
FORMS: dict[str, Respond] = {
    "OpenAI's words": refusing(has_schema, 400, {"error": {"message": "Invalid schema for response_format"}}),
    "a text for an error": refusing(
        has_schema, 400, {"error": "response_format json_schema is not supported"}
    ),
    "plain text": refusing(has_schema, 400, b"response_format json_schema is not supported"),
    "a list": refusing(has_schema, 400, [{"error": {"message": 'Unknown name "additionalProperties"'}}]),
    "a detail": refusing(has_schema, 422, {"detail": [{"loc": ["body", "response_format"], "msg": "bad"}]}),
    "a broken conversion": refusing(has_schema, 500, {"error": {"message": "JSON schema conversion failed"}}),
    "no endpoint": refusing(
        has_schema, 404, {"error": {"message": "No endpoints found for these parameters"}}
    ),
    "a failed generation": refusing(has_schema, 400, {"error": {"code": "json_validate_failed"}}),
    "nothing that is known": refusing(
        lambda body: "response_format" in body, 400, {"error": {"message": "Unrecognized request argument"}}
    ),
    "nothing at all": refusing(lambda body: "response_format" in body, 501, b""),
    "no system role": refusing(has_system, 400, {"message": "System role not supported", "code": 400}),
    "no system message": refusing(
        has_system,
        400,
        {"error": {"message": "'messages[0].role' does not support 'system' with this model."}},
    ),
    "a broken template": refusing(has_system, 500, b"Internal Server Error"),
    "no temperature": refusing(lambda body: "temperature" in body, 400, {"error": {"param": "temperature"}}),
    "another name of the limit": refusing(
        lambda body: "max_tokens" in body, 400, {"error": {"message": "Use 'max_completion_tokens' instead."}}
    ),
    "a limit above its context": refusing(
        lambda body: "max_tokens" in body,
        400,
        {"error": {"message": "maximum context length is 2048 tokens"}},
    ),
    "a limit is required": refusing(
        lambda body: not {"max_tokens", "max_completion_tokens"} & set(body), 400, {"error": {"message": "x"}}
    ),
    "no usage of streams": refusing(
        lambda body: "stream_options" in body,
        422,
        {"detail": "stream_options: extra inputs are not permitted"},
    ),
    "no streams": refusing(streams, 400, {"error": {"message": "Streaming is off"}}),
    "no streams, by their field": refusing(
        streams, 422, {"detail": [{"loc": ["body", "stream"], "msg": "Input should be False"}]}
    ),
    "no streams, by another name": refusing(streams, 400, {"message": "SSE is not available"}),
    "no streams, as no type that is accepted": refusing(streams, 406, b""),
    "no streams, and no word": refusing(streams, 501, b"<h1>Not Implemented</h1>"),
    "no streams, by an error within a 200": lambda request: (
        {"error": "streaming is not supported"} if streams(request.body) else None
    ),
    "empty streams": refusing(streams, 200, b""),
    "streams that end at once": refusing(streams, 200, b"data: [DONE]\n\n"),
    "a page for a stream": refusing(streams, 200, b"<html></html>"),
    "streams alone": refusing(
        lambda body: not body.get("stream"),
        400,
        {"error": {"message": "must be false for non-streaming calls"}},
    ),
}


@pytest.mark.parametrize("quirk", FORMS)
def test_a_form_that_the_server_takes_is_found_and_kept(
    server: ModelServer, model: OpenAITextModel, quirk: str
) -> None:
    server.behave(responder=FORMS[quirk])
    for _ in range(3):
        assert len(parse_extract(model.answer(EXTRACT).text, 2)) == 2
    before = len(server.requests)
    assert before <= 7
    model.answer(EXTRACT)
    assert len(server.requests) == before + 1, "the form that helps is known"


def test_one_odd_refusal_weakens_nothing_for_good(server: ModelServer, model: OpenAITextModel) -> None:
    server.behave(
        responder=refusing(
            lambda body: has_schema(body) and "emoji" in str(body["messages"]),
            400,
            {"error": {"message": "Emoji are not supported in this deployment"}},
        )
    )
    model.answer(ExtractTask((TranscriptLine(1, "user", None, "an emoji", MOMENT),)))
    for _ in range(2):
        model.answer(EXTRACT)
    assert [has_schema(request.body) for request in server.requests] == [True, False, True, True]


@pytest.mark.parametrize(
    "trouble", [(500, b"upstream connect error"), (200, b"data: {"), (200, b"<html></html>")]
)
def test_trouble_that_passes_weakens_nothing(
    server: ModelServer, model: OpenAITextModel, trouble: tuple[int, bytes]
) -> None:
    model.answer(EXTRACT)
    server.behave(responder=lambda _: Raw(*trouble), times=1)
    with pytest.raises(TransientModelError):
        model.answer(EXTRACT)
    model.answer(EXTRACT)
    assert [(has_schema(one.body), "stream_options" in one.body) for one in server.requests] == [
        (True, True)
    ] * 3


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


# What a server says that refuses, by status and body, what is made of it, and what the reason names.
REFUSALS: dict[str, tuple[int, Any, type[ModelError], str]] = {
    "a wrong key, in a list": (400, [error("API key not valid.")], ProviderSetupError, "OPENAI_API_KEY"),
    "a wrong key": (401, {}, ProviderSetupError, "OPENAI_API_KEY"),
    "no credit": (402, {}, ProviderSetupError, "quota"),
    "a moderation": (403, error("Your input was flagged"), PermanentModelError, "moderation"),
    "a filter": (400, error("x", code="content_filter"), PermanentModelError, "moderation"),
    "a firewall": (403, b"<html>blocked</html>", ProviderSetupError, "firewall"),
    "a teapot": (418, b"no", ProviderSetupError, "firewall"),
    "no such model": (404, {"error": "model 'm' not found"}, ProviderSetupError, "STRANDLINE_FACTS_MODEL"),
    "a model of others": (400, error("The requested model is not supported."), ProviderSetupError, "MODEL"),
    "everything alike": (400, error("enable_thinking must be false"), ProviderSetupError, "every request"),
    "too long a prompt": (
        400,
        error("maximum context length is 9 tokens"),
        PermanentModelError,
        "BATCH_TOKEN",
    ),
    "a rate": (429, {}, RateLimitError, "429"),
    "a rate, with 200": (200, error("x", code=429), RateLimitError, "429"),
    "a rate, in words": (200, error("x", code="rate_limit_exceeded"), RateLimitError, "429"),
    "no credit, with 200": (200, error("Insufficient credits", code=402), ProviderSetupError, "quota"),
    "trouble, with 200": (200, error("x", code=502), TransientModelError, "502"),
    "trouble in a choice": (200, {"choices": [{"error": {"code": 502}}]}, TransientModelError, "502"),
    "trouble in a stream": (200, b'data: {"error": {"code": 502}}\n\n', TransientModelError, "502"),
    "a key, with 200": (200, error("x", code="invalid_api_key"), ProviderSetupError, "OPENAI_API_KEY"),
    "a model, with 200": (200, error("x", code="model_not_found"), ProviderSetupError, "FACTS_MODEL"),
    "a filter, with 200": (200, error("x", code="content_filter"), PermanentModelError, "moderation"),
    "a rate, in a text": (200, {"error": "Rate limit exceeded"}, RateLimitError, "429"),
    "a rate, without an error": (200, {"message": "Too many requests", "code": 429}, RateLimitError, "429"),
    "an object of errors": (
        200,
        {"object": "error", "message": "x", "code": 503},
        TransientModelError,
        "503",
    ),
    "a gateway's own error": (200, {"base_resp": {"status_msg": "rate limit"}}, RateLimitError, "429"),
    "no choices": (200, {"choices": []}, TransientModelError, "empty"),
    "null for choices": (200, {"choices": None}, TransientModelError, "empty"),
    "nothing but empty answers": (200, said(""), TransientModelError, "empty"),
    "a page": (200, b"<html></html>", TransientModelError, "form"),
    "half a stream": (200, stream({"content": GOOD[:9]}, ends=False).body, TransientModelError, "form"),
    "what was quoted": (400, error("Cannot parse 'what is my api key'"), ProviderSetupError, "every request"),
}


@pytest.mark.parametrize("quirk", REFUSALS)
def test_a_refusal_becomes_a_decision_with_its_reason(
    server: ModelServer, model: OpenAITextModel, quirk: str
) -> None:
    status, body, kind, reason = REFUSALS[quirk]
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    server.behave(responder=lambda _: Raw(status, raw))
    with pytest.raises(ModelError, match=reason) as caught:
        model.answer(EXTRACT)
    assert type(caught.value) is kind


@pytest.mark.parametrize("empty", [said(""), said(None), said("  "), {"choices": []}, {"choices": None}])
def test_an_empty_answer_is_named_and_is_the_input_s_where_others_get_one(
    server: ModelServer, model: OpenAITextModel, empty: dict[str, Any]
) -> None:
    server.behave(responder=lambda request: empty if "boat" in str(request.body["messages"]) else None)
    with pytest.raises(UnusableAnswerError, match="answer is empty"):
        model.answer(EXTRACT)
    assert len(server.requests) == 3, "a repair, and a probe"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2s"}, 2.0),
        ({"retry-after": "1m30s"}, 90.0),
        ({"retry-after": "1h"}, 3600.0),
        ({"retry-after": "1h30m"}, 5400.0),
        ({"retry-after": "500ms"}, 0.5),
        ({"x-ratelimit-reset-requests": "20ms", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-reset": "12"}, 12.0),
        ({"x-ratelimit-reset": "1710149430"}, 30.0),
        ({"x-ratelimit-reset": "1710149430000"}, 30.0),
        ({"retry-after": "soon"}, None),
    ],
)
def test_a_wait_is_read_however_it_is_written(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers, now=1710149400.0) == seconds


@pytest.mark.parametrize(
    "body",
    [
        error("Please try again in 20s."),
        error("Please try again in 20.0s. Visit https://example.org/limits to learn more."),
        error("Rate limited, retry after 20 seconds. Please go slower."),
        error("You exceeded your current quota, check your plan and billing. Please retry in 20.0s."),
        [{"error": {"details": [{"retryDelay": "20s"}]}}],
    ],
)
def test_a_wait_is_read_in_words(server: ModelServer, model: OpenAITextModel, body: object) -> None:
    server.behave(responder=lambda _: Raw(429, json.dumps(body).encode()))
    with pytest.raises(RateLimitError) as caught:
        model.answer(EXTRACT)
    assert caught.value.retry_after_seconds == 20.0


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/chat/completions/", "/v1/embeddings", "/v1/"])
def test_an_address_that_names_an_endpoint_is_read_as_meant(server: ModelServer, path: str) -> None:
    settings = load_settings(
        openai_base_url=server.base_url.removesuffix("/v1") + path,
        openai_api_key="k",
        embedding_model="e",
        embedding_dimensions=256,
    )
    made, embedder = text_model_from(settings, purpose="facts"), embedder_from(settings)
    made.answer(EXTRACT)
    embedder.embed(["a"])
    made.close()
    embedder.close()
    assert [one.path for one in server.requests] == ["/v1/chat/completions", "/v1/embeddings"]


@pytest.mark.parametrize("path", ["/v1?api-version=2024-10-21&x=", "/v1/?api-version=2024-10-21&x="])
def test_the_query_of_an_address_stays_behind_the_path(server: ModelServer, path: str) -> None:
    address = server.base_url.removesuffix("/v1") + path
    made = text_model_from(load_settings(openai_base_url=address, openai_api_key="k"), purpose="facts")
    server.behave(responder=saying(GOOD))
    made.answer(EXTRACT)
    made.close()
    assert server.requests[0].path == "/v1/chat/completions?api-version=2024-10-21&x="
