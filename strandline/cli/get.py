"""``strandline get``: what a read of a session gives now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from strandline.cli.reports.memory import LeftOut, ReadMessage, ReadReport
from strandline.cli.servers.memories import opened_session
from strandline.cli.servers.options import (
    as_json,
    json_schema_option,
    namespace_option,
    settings_from,
    target_options,
)
from strandline.cli.terminal.output import print_json, print_schema, say
from strandline.pipelines.transcript import full_text, speaker
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.display.shown_text import quantity, shown_lines
from strandline.schemas.values.message import Message


@click.command("get")
@click.argument("session")
@namespace_option
@click.option("--user", metavar="ID", help="The user that must own it; default: any.")
@click.option("--query", metavar="TEXT", help="The text to search memory for; default: the latest messages.")
@click.option(
    "--token-limit", type=click.IntRange(1), metavar="N", help="The token limit; default: the session's."
)
@as_json
@json_schema_option
@target_options
def command(
    session: str,
    namespace: str,
    user: str | None,
    query: str | None,
    token_limit: int | None,
    as_json: bool,
    json_schema: bool,
    **target: Any,
) -> int:
    """Show the messages that `Memory.get` returns for the next model call, memory included.

    The blocks are the default blocks of the session's pipelines. The application's own tokenizer is not
    available here, so the default one counts memory. The only model call is the query's embedding.
    """
    if json_schema:
        print_schema(ReadReport)
        return 0
    settings = settings_from(**target)
    with opened_session(settings, session, namespace=namespace, user_id=user, token_limit=token_limit) as (
        memory,
        state,
    ):
        context = memory.get(query)
        report = _report(context, namespace, session, state.user_id, memory.token_limit)
    if as_json:
        print_json(report)
    else:
        say(*_lines(context, report))
    return 0


def _report(
    context: MemoryContext, namespace: str, session: str, user: str | None, token_limit: int
) -> ReadReport:
    return ReadReport(
        namespace=namespace,
        session_id=session,
        user_id=user,
        token_limit=token_limit,
        tokens=context.tokens,
        over_budget=context.over_budget,
        caught_up=context.caught_up,
        covered_through=dict(context.covered_through),
        omitted=[LeftOut(**asdict(item)) for item in context.omitted],
        messages=[
            ReadMessage(
                seq=message.seq, id=message.id, created_at=message.created_at, message=message.to_openai()
            )
            for message in context
        ],
    )


def _lines(context: MemoryContext, report: ReadReport) -> Iterator[str]:
    over = ", over budget" if report.over_budget else ""
    yield f"{quantity(len(context), 'message')}, {report.tokens:,} of {report.token_limit:,} tokens{over}"
    for message in context:
        yield from _message(message)
    for pipeline, seq in report.covered_through.items():
        yield f"{pipeline}: covered through {seq}"
    if not report.caught_up:
        yield "not caught up: flushed messages are still on their way to a block"
    for item in report.omitted:
        yield f"left out: {item.name} ({item.kind}): {item.reason}"


def _message(message: Message) -> Iterator[str]:
    """Its own lines are indented, so that what was said cannot pass for another message."""
    number = "made for this read" if message.seq is None else f"seq {message.seq}"
    said_by = message.role if speaker(message) == message.role else f"{message.role} {speaker(message)}"
    yield f"{said_by} ({number}):"
    yield from (f"  {line}" for line in shown_lines(full_text(message) or "(no text)"))
