"""Tool calls and their results in the order that every provider takes, in a read; the log stays.

A provider refuses a call that is not answered before the next message, and a result without its call.  Logs
have both: a process died, two runs were concurrent, a result came late or twice.  So each result is moved
directly behind the message with its call; orphaned and second results are left out.  A call without a result
is left out once the assistant has continued, and so tells its outcome; the newest one is answered by a note,
as the assistant should know that it may have run.  So is each of a message with an answered one, since the
signatures of thoughts hold for all of a message's calls.  Behind a call at the very end its result may still
come, so it stays as it is, unless the messages are to be sent.

The halves of an act of a provider's own tool, and of an approval, are shown where they stand, or neither is.

Some models give their parallel calls one id: from the second on a number follows it, in call and result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from strandline.producers.blocks.render import NOTE, USER_LINE
from strandline.schemas.values.forms.tool_calls import (
    ToolPart,
    answered_by,
    is_thinking,
    own_halves,
    own_ids,
    tool_parts,
    with_call_id,
)
from strandline.schemas.values.message import HEAD_ROLES, SHOWN, Content, Message, Role, shown_with

# About the tokens that either takes, by any tokenizer.
NOTE_TOKENS = 24

ChangeKind = Literal["result_moved", "result_left_out", "result_added", "call_left_out"]
REASONS: Mapping[ChangeKind, str] = {
    "result_moved": "The result is shown directly behind its call; in the log other messages stand between.",
    "result_left_out": "The result's call is not shown, or has a result already.",
    "result_added": "The call has no result; a note stands in its place.",
    "call_left_out": "The call has no result here, and the conversation went on.",
}

# By an id in the log, and whether of results, the ids that its uses in one message get.
Names = dict[tuple[str, bool], list[str]]


@dataclass(frozen=True, slots=True)
class Change:
    """A call or result that is not shown as the log has it; ``seq`` is that of its message."""

    kind: ChangeKind
    call_id: str
    seq: int | None


class Settled:
    """Messages with each result behind its call.

    Args:
        to_send: nothing is put behind the messages before a model gets them.
        with_notes: answer a call without a result by a note if it is the newest, or another of its message
            has one; else it is left out.

    Attributes:
        groups: the replacement of each message.
        changes: of the order.
    """

    def __init__(
        self, messages: Sequence[Message], *, to_send: bool = False, with_notes: bool = True
    ) -> None:
        whole, self.changes = _with_whole_pairs(messages)
        self._messages = messages = _with_own_ids(whole)
        self._rests = [_rest(message) for message in messages]
        # By the place of a call's message, the places of its results, with their ids.
        self._sources: list[dict[int, list[str]]] = [{} for _ in messages]
        self._match()
        speaking = [at for at, rest in enumerate(self._rests) if rest is not None]
        self._open_end = speaking[-1] if speaking and not to_send else -1
        self._with_notes = with_notes
        self._newest = max((at for at in speaking if messages[at].role == "assistant"), default=-1)
        self.groups = [() if rest is None else self._group(at, rest) for at, rest in enumerate(self._rests)]

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple([message for group in self.groups for message in group])

    def lost_calls(self, from_seq: int) -> dict[str, int]:
        """The ids of calls that are not there, with the numbers of their first results from a number on."""
        lost = [(one.call_id, one.seq or 0) for one in self.changes if one.kind == "result_left_out"]
        return {call_id: seq for call_id, seq in reversed(lost) if seq >= from_seq}

    def _match(self) -> None:
        waiting: dict[str, list[int]] = {}
        for at, message in enumerate(self._messages):
            for call_id in _ids(message, results=True):
                if callers := waiting.get(call_id):
                    self._sources[callers.pop()].setdefault(at, []).append(call_id)
                else:
                    self._note("result_left_out", [call_id], message)
            for call_id in _ids(message, results=False):
                waiting.setdefault(call_id, []).append(at)

    def _group(self, at: int, rest: Message) -> tuple[Message, ...]:
        message, answered = self._messages[at], {one for ids in self._sources[at].values() for one in ids}
        calls = () if at == self._open_end else _ids(message, results=False)
        waiting = [one for one in calls if one not in answered]
        notes = self._notes(message, waiting) if at == self._newest or answered else {}
        left_out = [one for one in waiting if one not in notes]
        self._note("result_added", [*notes], message)
        self._note("call_left_out", left_out, message)
        shown = _without_calls(rest, left_out) if left_out else rest
        alone, in_parts = self._results(at, [one for one in notes.values() if one.role != "tool"])
        noted = [one for one in notes.values() if one.role == "tool"]
        return () if shown is None else (shown, *alone, *noted, *in_parts)

    def _notes(self, message: Message, waiting: Sequence[str]) -> dict[str, Message]:
        """The notes that answer these calls, each in its form, if notes are wanted and the form has one."""
        if not (waiting and self._with_notes):
            return {}
        listed = [str(call.get("id")) for call in message.tool_calls or ()]
        parts = {one.id: _note_of(part, one) for part, one in tool_parts(message.content) if one}
        notes = {one: _addition("tool", NOTE, one) if one in listed else parts.get(one) for one in waiting}
        return {call_id: note for call_id, note in notes.items() if note is not None}

    def _results(self, at: int, notes: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        alone: list[Message] = []
        in_parts: list[Message] = []
        for place, (source, call_ids) in enumerate(self._sources[at].items(), start=at + 1):
            message = self._messages[source]
            group = alone if message.role == "tool" else in_parts
            if source != place or self._rests[source] is not None or (group is in_parts and in_parts):
                self._note("result_moved", call_ids, message)
            group.append(_results_alone(message, call_ids))
        in_parts += notes
        if len(in_parts) > 1:
            together = [part for result in in_parts for part, _ in tool_parts(result.content)]
            tokens = sum([result.tokens or 0 for result in in_parts])
            in_parts = [shown_with(in_parts[0], content=together, tokens=tokens)]
        return alone, in_parts

    def _note(self, kind: ChangeKind, call_ids: Sequence[str], message: Message) -> None:
        self.changes += [Change(kind, call_id, message.seq) for call_id in call_ids]


def is_settled(messages: Sequence[Message], *, to_send: bool = False) -> bool:
    """Whether calls and results are in order already, as nearly always."""
    waiting: set[str] = set()
    is_parted = False
    if _lone_halves(messages):
        return False
    for message in messages:
        answers = _ids(message, results=True)
        if answers and (is_parted or not waiting.issuperset(answers) or _is_mixed(message)):
            return False
        calls = _ids(message, results=False)
        if calls and max(_uses(message, results=False).values()) > 1:
            return False
        waiting.difference_update(answers)
        if answers and _rest(message) is None:
            # Results in parts are one message: Gemini wants as many as there are calls.
            is_parted = bool(waiting) and message.role != "tool"
            continue
        if waiting:
            return False
        waiting.update(calls)
    return not (waiting and to_send)


def settled(
    messages: Sequence[Message], *, to_send: bool = False, with_notes: bool = True
) -> Sequence[Message]:
    """The messages with each result behind its call, as ``Settled``."""
    if is_settled(messages, to_send=to_send):
        return messages
    return Settled(messages, to_send=to_send, with_notes=with_notes).messages


def begins_with_user(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, with a marked user's line if the first non-system message is another's."""
    speaking = (
        at for at, one in enumerate(messages) if one.role not in HEAD_ROLES and (one.content or one.calls)
    )
    at = next(speaking, None)
    if at is None or messages[at].role == "user":
        return tuple(messages)
    return (*messages[:at], Message("user", USER_LINE, tokens=NOTE_TOKENS), *messages[at:])


def wants_user_first(messages: Sequence[Message]) -> bool:
    """Whether they are written for a provider whose conversations begin with a user's message."""
    contents = [message.content for message in messages if type(message.content) is not str]
    return any(one and one.is_user_first for content in contents for _, one in tool_parts(content))


def _ids(message: Message, *, results: bool) -> tuple[str, ...]:
    """The ids of the calls that a caller answers, or of their results."""
    ids = message.answers if results else message.calls
    own = own_ids(message.content, results=results) if ids else ()
    return tuple([one for one in ids if one not in own]) if own else ids


def _addition(role: Role, content: Content, answers: str | None = None) -> Message:
    return Message(role, content, tool_call_id=answers, tokens=NOTE_TOKENS, metadata={SHOWN: True})


def _note_of(part: Mapping[str, Any], call: ToolPart) -> Message | None:
    note = answered_by(part, call, NOTE)
    if note is None:
        return None
    return _addition("tool", [note], call.id) if note["type"] == "tool-result" else _addition("user", [note])


def _lone_halves(messages: Sequence[Message]) -> dict[int, Change]:
    """The halves of pairs of ``own_halves`` without the other, by the identity of the part.

    A provider's own tool ends in the turn in which it began.  The last message may have the first half: the
    other may still come.
    """
    lone: dict[int, Change] = {}
    waiting: dict[tuple[str, bool], list[int]] = {}
    for message in messages:
        if waiting and message.is_new_turn:
            waiting = {key: left for key, left in waiting.items() if key[1]}
        for part, half in own_halves(message.content):
            if half is None:
                continue
            callers = waiting.setdefault((half.id, half.is_approval), [])
            if half.is_later and callers:
                del lone[callers.pop()]
                continue
            kind: ChangeKind = "result_left_out" if half.is_later else "call_left_out"
            lone[id(part)] = Change(kind, half.id, message.seq)
            if not half.is_later:
                callers.append(id(part))
    last = messages[-1].content if messages else None
    for part, half in own_halves(last):
        if half and not half.is_later:
            lone.pop(id(part), None)
    return lone


def _with_whole_pairs(messages: Sequence[Message]) -> tuple[Sequence[Message], list[Change]]:
    lone = _lone_halves(messages)
    if not lone:
        return messages, []
    shown = [
        shown_with(message, content=_without_parts(message.content, lone))
        if any(id(part) in lone for part, half in own_halves(message.content) if half)
        else message
        for message in messages
    ]
    return shown, [*lone.values()]


def _with_own_ids(messages: Sequence[Message]) -> list[Message]:
    """The messages with an id of its own for each of the calls that wait together, and for its result."""
    shown: list[Message] = []
    waiting: dict[str, list[str]] = {}
    for message in messages:
        calls, results = _uses(message, results=False), _uses(message, results=True)
        if calls and not results and not (shown and shown[-1].calls):
            waiting = {call_id: left for call_id, left in waiting.items() if call_id not in calls}
        names: Names = {}
        for call_id, count in results.items():
            left = waiting.get(call_id, [])
            names[call_id, True] = [left.pop(0) if left else call_id for _ in range(count)]
        for call_id, count in calls.items():
            left = waiting.setdefault(call_id, [])
            first = len(left)
            left += [call_id if n == 0 else f"{call_id}__{n + 1}" for n in range(first, first + count)]
            names[call_id, False] = left[first:]
        shown.append(_named(message, names))
    return shown


def _uses(message: Message, *, results: bool) -> Counter[str]:
    """How many calls, or results, of each id a message holds; a list and the parts may hold the same."""
    if results:
        listed = [] if message.tool_call_id is None else [message.tool_call_id]
        known = message.answers
    else:
        listed, known = [str(call.get("id")) for call in message.tool_calls or ()], message.calls
    if not known:
        return Counter()
    in_parts = [one.id for _, one in tool_parts(message.content) if one and one.is_result is results]
    return (Counter(listed) | Counter(in_parts)) & Counter(dict.fromkeys(known, len(listed + in_parts)))


def _named(message: Message, names: Names) -> Message:
    if all(set(new) == {old} for (old, _), new in names.items()):
        return message
    listed = {key: iter(new) for key, new in names.items()}
    in_parts = {key: iter(new) for key, new in names.items()}
    content = message.content
    if content is not None and not isinstance(content, str):
        content = [
            with_call_id(part, next(in_parts[one.id, one.is_result]))
            if one and (one.id, one.is_result) in in_parts
            else part
            for part, one in tool_parts(content)
        ]
    calls = [{**call, "id": next(listed[str(call.get("id")), False])} for call in message.tool_calls or ()]
    answered = message.tool_call_id
    if answered is not None:
        answered = next(listed[answered, True])
    return shown_with(message, content=content, tool_calls=calls or None, tool_call_id=answered)


def _is_mixed(message: Message) -> bool:
    ids = [one.id if one and one.is_result else None for _, one in tool_parts(message.content)]
    results = [call_id for call_id in ids if call_id is not None]
    return len(results) > len(set(results)) or (message.role != "tool" and None in ids[: len(results)])


def _rest(message: Message) -> Message | None:
    """A message without results; None if nothing is left."""
    answers = _ids(message, results=True)
    if not answers:
        is_empty = message.content is None and not message.tool_calls and SHOWN in message.metadata
        return None if is_empty else message
    if message.role == "tool":
        return None
    parts = [part for part, one in tool_parts(message.content) if one is None or one.id not in answers]
    return shown_with(message, content=parts) if parts else None


def _results_alone(message: Message, call_ids: Sequence[str]) -> Message:
    if _rest(message) is None and set(message.answers) == set(call_ids) and not _is_mixed(message):
        return message
    kept: dict[str, Mapping[str, object]] = {}
    for part, one in tool_parts(message.content):
        if one and one.is_result and one.id in call_ids:
            kept.setdefault(one.id, part)
    named = message.tool_call_id
    if named is not None and named not in call_ids:
        named = call_ids[0]
    return shown_with(message, content=list(kept.values()) or message.content, tool_call_id=named)


def _without_calls(message: Message, call_ids: Collection[str]) -> Message | None:
    """A message without these calls; None if nothing remains."""
    parts = {
        id(part)
        for part, one in tool_parts(message.content)
        if one and not one.is_result and one.id in call_ids
    }
    content = _without_parts(message.content, parts)
    calls = [call for call in message.tool_calls or () if call.get("id") not in call_ids]
    return shown_with(message, content=content, tool_calls=calls or None) if content or calls else None


def _without_parts(content: Content, left_out: Collection[int]) -> Content:
    """A content without parts of these identities, and thoughts just before them; None if nothing remains."""
    if content is None or isinstance(content, str):
        return content
    kept: list[Mapping[str, Any]] = []
    for part in content:
        if id(part) not in left_out:
            kept.append(part)
            continue
        while kept and is_thinking(kept[-1]):
            kept.pop()
    return None if all(map(is_thinking, kept)) else kept
