"""Messages as frameworks write them: every provider takes each read, which keeps what was said."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("agents", reason="needs the extras of all adapters")
pytest.importorskip("langchain_core", reason="needs the extras of all adapters")
pytest.importorskip("llama_index.core", reason="needs the extras of all adapters")
pytest.importorskip("pydantic_ai", reason="needs the extras of all adapters")

from langchain_core.messages import AIMessage
from langchain_core.messages.tool import invalid_tool_call
from llama_index.core.llms import ChatMessage
from openai.types.responses.response_input_param import ResponseInputItemParam
from pydantic import TypeAdapter

from strandline import Message
from strandline.adapters.agents.items import items_of, message_of
from strandline.adapters.langchain import messages as langchain
from strandline.adapters.llamaindex import messages as llamaindex
from strandline.adapters.pydantic_ai import messages as pydantic_ai
from strandline.pipelines.transcript import full_text
from strandline.producers.reading.call_pairs import settled
from tests.producers.reading.history.test_history import context_of, sent_problems
from tests.support.providers.adapted import adapted_problems
from tests.support.providers.shapes import (
    PIXEL,
    SOURCE,
    Json,
    call,
    calls,
    result,
    says,
    text,
    use,
    used,
    user,
)

# Each a log, and words that its read still has.
SHAPES: dict[str, tuple[list[Json], str]] = {
    "no content with calls": ([user(), calls("a"), result("a"), says("ok")], "ok"),
    "empty parts with calls": ([user(), {**calls("a"), "content": []}, result("a"), says("ok")], "ok"),
    "empty parts of a result": ([user(), calls("a"), result("a", []), says("ok")], "ok"),
    "a refusal beside": ([user(), says(refusal="never"), user()], "never"),
    "a refusal as a part": ([user(), says({"type": "refusal", "refusal": "never"}), user()], "never"),
    "cache_control": ([user([text("long", cache_control={"type": "ephemeral"})]), says("ok")], "long"),
    "a signed thought": (
        [user(), says({"type": "thinking", "thinking": "hm", "signature": "s"}, text("so")), user()],
        "so",
    ),
    "a redacted thought alone": ([user(), says({"type": "redacted_thinking", "data": "x"}), user("b")], "b"),
    "citations": ([user(), says(text("cited", citations=[{"type": "char_location"}]))], "cited"),
    "a picture as a text": ([user([{"type": "image_url", "image_url": PIXEL}, text("see")])], "see"),
    "Anthropic's picture": ([user([{"type": "image", "source": SOURCE}, text("see")])], "see"),
    "ids that come again": (
        [user(), calls("c"), result("c", "one"), says("ok"), user(), calls("c"), result("c", "two")],
        "two",
    ),
    "a result before its call": (
        [user(), result("a"), calls("a"), result("a", "right"), says("ok")],
        "right",
    ),
    "results in another order": ([user(), calls("a", "b"), result("b", "B"), result("a", "A")], "A"),
    "one of two lost": ([user(), calls("a", "b"), result("b", "B"), says("ok")], "B"),
    "two calls of one id": ([user(), calls("a", "a"), result("a", "A"), result("a", "B"), says("ok")], "B"),
    "two calls of one id in parts": (
        [user(), says(use("a"), use("a")), user([used("a", "A"), used("a", "B")]), says("ok")],
        "B",
    ),
    "two calls of one id in two messages": (
        [user(), calls("a"), calls("a"), result("a", "A"), result("a", "B"), says("ok")],
        "B",
    ),
    "two calls of one id, late": (
        [user(), calls("a", "a"), user("b"), result("a", "A"), result("a", "B"), says("ok")],
        "B",
    ),
    "two calls of one id again": (
        [user(), calls("a", "a"), user("b"), calls("a", "a"), result("a", "A"), result("a", "B")],
        "B",
    ),
    "a call twice": ([user(), calls("a"), calls("a"), result("a"), says("ok")], "ok"),
    "a custom tool": (
        [
            user(),
            says(tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "c", "input": "x = 1"}}]),
            result("a"),
        ],
        "x = 1",
    ),
    "a signature of Gemini": (
        [
            user(),
            says(tool_calls=[call("a", extra_content={"google": {"thought_signature": "s"}})]),
            result("a"),
        ],
        "r",
    ),
    "a picture as a result": (
        [user(), calls("a"), result("a", [text("seen"), {"type": "image_url", "image_url": PIXEL}])],
        "seen",
    ),
    "Anthropic's pair": (
        [user(), says(text("let me"), use("t")), user([used("t", "RES")]), says("ok")],
        "RES",
    ),
    "a result in parts, and words": (
        [
            user(),
            says(use("t")),
            user([used("t", [text("RES"), {"type": "image", "source": SOURCE}]), text("and?")]),
        ],
        "and?",
    ),
    "a result without content": (
        [user(), says(use("t")), user([{"type": "tool_result", "tool_use_id": "t"}])],
        "q",
    ),
    "results in two messages": (
        [user(), says(use("t"), use("u")), user([used("t", "T")]), user([used("u", "U")]), says("ok")],
        "U",
    ),
    "a provider's own tool": (
        [
            user(),
            says(
                use("s", "server_tool_use"),
                {"type": "web_search_tool_result", "tool_use_id": "s"},
                text("so"),
            ),
        ],
        "so",
    ),
    "Bedrock's pair": (
        [
            user(),
            says({"type": "toolUse", "toolUse": {"toolUseId": "b", "name": "f", "input": {}}}),
            user([{"type": "toolResult", "toolResult": {"toolUseId": "b", "content": [{"text": "BED"}]}}]),
        ],
        "BED",
    ),
    "the AI SDK's pair": (
        [
            user(),
            says(text("wait"), {"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {}}),
            result(
                "c", [{"type": "tool-result", "toolCallId": "c", "toolName": "f", "output": {"value": "OUT"}}]
            ),
        ],
        "OUT",
    ),
    "calls and parts of one id": (
        [user(), says(text("hm"), use("t"), tool_calls=[call("t")]), result("t"), says("ok")],
        "hm",
    ),
    "OpenAI's call, Anthropic's result": ([user(), calls("t"), user([used("t", "MIX")]), says("ok")], "MIX"),
    "Anthropic's call, OpenAI's result": ([user(), says(use("t")), result("t", "MIX"), says("ok")], "MIX"),
    "OpenAI's first form of a call": (
        [
            user(),
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "f", "arguments": '{"a": "FIRST"}'},
            },
            {"role": "function", "name": "f", "content": "r"},
            says("ok"),
        ],
        "FIRST",
    ),
    "OpenAI's first form of a result": (
        [
            user(),
            says("", function_call={"name": "f", "arguments": "{}"}),
            {"role": "function", "name": "f", "content": "FIRST"},
            says("ok"),
        ],
        "FIRST",
    ),
    "Gemini's result with parts": (
        [
            user(),
            says({"type": "part", "functionCall": {"name": "f", "args": {}}}),
            user(
                [
                    {
                        "type": "part",
                        "functionResponse": {
                            "name": "f",
                            "response": {"a": 1},
                            "parts": [
                                {
                                    "inlineData": {
                                        "mimeType": "image/png",
                                        "data": "iVBORw0KGgo=",
                                        "displayName": "MIX",
                                    }
                                }
                            ],
                        },
                    }
                ]
            ),
            says("ok"),
        ],
        "MIX",
    ),
    "the actions of a computer": (
        [
            user(),
            says({"type": "computer_call", "call_id": "c", "actions": [{"type": "type", "text": "BOAT"}]}),
            user([{"type": "computer_call_output", "call_id": "c", "output": {"image_url": PIXEL}}]),
        ],
        "BOAT",
    ),
    "a result of a result": ([user([used("y", [used("z", "in")])]), says("ok")], "ok"),
    "call and result in one message": (
        [user(), says(use("t"), used("t", "same"), text("so")), user("b")],
        "so",
    ),
    "a user who calls": ([user([use("t"), text("odd")]), says("ok")], "odd"),
    "thoughts between calls": (
        [
            user(),
            says(
                {"type": "thinking", "thinking": "1"},
                use("p"),
                {"type": "thinking", "thinking": "2"},
                use("q"),
            ),
            user([used("q", "Q")]),
        ],
        "Q",
    ),
    "a call without id and name": ([user(), says({"type": "function_call"}, text("so")), user()], "so"),
    "an empty question first": ([user(""), says("hello"), user("b")], "hello"),
    "a name of any letters": ([user("x", name="Ana López <b>|c"), says("y", name="agent one")], "x"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_read_of_any_shape_is_taken(shape: str) -> None:
    log, kept = SHAPES[shape]
    read = settled([Message.from_openai(one) for one in log])
    context = context_of(read)
    assert sent_problems(context) == []
    assert kept in "\n".join(map(full_text, read)) or not kept.isupper()
    assert shape == "a user who calls" or adapted_problems(read) == []
    assert kept in json.dumps(context.to_openai(), ensure_ascii=False)


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (
            [
                user(),
                calls("a"),
                result("a", [text("seen"), {"type": "image_url", "image_url": {"url": PIXEL}}]),
            ],
            "seen",
        ),
        ([user(), says(refusal="Never."), user()], "Never."),
        ([user(), says({"type": "refusal", "refusal": "Never."}), user()], "Never."),
        (
            [
                user(),
                says(tool_calls=[{**call("a"), "function": {"name": "look up", "arguments": "{}"}}]),
                result("a"),
            ],
            "look_up",
        ),
        (
            [
                user(),
                says(tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "cust", "input": "xyz"}}]),
            ],
            "xyz",
        ),
        ([user([]), user("q")], "q"),
    ],
)
def test_messages_of_others_are_items_that_the_api_takes(log: list[Json], kept: str) -> None:
    items = [item for one in log for item in items_of(Message.from_openai(one))]
    for item in items:
        TypeAdapter(ResponseInputItemParam).validate_python(item)
        assert item.get("content") != [] and re.fullmatch(r"[\w-]{1,64}", item.get("name", "f"))
    assert kept in str(items)


@pytest.mark.parametrize("also", [(), ("id",), ("tool_call_id",), ("id", "tool_call_id")])
def test_a_long_id_is_the_same_in_call_and_result(also: tuple[str, ...]) -> None:
    log = [Message.from_openai(one) for one in (calls("i" * 900), result("i" * 900))]
    called, answered = context_of(log).to_openai(also=also)
    assert called["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert len(answered["tool_call_id"]) == (900 if also else 40)


def test_a_langchain_call_without_json_is_a_call() -> None:
    invalid = invalid_tool_call(name="f", args="{bad", id="b", error="no JSON")
    theirs = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "a"}], invalid_tool_calls=[invalid])
    ours = langchain.message_of(theirs)
    assert ours.calls == ("a", "b")
    assert langchain.langchain_message_of(ours).invalid_tool_calls == [invalid]  # type: ignore[attr-defined]


def test_a_llamaindex_function_call_is_answered_by_its_role() -> None:
    theirs = [
        ChatMessage(role="assistant", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}}),
        ChatMessage(role="function", content="r", additional_kwargs={"name": "f"}),
    ]
    ours = list(map(llamaindex.message_of, theirs))
    assert settled([Message("user", "q"), *ours])[1:] == ours
    assert llamaindex.chat_messages_of(ours) == theirs


INPUT = {"input": "x = 1"}
# How a call is listed, with its name and arguments.
LISTED: dict[str, tuple[Json, str, Json]] = {
    "a custom tool's": ({"id": "a", "type": "custom", "custom": {"name": "code", **INPUT}}, "code", INPUT),
    "LangChain's": ({"id": "a", "type": "tool_call", "name": "f", "args": {"x": 1}}, "f", {"x": 1}),
    "arguments as an object": (
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
        "f",
        {"x": 1},
    ),
    "no arguments": ({"id": "a", "type": "function", "function": {"name": "f"}}, "f", {}),
    "null for arguments": (
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": None}},
        "f",
        {},
    ),
    "a type for a name": ({"id": "a", "type": "shell", "shell": {"x": 1}}, "shell", {"x": 1}),
    "input": (
        {"id": "a", "type": "function", "function": {"name": "f", "input": {"x": 1}, "strict": True}},
        "f",
        {"x": 1},
    ),
    "a flat custom tool's": ({"id": "a", "type": "custom", "name": "code", **INPUT}, "code", INPUT),
    "an empty text": ({"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}, "f", {}),
}


@pytest.mark.parametrize("listed", LISTED)
def test_a_call_is_the_same_in_each_library_however_it_is_listed(listed: str) -> None:
    given, name, arguments = LISTED[listed]
    message = Message("assistant", None, tool_calls=[given])
    (theirs,) = langchain.langchain_message_of(message).tool_calls  # type: ignore[attr-defined]
    assert (theirs["name"], theirs["args"]) == (name, arguments)
    (block,) = llamaindex.chat_message_of(message).blocks
    assert (block.tool_name, block.tool_kwargs) == (name, arguments)  # type: ignore[union-attr]
    ((part,),) = [one.parts for one in pydantic_ai.model_messages_of([message])]
    assert (part.tool_name, part.args_as_dict()) == (name, arguments)  # type: ignore[union-attr]
    (item,) = items_of(message)
    assert (item["name"], json.loads(item["arguments"] or "{}")) == (name, arguments)
    assert full_text(message).startswith(f"{name}(") and str(arguments.get("x", "")) in full_text(message)
    assert name in str(message.to_openai()["tool_calls"])


# Parts that only some providers take, and their words.
SAYING: list[tuple[Json, str]] = [
    ({"type": "document", "title": "T", "source": {"type": "text", "data": "Red."}}, "[document] T\nRed."),
    ({"type": "audio_url", "audio_url": {"url": "u"}, "transcript": "Red."}, "[sound]\nRed."),
    ({"type": "image_file", "image_file": {"file_id": "f"}, "alt": "Red."}, "[picture]\nRed."),
    ({"type": "image", "source": SOURCE}, "[picture]"),
    ({"type": "search_result", "source": "u", "content": [text("Red.")]}, "[search_result] u\nRed."),
    ({"type": "hologram"}, "[hologram]"),
]


@pytest.mark.parametrize(("part", "said"), SAYING)
def test_a_part_that_a_library_lacks_says_what_it_can(part: Json, said: str) -> None:
    message = Message("user", [part])
    assert message.to_openai()["content"] == [text(said)]
    assert [block.text for block in llamaindex.chat_message_of(message).blocks] == [said]  # type: ignore[union-attr]
    ((prompt,),) = [one.parts for one in pydantic_ai.model_messages_of([message])]
    assert prompt.content == [said]  # type: ignore[union-attr]
    assert items_of(message) == [{"role": "user", "content": [{"type": "input_text", "text": said}]}]


# Items of the Responses API that make a call, with those that answer it.
PAIRS: dict[str, tuple[Json, Json]] = {
    "function_call": ({"name": "f", "arguments": "{}"}, {"output": [{"type": "input_text", "text": "x"}]}),
    "custom_tool_call": ({"name": "code", "input": "x"}, {"output": "o"}),
    "shell_call": ({"action": {"commands": ["ls"]}}, {"output": [{"stdout": "a", "stderr": ""}]}),
    "local_shell_call": ({"action": {"command": ["ls"]}}, {"output": "{}"}),
    "apply_patch_call": ({"operation": {"type": "delete_file"}}, {"status": "completed", "output": "ok"}),
    "computer_call": (
        {"action": {"type": "click"}},
        {"output": {"type": "computer_screenshot", "image_url": PIXEL}},
    ),
    "tool_search_call": ({"arguments": {"query": "x"}}, {"type": "tool_search_output", "tools": []}),
    "program": ({"code": "1", "fingerprint": "f"}, {"result": "1", "status": "completed"}),
}
OWNED = {"caller": {"type": "program", "caller_id": "p"}}
PROGRAM: list[Json] = [
    {"type": "program", "id": "p1", "call_id": "p", "code": "f()", "fingerprint": "x"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", **OWNED},
    {"type": "function_call_output", "call_id": "c", "output": "r", **OWNED},
    {"type": "program_output", "id": "p2", "call_id": "p", "result": "nine", "status": "completed"},
]
APPROVAL: list[Json] = [
    {"type": "mcp_approval_request", "id": "a", "name": "f", "arguments": "{}", "server_label": "s"},
    {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
]


@pytest.mark.parametrize("items", [PROGRAM, APPROVAL])
def test_the_halves_of_what_a_provider_runs_stay_where_they_stand(items: list[Json]) -> None:
    log = [Message("user", "q"), *map(message_of, items), Message("assistant", "so")]
    assert [one for message in settled(log)[1:-1] for one in items_of(message)] == items
    assert (log[1].calls, log[-2].answers) == (("p",), ("p",)) or items is APPROVAL
    assert sent_problems(context_of(log)) == []
    for lone in (log[1], log[-2]):
        left = settled([log[0], lone, Message("user", "and?"), log[-1]])
        assert [one.content for one in left] == ["q", "and?", "so"]


@pytest.mark.parametrize(
    ("kind", "field"), [*((kind, "call_id") for kind in PAIRS), ("local_shell_call", "id")]
)
def test_an_item_of_any_kind_is_a_pair_with_its_output(kind: str, field: str) -> None:
    called, output = PAIRS[kind]
    items: list[Json] = [
        {"type": kind, "call_id": "c", **called}, {"type": f"{kind}_output", field: "c", **output}
    ]  # fmt: skip
    log = [Message("user", "q"), *map(message_of, items)]
    assert settled(log, to_send=True) is log
    assert [item for message in log[1:] for item in items_of(message)] == items
    assert sent_problems(context_of(log)) == []


def test_another_provider_s_items_are_known_by_their_call_id() -> None:
    """In parts, as a log in the form of the Responses API has them."""
    for kind, (called, output) in PAIRS.items():
        answered = {"type": f"{kind}_output", "call_id": "c", **output}
        log = [Message("assistant", [{"type": kind, "call_id": "c", **called}]), Message("user", [answered])]
        assert (log[0].calls, log[1].answers) == (("c",), ("c",)), kind
