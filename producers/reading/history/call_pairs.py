"""Tool calls and their results in the order that every provider takes, in what a read shows; the log stays.

A provider refuses a call that is not answered before the next message, and a result without its call.  Logs
have both: a process died, two runs went on at once, a result came late or twice.  So each result is moved
directly behind the message with its call; a result without one, and a second result, are left out.  A call
without a result is left out once the assistant has gone on, and so says itself what became of it; the newest
one is answered by a note, as the assistant should know that it may have run.  Behind a call at the very end
its result may still come, so it stays as it is, unless the messages are to be sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from strandline.schemas.values.forms.tool_calls import is_thinking, tool_parts
from strandline.schemas.values.message import HEAD_ROLES, Message

NOTE = "[No result of this call is recorded; it may have run or not.]"
USER_LINE = "[The conversation begins here.]"
# What either takes, about, by any tokenizer.
NOTE_TOKENS = 24

ChangeKind = Literal["result_moved", "result_left_out", "result_added", "call_left_out"]
REASONS: Mapping[ChangeKind, str] = {
    "result_moved": "It is shown directly behind its call; in the log other messages stand between.",
    "result_left_out": "Its call is not shown, or has a result already.",
    "result_added": "The newest call has no result; a note stands in its place.",
    "call_left_out": "It has no result here, and the conversation went on.",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A call or result that is not shown as the log has it; ``seq`` is that of its message."""

    kind: ChangeKind
    call_id: str
    seq: int | None


@dataclass(frozen=True, slots=True)
class Settled:
    """Messages in order: what stands in the place of each, and the changes that this took."""

    groups: Sequence[tuple[Message, ...]]
    changes: tuple[Change, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple([message for group in self.groups for message in group])


def is_settled(messages: Sequence[Message], *, to_send: bool = False) -> bool:
    """Whether calls and results are in order already, as nearly always."""
    waiting: set[str] = set()
    is_parted = False
    for message in messages:
        answers = message.answers
        if answers and (is_parted or not waiting.issuperset(answers) or _is_mixed(message)):
            return False
        waiting.difference_update(answers)
        if answers and _rest(message) is None:
            # Results in parts are one message: Gemini wants as many as there are calls.
            is_parted = bool(waiting) and message.role != "tool"
            continue
        if waiting:
            return False
        waiting.update(message.calls)
    return not (waiting and to_send)


def settle(messages: Sequence[Message], *, to_send: bool = False, with_notes: bool = True) -> Settled:
    """The messages with each result behind its call.

    Args:
        to_send: nothing is put behind the messages before a model gets them.
        with_notes: answer the newest call by a note if it has no result; else it is left out.
    """
    return _Settling(messages, to_send=to_send, with_notes=with_notes).settle()


def settled(
    messages: Sequence[Message], *, to_send: bool = False, with_notes: bool = True
) -> Sequence[Message]:
    """The same, without saying what was changed."""
    if is_settled(messages, to_send=to_send):
        return messages
    return settle(messages, to_send=to_send, with_notes=with_notes).messages


def begins_with_user(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, with a marked user's line where the first that is no system message is another's."""
    at = next((at for at, message in enumerate(messages) if message.role not in HEAD_ROLES), None)
    if at is None or messages[at].role == "user":
        return tuple(messages)
    return (*messages[:at], Message("user", USER_LINE, tokens=NOTE_TOKENS), *messages[at:])


def wants_user_first(messages: Sequence[Message]) -> bool:
    """Whether they are written for a provider whose conversations begin with a user's message."""
    return any(
        tool_part is not None and tool_part.is_user_first
        for message in messages
        if message.content is not None and not isinstance(message.content, str)
        for _, tool_part in tool_parts(message.content)
    )


class _Settling:
    """One pass: first each result finds its call, then each message is written with its results behind it."""

    def __init__(self, messages: Sequence[Message], *, to_send: bool, with_notes: bool) -> None:
        self._messages = messages
        self._with_notes = with_notes
        self._changes: list[Change] = []
        self._rests = [_rest(message) if message.answers else message for message in messages]
        self._sources: dict[int, dict[str, int]] = {}
        self._match()
        speaking = [at for at, rest in enumerate(self._rests) if rest is not None]
        self._open_end = speaking[-1] if speaking and not to_send else -1
        assistants = [at for at in speaking if messages[at].role == "assistant"]
        self._newest = assistants[-1] if assistants else -1

    def settle(self) -> Settled:
        groups = [() if rest is None else tuple(self._group(at, rest)) for at, rest in enumerate(self._rests)]
        return Settled(groups, tuple(self._changes))

    def _match(self) -> None:
        """A result belongs to the newest call of its id that waits: providers use ids again."""
        waiting: dict[str, list[int]] = {}
        for at, message in enumerate(self._messages):
            for call_id in message.answers:
                if callers := waiting.get(call_id):
                    self._sources[callers.pop()][call_id] = at
                else:
                    self._note("result_left_out", call_id, message)
            calls = message.calls
            if calls:
                self._sources[at] = {}
            for call_id in calls:
                waiting.setdefault(call_id, []).append(at)

    def _group(self, at: int, rest: Message) -> Iterator[Message]:
        sources = self._sources.get(at)
        if sources is None:
            yield rest
            return
        message = self._messages[at]
        unanswered = [call_id for call_id in message.calls if call_id not in sources]
        noted: list[str] = []
        if at == self._open_end:
            unanswered = []
        elif at == self._newest and self._with_notes:
            listed = {call.get("id") for call in message.tool_calls or ()}
            noted = [call_id for call_id in unanswered if call_id in listed]
        left_out = [call_id for call_id in unanswered if call_id not in noted]
        for call_id in unanswered:
            self._note("call_left_out" if call_id in left_out else "result_added", call_id, message)
        shown = _without_calls(rest, left_out) if left_out else rest
        if shown is not None:
            alone, in_parts = self._results(at, sources)
            notes = [Message("tool", NOTE, tool_call_id=call_id, tokens=NOTE_TOKENS) for call_id in noted]
            yield from (shown, *alone, *notes, *in_parts)

    def _results(self, at: int, sources: Mapping[str, int]) -> tuple[list[Message], list[Message]]:
        """The results of a call's message: messages of their own, and a message with those in parts."""
        by_source: dict[int, list[str]] = {}
        for call_id, source in sorted(sources.items(), key=lambda one: one[1]):
            by_source.setdefault(source, []).append(call_id)
        alone: list[Message] = []
        in_parts: list[Message] = []
        for place, (source, call_ids) in enumerate(by_source.items(), start=at + 1):
            message = self._messages[source]
            group = alone if message.role == "tool" else in_parts
            if source != place or self._rests[source] is not None or (group is in_parts and in_parts):
                for call_id in call_ids:
                    self._note("result_moved", call_id, message)
            group.append(_results_alone(message, call_ids))
        if len(in_parts) > 1:
            together = [part for result in in_parts for part in _parts(result)]
            tokens = sum([result.tokens or 0 for result in in_parts])
            in_parts = [replace(in_parts[0], content=together, tokens=tokens)]
        return alone, in_parts

    def _note(self, kind: ChangeKind, call_id: str, message: Message) -> None:
        self._changes.append(Change(kind, call_id, message.seq))


def _parts(message: Message) -> list[Mapping[str, object]]:
    content = message.content
    return [] if content is None or isinstance(content, str) else list(content)


def _is_mixed(message: Message) -> bool:
    """Whether two parts are the result of one call, or a result stands behind something else."""
    if len(_parts(message)) < 2:
        return False
    ids = [
        tool_part.id if tool_part and tool_part.is_result else None
        for _, tool_part in tool_parts(_parts(message))
    ]
    results = [one for one in ids if one is not None]
    return len(results) > len(set(results)) or None in ids[: len(results)]


def _rest(message: Message) -> Message | None:
    """A message without the results in it; None if it is nothing else."""
    if message.role == "tool":
        return None
    answers = message.answers
    parts = [
        part
        for part, tool_part in tool_parts(_parts(message))
        if tool_part is None or tool_part.id not in answers
    ]
    return replace(message, content=parts) if parts else None


def _results_alone(message: Message, call_ids: Sequence[str]) -> Message:
    """The results of these calls in a message."""
    if _rest(message) is None and set(message.answers) == set(call_ids) and not _is_mixed(message):
        return message
    kept: dict[str, Mapping[str, object]] = {}
    for part, tool_part in tool_parts(_parts(message)):
        if tool_part is not None and tool_part.is_result and tool_part.id in call_ids:
            kept.setdefault(tool_part.id, part)
    named = message.tool_call_id if message.tool_call_id in call_ids else call_ids[0]
    return replace(
        message,
        content=list(kept.values()) or message.content,
        tool_call_id=None if message.tool_call_id is None else named,
    )


def _without_calls(message: Message, call_ids: Collection[str]) -> Message | None:
    """A message without these calls, and what was thought just before them; None if nothing remains."""
    content = message.content
    if not (content is None or isinstance(content, str)):
        kept: list[Mapping[str, object]] = []
        for part, tool_part in tool_parts(content):
            if tool_part is None or tool_part.is_result or tool_part.id not in call_ids:
                kept.append(part)
                continue
            while kept and is_thinking(kept[-1]):
                kept.pop()
        content = None if all(map(is_thinking, kept)) else kept
    calls = [call for call in message.tool_calls or () if call.get("id") not in call_ids]
    return replace(message, content=content, tool_calls=calls or None) if content or calls else None
