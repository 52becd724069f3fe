"""Conversations that people export from ChatGPT: a tree of nodes, of which one branch is current."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from strandline.adapters.converter import NO_ID, name_or
from strandline.chat_import.exports.source import ExportSource, branch_to, newest_leaf
from strandline.chat_import.records import Omission, Place, Record, SourceMessage, tool_call
from strandline.chat_import.tables.values import read_moment
from strandline.schemas.values.content_parts import part_text

_ROLES = ("system", "user", "assistant", "tool")
# Why content of a kind is left out as no part of the chat.
_NOT_SAID = {
    "thoughts": "is the model's reasoning",
    "reasoning_recap": "is the model's reasoning",
    "user_editable_context": "are the person's custom instructions, which are not said in the chat",
    "model_editable_context": "is ChatGPT's own memory, which is not said in the chat",
}


def open_export(path: Path) -> ExportSource:
    """An export of ChatGPT; raises ConfigurationError if it cannot be read, or has no conversations."""
    return ExportSource(path, "openai", ("conversation_id", "id"), _read_conversation)


def _read_conversation(conversation: Mapping[str, Any], place: Place) -> Iterator[Record]:
    mapping = conversation.get("mapping")
    if not isinstance(mapping, dict):
        yield Omission(place, "has no mapping of its messages")
        return
    nodes = {key: node for key, node in mapping.items() if isinstance(node, dict)}
    for key in mapping.keys() - nodes.keys():
        yield Omission(place.at(key), "is not a node")
    call_ids: dict[str, str] = {}
    for node in _current_branch(nodes, conversation.get("current_node")):
        message = node.get("message")
        if isinstance(message, dict):
            yield from _read_message(message, place, name_or(NO_ID, node.get("id")), call_ids)


def _current_branch(nodes: Mapping[str, dict[str, Any]], current: object) -> list[dict[str, Any]]:
    parents = {
        key: node["parent"]
        for key, node in nodes.items()
        if isinstance(node.get("parent"), str) and node["parent"] != key
    }
    nodes = {key: {"id": key, **node} for key, node in nodes.items()}
    if not isinstance(current, str) or current not in nodes:
        current = newest_leaf({key: _time_of(node) for key, node in nodes.items()}, parents)
    return [] if current is None else branch_to(current, nodes, parents)


def _time_of(node: Mapping[str, Any]) -> float:
    message = node.get("message")
    moment = read_moment(message.get("create_time")) if isinstance(message, dict) else None
    return moment.timestamp() if moment is not None else 0.0


def _read_message(
    message: Mapping[str, Any], conversation: Place, node_id: str, call_ids: dict[str, str]
) -> Iterator[Record]:
    place = conversation.at(node_id)
    author = message.get("author")
    author = author if isinstance(author, dict) else {}
    role, content = author.get("role"), message.get("content")
    content = content if isinstance(content, dict) else {}
    if not isinstance(role, str) or role not in _ROLES:
        yield Omission(place, "has no role that is known")
        return
    kind = content.get("content_type")
    if isinstance(kind, str) and kind in _NOT_SAID:
        yield Omission(place, _NOT_SAID[kind])
        return
    texts, problems = _texts_of(content)
    for part, reason in problems:
        yield Omission(place.at(part), reason)
    text = "\n".join(texts)
    if not text.strip():
        if role in ("user", "assistant", "tool") and not problems:
            yield Omission(place, "is empty")
        return
    taken: dict[str, Any] = {"role": role, "content": text}
    recipient, name = message.get("recipient"), author.get("name")
    if role == "assistant" and isinstance(recipient, str) and recipient not in ("", "all"):
        call_ids[recipient] = node_id
        taken |= {"content": None, "tool_calls": [tool_call(node_id, recipient, text)]}
    elif role == "tool":
        taken["tool_call_id"] = call_ids.get(name_or("", name), NO_ID)
    if role == "tool" and isinstance(name, str) and name:
        taken["name"] = name
    moment = read_moment(message.get("create_time"))
    if moment is not None:
        taken["created_at"] = moment.isoformat()
    yield SourceMessage(place, conversation.row, None, taken)


def _texts_of(content: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, str]]]:
    parts = content.get("parts")
    if not isinstance(parts, list):
        fields = [content[field] for field in ("text", "result") if isinstance(content.get(field), str)]
        return fields or [part_text({**content, "type": name_or("content", content.get("content_type"))})], []
    texts: list[str] = []
    problems: list[tuple[str, str]] = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            kind = name_or("part", part.get("content_type")) if isinstance(part, dict) else "part"
            texts.append(f"[{kind.removesuffix('_asset_pointer').replace('_', ' ')}]")
            problems.append((f"parts[{index}]", "is a file; the message says only that there was one"))
    return [text for text in texts if text], problems
