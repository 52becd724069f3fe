"""Turns stored messages into the lines that a model sees: numbered, plain, bounded text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from strandline.pipelines.engine.parts import items_of, split_name
from strandline.pipelines.engine.stage import Batch, RawAnswer
from strandline.pipelines.models.answers import MAX_NAME_CHARACTERS, open_numbers
from strandline.pipelines.models.contract import TranscriptLine
from strandline.schemas.postgres.database import Fetcher
from strandline.schemas.queries.work.lanes import BatchMessages
from strandline.schemas.values.content_parts import without_payloads
from strandline.schemas.values.flush_event import FlushEvent
from strandline.schemas.values.forms.tool_calls import read_call, tool_parts
from strandline.schemas.values.message import DELETED_CONTENT, Message, by_local_clock, read_rows

# About 2,000 tokens: a model cites a line, and a fact that cites a pasted file as one cites nothing.
MAX_LINE_CHARACTERS = 8_000
# What a long text is cut behind, the best first.
_ENDS = (("\n", ". ", "! ", "? ", "。", "！", "？"), (" ",))
# Of the lines of one call: a batch of the usual size is far below, a message of a megabyte far above.
MAX_CALL_CHARACTERS = 64_000


@dataclass(frozen=True, slots=True)
class Transcript:
    """A batch's messages with the event each one came with, in order, and the lines made of them.

    ``lines[n - 1]`` is line number ``n`` and shows ``messages[n - 1]``, or a piece of it if it is long;
    messages without any text have no line and are left out of both.
    """

    messages: tuple[Message, ...]
    events: tuple[FlushEvent, ...]
    lines: tuple[TranscriptLine, ...]

    def lines_by_step(self, step: str) -> dict[str, tuple[TranscriptLine, ...]]:
        """The lines that each call of a model is to see, by the names of its steps, in order."""
        groups: list[list[TranscriptLine]] = []
        room = 0
        for line in self.lines:
            if len(line.text) > room:
                groups.append([])
                room = MAX_CALL_CHARACTERS
            groups[-1].append(line)
            room -= len(line.text)
        return {step if at == 1 else f"{step}-{at}": tuple(lines) for at, lines in enumerate(groups, 1)}

    def lines_of(self, step: str) -> tuple[TranscriptLine, ...]:
        """The lines of a step of ``calls``, or of a part of one; none if they are gone."""
        whole, mark, numbers = split_name(step)
        if mark:
            return items_of(numbers, self.lines)
        return self.lines_by_step(whole.partition("-")[0]).get(whole, ())

    def left_out(self, answers: Mapping[str, RawAnswer]) -> list[Message]:
        """The messages with a line that none of the answers to these steps is about."""
        answered: set[int] = set()
        for step, answer in answers.items():
            answered |= {line.number for line in self.lines_of(step)} - open_numbers(answer.body.decode())
        return [message for number, message in enumerate(self.messages, 1) if number not in answered]

    def event_of(self, number: int) -> FlushEvent:
        return self.events[number - 1]

    def message_of(self, number: int) -> Message:
        return self.messages[number - 1]


def load_transcript(fetcher: Fetcher, batch: Batch) -> Transcript:
    """Read a batch's messages, of all its events, in order."""
    shown = [
        (event, message, text)
        for event, messages in load_messages(fetcher, batch)
        for message in messages
        if message.shown_text != DELETED_CONTENT
        for text in cut_pieces(full_text(message), MAX_LINE_CHARACTERS)
    ]
    lines = tuple(
        TranscriptLine(number, message.role, shown_name(message), text, message.created_at)
        for number, (_event, message, text) in enumerate(shown, 1)
        if message.created_at is not None
    )
    return Transcript(tuple(m for _e, m, _t in shown), tuple(e for e, _m, _t in shown), lines)


def load_messages(fetcher: Fetcher, batch: Batch) -> list[tuple[FlushEvent, list[Message]]]:
    """The messages that each event of a batch delivers, in the batch's order; read in one statement."""
    rows = fetcher.fetch(
        BatchMessages(
            shard_key=batch.lane.shard_key,
            generation_id=batch.lane.generation_id,
            session_keys=[event.session_key for event in batch.events],
            from_seqs=[event.from_seq for event in batch.events],
            through_seqs=[event.through_seq for event in batch.events],
        )
    )
    by_event: list[tuple[FlushEvent, list[Message]]] = [(event, []) for event in batch.events]
    for row, message in zip(rows, read_rows(rows), strict=True):
        by_event[row.place - 1][1].append(by_local_clock(message, row.time_zone))
    return by_event


def plain_text(message: Message) -> str:
    """Text and tool calls of a message, cut at ``MAX_LINE_CHARACTERS``; empty if there is nothing to read."""
    text = full_text(message)
    return text if len(text) <= MAX_LINE_CHARACTERS else text[: MAX_LINE_CHARACTERS - 1] + "…"


def cut_pieces(text: str, max_characters: int) -> Iterator[str]:
    """The text in pieces of bounded length, cut behind a sentence or line, else at a blank; none if empty."""
    while len(text) > max_characters:
        cuts = (max(text.rfind(end, max_characters // 2, max_characters) for end in ends) for ends in _ENDS)
        at = next((cut + 1 for cut in cuts if cut > 0), max_characters)
        piece, text = text[:at].rstrip(), text[at:].lstrip()
        if piece:
            yield piece
    if text:
        yield text


def full_text(message: Message) -> str:
    """Text and tool calls of a message, all of it but data in base64; empty if there is nothing to read."""
    calls = [_call_text(call) for call in message.tool_calls or ()]
    for _, one in tool_parts(message.content):
        if one and not one.is_result:
            calls.append(_call_line(one.name, one.value))
    pieces = [message.shown_text, *calls]
    return without_payloads("\n".join(piece for piece in pieces if piece.strip()))


def speaker(message: Message) -> str:
    """The speaker of a message: the name if there is one, else the role."""
    return message.name or message.role


def shown_name(message: Message) -> str | None:
    """The name as an answer may repeat it, so that a model's copy of it is found."""
    name = message.name
    if name is None or len(name) <= MAX_NAME_CHARACTERS:
        return name
    return name[: MAX_NAME_CHARACTERS - 1] + "…"


def _call_text(call: Mapping[str, Any]) -> str:
    _, name, arguments = read_call(call)
    return _call_line(name, arguments) if name or arguments else ""


def _call_line(name: object, arguments: object) -> str:
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False) if arguments else ""
    return f"{name}({arguments})"
