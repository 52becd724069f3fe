"""What providers publish of the messages that they take, as checks; each returns the problems of a list.

The rules are those of the API references (November 2026); each names its page.  ``may_wait`` allows a call at
the very end whose result has not come: the caller adds it before a model is called.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

Problems = list[str]
Forms = Sequence[Mapping[str, Any]]

# https://platform.openai.com/docs/api-reference/chat/create: the messages by role, their fields and parts.
_CHAT_FIELDS = {
    "system": {"content", "name"},
    "developer": {"content", "name"},
    "user": {"content", "name"},
    "assistant": {"content", "name", "refusal", "audio", "tool_calls"},
    "tool": {"content", "tool_call_id"},
}
_CHAT_PARTS = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}
# The same page: a part's own fields, and the sets of which it needs one, and takes no second.
_BODIES: Mapping[str, tuple[set[str], list[set[str]]]] = {
    "image_url": ({"url", "detail"}, [{"url"}]),
    "input_audio": ({"data", "format"}, [{"data", "format"}]),
    "file": ({"file_id", "filename", "file_data"}, [{"file_id"}, {"file_data"}]),
}
# https://platform.openai.com/docs/api-reference/responses/create: the same of the parts of an input.
_INPUT_PARTS: Mapping[str, tuple[set[str], list[set[str]]]] = {
    "input_text": ({"type", "text"}, [{"text"}]),
    "input_image": ({"type", "detail", "file_id", "image_url"}, [{"file_id"}, {"image_url"}]),
    "input_file": (
        {"type", "detail", "file_id", "filename", "file_data", "file_url"},
        [{"file_id"}, {"file_data"}, {"file_url"}],
    ),
}
# https://platform.openai.com/docs/guides/pdf-files, /guides/images-vision and /guides/audio: data is base64,
# "format: wav or mp3".
_BASE64 = re.compile("(?:[A-Za-z0-9+/]{4})+|(?:[A-Za-z0-9+/]{4})*[A-Za-z0-9+/]{2}(?:==|[A-Za-z0-9+/]=)")
_DATA_URL = re.compile("data:[^,]*;base64,")
_PART_FIELDS = {
    "text": {"type", "text"},
    "refusal": {"type", "refusal"},
    "image_url": {"type", "image_url"},
    "input_audio": {"type", "input_audio"},
    "file": {"type", "file"},
}
# The same page: "The name of the function to be called. Must be a-z, A-Z, 0-9, or contain underscores and
# dashes, with a maximum length of 64."
_FUNCTION = re.compile(r"[a-zA-Z0-9_-]{1,64}")
# The pattern that its error names for a participant's `name`.
_NAME = re.compile(r"[^\s<|\\/>]{1,64}")
_MAX_CALL_ID = 40
# https://docs.anthropic.com/en/api/messages: `id` and `tool_use_id`, and the names of tools.
_ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ANTHROPIC_TOOL = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def chat_problems(messages: Forms, *, may_wait: bool = False) -> Problems:
    """Of OpenAI's Chat Completions."""
    problems: Problems = []
    waiting: set[str] = set()
    for at, message in enumerate(messages):
        problems += [f"{at}: {problem}" for problem in _chat_message(message)]
        # "An assistant message with 'tool_calls' must be followed by tool messages responding to each
        # 'tool_call_id'"; "messages with role 'tool' must be a response to a preceding message with
        # 'tool_calls'": https://platform.openai.com/docs/guides/function-calling
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in waiting:
                problems.append(f"{at}: a result without its call, or a second one")
            waiting.discard(str(message.get("tool_call_id")))
            continue
        if waiting:
            problems.append(f"{at}: comes before the results of {sorted(waiting)}")
        ids = [call["id"] for call in message.get("tool_calls", ())]
        if len(ids) > len(set(ids)):
            problems.append(f"{at}: two calls have one id")
        waiting = set(ids)
    return problems + (
        [] if may_wait or not waiting else [f"the end: without the results of {sorted(waiting)}"]
    )


def _chat_message(message: Mapping[str, Any]) -> Problems:
    role, content = message.get("role"), message.get("content")
    if role not in _CHAT_FIELDS:
        return [f"role {role!r}"]
    problems = [f"field {key!r}" for key in sorted(message.keys() - _CHAT_FIELDS[role] - {"role"})]
    if not isinstance(content, (str, list)) and not (content is None and message.get("tool_calls")):
        problems.append(f"content {content!r}")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type")
        if kind not in _CHAT_PARTS[role]:
            problems.append(f"part {kind!r}")
        elif part.keys() != _PART_FIELDS[kind] or not isinstance(part[kind], str | dict):
            problems.append(f"fields of part {kind!r}: {sorted(part)}")
        elif kind in _BODIES and not _is_body(part[kind], *_BODIES[kind]):
            problems.append(f"part {part!r}")
    if content == []:
        problems.append("an empty list of parts")
    if "name" in message and not _NAME.fullmatch(message["name"]):
        problems.append(f"name {message['name']!r}")
    if "refusal" in message and not isinstance(message["refusal"], str):
        problems.append("refusal")
    if "audio" in message and message["audio"].keys() != {"id"}:
        problems.append("audio")
    if message.get("tool_calls", True) == []:
        problems.append("an empty list of calls")
    if role == "tool" and not 0 < len(str(message.get("tool_call_id", ""))) <= _MAX_CALL_ID:
        problems.append("tool_call_id")
    return problems + [problem for call in message.get("tool_calls", ()) for problem in _chat_call(call)]


def _is_body(body: object, allowed: set[str], needed: list[set[str]]) -> bool:
    if not isinstance(body, Mapping) or not all(isinstance(one, str) and one for one in body.values()):
        return False
    for key in body.keys() & {"data", "file_data", "url", "image_url"}:
        head = _DATA_URL.match(body[key]) if key != "data" else None
        is_data = head or key.endswith("data") or body[key].startswith("data:")
        if is_data and not _BASE64.fullmatch(body[key][head.end() if head else 0 :]):
            return False
    is_format = body.get("format", "wav") in ("wav", "mp3")
    return body.keys() <= allowed and sum(one <= body.keys() for one in needed) == 1 and is_format


def _chat_call(call: Mapping[str, Any]) -> Problems:
    kind = call.get("type")
    if kind not in ("function", "custom") or call.keys() != {"id", "type", kind}:
        return [f"call {call!r}"]
    text = call[kind].get("arguments" if kind == "function" else "input")
    is_right = _FUNCTION.fullmatch(call[kind].get("name", "")) and isinstance(text, str)
    return (
        []
        if is_right and len(call[kind]) == 2 and 0 < len(call["id"]) <= _MAX_CALL_ID
        else [f"call {call!r}"]
    )


def responses_problems(items: Forms, *, may_wait: bool = False) -> Problems:
    """Of the input items of OpenAI's Responses API."""
    # https://platform.openai.com/docs/api-reference/responses/create: "No tool call found for function call
    # output with call_id …", "No tool output found for function call …", and what follows reasoning.
    problems: Problems = []
    called: list[str] = []
    answered: list[str] = []
    thought = None
    asked: list[str] = []
    for at, item in enumerate(items):
        kind = item.get("type", "message")
        # https://platform.openai.com/docs/guides/tools-connectors-mcp: a response names a request.
        if kind == "mcp_approval_request":
            asked.append(item["id"])
        elif kind == "mcp_approval_response" and item["approval_request_id"] not in asked:
            problems.append(f"{at}: an approval that was not asked for")
        if thought is not None and kind == "function_call_output":
            problems.append(f"{thought}: reasoning without what follows it")
        thought = at if kind == "reasoning" else None
        if kind == "function_call":
            called.append(item["call_id"])
            if not isinstance(item.get("arguments"), str) or not _FUNCTION.fullmatch(item.get("name", "")):
                problems.append(f"{at}: {item!r}")
        elif kind == "function_call_output":
            if called.count(item["call_id"]) <= answered.count(item["call_id"]):
                problems.append(f"{at}: an output without its call, or a second one")
            answered.append(item["call_id"])
            if not isinstance(item.get("output"), str | list):
                problems.append(f"{at}: output {item.get('output')!r}")
        elif kind == "message" and item.get("role") not in ("system", "developer", "user", "assistant"):
            problems.append(f"{at}: role {item.get('role')!r}")
        parts = item.get("output" if kind == "function_call_output" else "content")
        for part in parts if kind in ("function_call_output", "message") and isinstance(parts, list) else ():
            if part["type"].startswith("input_") and not (
                part["type"] in _INPUT_PARTS and _is_body(part, *_INPUT_PARTS[part["type"]])
            ):
                problems.append(f"{at}: part {part!r}")
    if thought is not None:
        problems.append(f"{thought}: reasoning without what follows it")
    left = [one for one in called if called.count(one) > answered.count(one)]
    waits = may_wait and items and items[-1].get("type") in ("function_call", "function_call_output")
    return problems + [f"no output for {one}" for one in ([] if waits else left)]


def _merged(messages: Forms, key: str) -> list[tuple[str, list[Mapping[str, Any]]]]:
    """Consecutive messages of a role as one, as both APIs take them."""
    merged: list[tuple[str, list[Mapping[str, Any]]]] = []
    for message in messages:
        content = message.get(key)
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        if merged and merged[-1][0] == message.get("role"):
            merged[-1][1].extend(parts)
        else:
            merged.append((str(message.get("role")), parts))
    return merged


def anthropic_problems(messages: Forms, *, may_wait: bool = False) -> Problems:
    """Of Anthropic's Messages, without its separate ``system``."""
    # https://docs.anthropic.com/en/api/messages: "Consecutive user or assistant turns in your request will be
    # combined into a single turn"; the first message is a user's; "all messages must have non-empty content".
    # https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use: "Tool result blocks
    # must immediately follow their corresponding tool use blocks", "must come FIRST in the content array".
    problems: Problems = []
    waiting: set[str] = set()
    turns = _merged(messages, "content")
    if turns and turns[0][0] != "user":
        problems.append("the first message is not a user's")
    for at, (role, parts) in enumerate(turns):
        if role not in ("user", "assistant"):
            problems.append(f"{at}: role {role!r}")
        if not parts or any(part.get("type") == "text" and not part["text"] for part in parts):
            problems.append(f"{at}: empty content")
        results = [part["tool_use_id"] for part in parts if part.get("type") == "tool_result"]
        if any(part.get("type") != "tool_result" for part in parts[: len(results)]):
            problems.append(f"{at}: a result behind something else")
        if role == "assistant" and results:
            problems.append(f"{at}: a result in an assistant's message")
        is_partial = may_wait and at == len(turns) - 1 and waiting.issuperset(results)
        if sorted(results) != sorted(waiting) and not (results and is_partial):
            problems.append(f"{at}: has the results {results}, where those of {sorted(waiting)} are due")
        uses = [part for part in parts if part.get("type") == "tool_use"]
        problems += [f"{at}: {use!r}" for use in uses if role != "assistant" or not _is_tool_use(use)]
        waiting = {use["id"] for use in uses}
        if len(waiting) < len(uses):
            problems.append(f"{at}: two calls have one id")
    problems += _server_tools(turns)
    return problems + (
        [] if may_wait or not waiting else [f"the end: without the results of {sorted(waiting)}"]
    )


def _server_tools(turns: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> Problems:
    # "web_search tool use with id … was found without a corresponding web_search_tool_result block", as its
    # error says; https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/web-search-tool.  A turn paused
    # (`pause_turn`) goes on in the next answer; the results of other tools may stand between.
    waiting: list[str] = []
    problems = []
    for at, (role, parts) in enumerate(turns):
        if role == "user" and any(part.get("type") != "tool_result" for part in parts):
            problems += [f"{at}: comes before the results of {waiting}"] if waiting else []
            waiting = []
        for part in parts:
            if part.get("type") in ("server_tool_use", "mcp_tool_use"):
                waiting.append(part["id"])
            elif str(part.get("type")).endswith("_tool_result"):
                if part["tool_use_id"] not in waiting:
                    problems.append(f"{at}: a result without its server_tool_use")
                else:
                    waiting.remove(part["tool_use_id"])
    return problems


def _is_tool_use(use: Mapping[str, Any]) -> bool:
    return bool(
        _ANTHROPIC_ID.fullmatch(use["id"])
        and _ANTHROPIC_TOOL.fullmatch(use["name"])
        and isinstance(use["input"], Mapping)
    )


def gemini_problems(contents: Forms, *, may_wait: bool = False) -> Problems:
    """Of the ``contents`` of Gemini's generateContent."""
    # https://ai.google.dev/gemini-api/docs/function-calling and /api/generate-content#v1beta.Content: roles
    # `user` and `model`, parts not empty; "the number of function response parts is equal to the number of
    # function call parts of the function call turn"; "function call turn comes immediately after a user turn
    # or after a function response turn".
    problems: Problems = []
    waiting: list[str] = []
    turns = _merged(contents, "parts")
    if turns and turns[0][0] != "user":
        problems.append("the first content is not a user's")
    for at, (role, parts) in enumerate(turns):
        if role not in ("user", "model") or not parts:
            problems.append(f"{at}: role {role!r}, {len(parts)} parts")
        responses = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        is_partial = may_wait and at == len(turns) - 1 and set(waiting).issuperset(responses)
        is_whole = sorted(responses) == sorted(waiting) or (responses and is_partial)
        if not is_whole or (role == "model" and responses):
            problems.append(f"{at}: has the responses {responses}, where those of {waiting} are due")
        waiting = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        if waiting and role != "model":
            problems.append(f"{at}: a user's content calls")
    return problems + ([] if may_wait or not waiting else [f"the end: without the responses of {waiting}"])


def as_responses(messages: Forms) -> list[dict[str, Any]]:
    """Messages in the form of Chat Completions as input items."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            items.append(
                {
                    "type": "function_call_output",
                    "call_id": message["tool_call_id"],
                    "output": message["content"],
                }
            )
            continue
        if message["content"]:
            items.append({"role": message["role"], "content": message["content"]})
        for call in message.get("tool_calls", ()):
            function = call.get("function") or {"name": call["custom"]["name"], "arguments": "{}"}
            items.append({"type": "function_call", "call_id": call["id"], **function})
    return items


def as_anthropic(messages: Forms) -> list[dict[str, Any]]:
    """The same as Anthropic's messages, without what goes into ``system``; empty content is left out."""
    turned = []
    for message in messages:
        if message["role"] in ("system", "developer"):
            continue
        parts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in _texts(message["content"])]
        if message["role"] == "tool":
            parts = [
                {"type": "tool_result", "tool_use_id": _tool_id(message["tool_call_id"]), "content": parts}
            ]
        for call in message.get("tool_calls", ()):
            name = (call.get("function") or call["custom"])["name"]
            parts.append({"type": "tool_use", "id": _tool_id(call["id"]), "name": name, "input": {}})
        if parts:
            turned.append(
                {"role": "assistant" if message["role"] == "assistant" else "user", "content": parts}
            )
    return turned


def as_gemini(messages: Forms) -> list[dict[str, Any]]:
    """The same as Gemini's contents."""
    names: dict[str, str] = {}
    contents = []
    for message in messages:
        if message["role"] in ("system", "developer"):
            continue
        parts: list[dict[str, Any]] = [{"text": text} for text in _texts(message["content"])]
        if message["role"] == "tool":
            name = names[message["tool_call_id"]]
            parts = [{"functionResponse": {"name": name, "response": {"output": message["content"]}}}]
        for call in message.get("tool_calls", ()):
            names[call["id"]] = (call.get("function") or call["custom"])["name"]
            parts.append({"functionCall": {"name": names[call["id"]], "args": {}}})
        if parts:
            contents.append({"role": "model" if message["role"] == "assistant" else "user", "parts": parts})
    return contents


def _texts(content: str | Forms | None) -> list[str]:
    parts = [content] if isinstance(content, str) else [json.dumps(part) for part in content or ()]
    return [part for part in parts if part]


def _tool_id(call_id: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", lambda one: f"_{ord(one[0])}_", call_id) or "_"
