"""The messages of an Agno run as ours: the words of user and model, and tool calls with their results.

Agno's additions for one model call stay out: instructions, its own history, examples (``additional_input``)
and references next to the user's words.  The bytes of media stay in Agno's own database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agno.models.message import Message as AgnoMessage
from agno.run.agent import RunInput, RunOutput
from agno.run.team import TeamRunInput, TeamRunOutput

from strandline.adapters.converter import AGNO_MEDIA, ROLES, agno_media_part, tool_call, with_leftovers
from strandline.adapters.storable import Encoder
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.content_parts import is_part
from strandline.schemas.values.forms.tool_calls import read_call
from strandline.schemas.values.message import Content, Message, Role

LIBRARY = "agno"
Run = RunOutput | TeamRunOutput
Parts = list[dict[str, Any]]

_ROLES: Mapping[str, Role] = {
    role: ROLES[role] for role in ("user", "assistant", "model", "tool", "function")
}


def messages_of(run: Run) -> list[Message]:
    """The messages of a run, in order, with stable ids."""
    return [with_leftovers(message, LIBRARY, {}) for message in _messages(run)]


def _messages(run: Run) -> list[Message]:
    words = _words_of_input(run.input)
    messages: list[Message] = []
    open_calls: list[str] = []
    for message in _own_messages(run):
        if message.role in ("tool", "function"):
            messages += _results(message, open_calls)
            continue
        if message.role == "user":
            messages.append(_user_message(message, words))
            words = None
            continue
        calls = _calls(message)
        open_calls = [call["id"] for call in calls]
        messages.append(_answer(message, calls))
    return messages


def query_of(run_input: RunInput | TeamRunInput | None) -> str:
    """The text that memory is searched for: the user's words; of a list of messages, the last one's."""
    content = None if run_input is None else run_input.input_content
    if isinstance(content, list) and content:
        content = content[-1]
    if isinstance(content, AgnoMessage):
        return content.get_content_string()
    if isinstance(content, Mapping) and isinstance(content.get("content"), str):
        return str(content["content"])
    if content is None or isinstance(content, str):
        return content or ""
    assert run_input is not None  # noqa: S101  # it had a content
    return run_input.input_content_string()


def plain_messages(text: str | None, messages: Sequence[AgnoMessage] | None) -> list[Message]:
    """The words of users and assistants in messages that are in no conversation; ``text`` is a user's.

    Raises:
        InvalidMessageError: there is neither.
    """
    if text:
        return [Message("user", text)]
    if not messages or isinstance(messages, str):
        raise InvalidMessageError("messages", "is missing; give message= or a list of messages")
    statements = [one for one in messages if _ROLES.get(one.role) in ("user", "assistant") and one.content]
    if not statements:
        raise InvalidMessageError("messages", "hold nothing that a user or an assistant says")
    plain = (Message(_ROLES[one.role], _content(one.content), id=one.id) for one in statements)
    return [with_leftovers(message, LIBRARY, {}) for message in plain]


def _own_messages(run: Run) -> Iterator[AgnoMessage]:
    examples = {message.id for message in run.additional_input or ()}
    for message in run.messages or ():
        is_own = not message.from_history and not message.temporary and message.id not in examples
        if is_own and message.role in _ROLES:
            yield message


def _words_of_input(run_input: object) -> str | None:
    content = getattr(run_input, "input_content", None)
    return content if isinstance(content, str) and content else None


def _user_message(message: AgnoMessage, words: str | None) -> Message:
    content = message.content
    if words is not None and isinstance(content, str) and content.startswith(words):
        content = words
    return Message("user", _with_media(message, _content(content)) or "", **_place(message))


def _answer(message: AgnoMessage, calls: Parts) -> Message:
    thoughts = message.reasoning_content
    content = _with_media(message, _content(message.content))
    return Message(
        "assistant",
        "" if content is None and not calls else content,
        tool_calls=calls or None,
        extra={"reasoning_content": thoughts} if thoughts else {},
        **_place(message),
    )


def _results(message: AgnoMessage, open_calls: list[str]) -> Iterator[Message]:
    combined = message.tool_calls or ()
    if message.tool_call_id is None and any("tool_call_id" in result for result in combined):
        for number, result in enumerate(combined):
            if (call_id := result.get("tool_call_id")) in open_calls:
                open_calls.remove(call_id)
                place = {**_place(message), "id": f"{message.id}.{number}"}
                yield Message("tool", _content(result.get("content")) or "", tool_call_id=call_id, **place)
        return
    call_id = message.tool_call_id or (open_calls[0] if open_calls else None)
    if call_id in open_calls:
        open_calls.remove(call_id)
        content = _with_media(message, _content(message.content))
        yield Message("tool", content or "", tool_call_id=call_id, **_place(message))


def _place(message: AgnoMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {"id": message.id, "created_at": datetime.fromtimestamp(message.created_at, UTC)}
    if message.name:
        fields["name"] = message.name
    return fields


def _calls(message: AgnoMessage) -> Parts:
    calls = []
    for number, call in enumerate(message.tool_calls or ()):
        called = read_call(call)
        id_ = str(called.id or f"{message.id}.{number}")
        calls.append(tool_call(id_, called.name or "tool", called.arguments or "{}"))
    return calls


def _content(content: Any) -> Content:
    is_readable = isinstance(content, str) or (
        isinstance(content, list) and content and all(map(is_part, content))
    )
    return content if content is None or is_readable else Encoder().json(content)


def _with_media(message: AgnoMessage, content: Content) -> Content:
    by_kind = ((kind, getattr(message, field) or ()) for field, kind in AGNO_MEDIA.items())
    media = [
        agno_media_part(kind, item.__dict__, content)
        for kind, items in by_kind
        for item in (items if isinstance(items, Sequence) else [items])
    ]
    if not media:
        return content
    text = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    return [*(text if content is None or isinstance(content, str) else content), *media]
