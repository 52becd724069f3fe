"""``strandline get``: the present result of a session's read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.memories import (
    OpenedSession,
    ReadState,
    coverage_lines,
    omission_lines,
    opened_session,
    read,
    token_limit_option,
)
from strandline.pipelines.transcript import full_text, speaker
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.values.message import Message
from strandline.schemas.wire.report import Report


class ReadMessage(Report):
    """A message of a read; ``message`` is in the form of OpenAI's chat API.

    A message made for the read (memory without a pinned head) has neither ``seq`` nor ``id``.
    """

    seq: int | None
    id: str | None
    created_at: datetime | None
    message: dict[str, Any]


class ReadReport(ReadState):
    """``strandline get``: as ``Memory.get`` gives it, within ``token_limit``."""

    messages: list[ReadMessage]


@cli_command("get", opened_session, ReadReport)
@click.option("--query", metavar="TEXT", help="The text to search memory for; default: the latest messages.")
@token_limit_option
def command(opened: OpenedSession, query: str | None) -> Output:
    """Show the messages that `Memory.get` returns for the next model call, memory included.

    The blocks are the default blocks of the session's pipelines. The application's own tokenizer is not
    available here, so the default one counts memory. The only model call is the query's embedding.
    """
    context, state = read(opened, query)
    messages = [
        ReadMessage.of(message, created_at=message.created_at, message=message.to_dict())
        for message in context
    ]
    return Output(ReadReport(**dict(state), messages=messages), _lines(context, state))


def _lines(context: MemoryContext, state: ReadState) -> Iterator[str]:
    over = ", over budget" if state.over_budget else ""
    yield f"{quantity(len(context), 'message')}, {state.tokens:,} of {state.token_limit:,} tokens{over}"
    for message in context:
        yield from _message(message)
    yield from coverage_lines(state)
    yield from omission_lines(state)


def _message(message: Message) -> Iterator[str]:
    number = "made for this read" if message.seq is None else f"seq {message.seq}"
    said_by = message.role if speaker(message) == message.role else f"{message.role} {speaker(message)}"
    yield f"{said_by} ({number}):"
    yield f"  {full_text(message) or '(no text)'}"
