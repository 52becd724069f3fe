"""A read of a session for one command: its options, the read, and what is said of its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from strandline.cli.reports.memory import LeftOut, ReadState
from strandline.cli.servers.memories import OpenedSession, opened_session
from strandline.cli.servers.options import json_options, namespace_option, target_options, user_option
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

token_limit_option = click.option(
    "--token-limit", type=click.IntRange(1), metavar="N", help="The token limit; default: the session's."
)


def read(opened: OpenedSession, query: str | None) -> tuple[MemoryContext, ReadState]:
    """What ``Memory.get`` gives with the default blocks of the session's pipelines, and its state."""
    memory, stored = opened
    context = memory.get(query)
    state = ReadState.of(
        context,
        namespace=stored.namespace,
        session_id=stored.session_id,
        user_id=stored.user_id,
        token_limit=memory.token_limit,
        covered_through=dict(context.covered_through),
        omitted=[LeftOut.of(item) for item in context.omitted],
    )
    return context, state


def read_options(report: type[BaseModel]) -> Callable[[Command], Command]:
    output = json_options(report)
    return lambda command: namespace_option(user_option(token_limit_option(output(target_options(command)))))


def read_session(
    settings: Settings,
    session: str,
    query: str | None,
    *,
    namespace: str,
    user: str | None,
    token_limit: int | None,
) -> tuple[MemoryContext, ReadState]:
    with opened_session(settings, session, namespace, user, token_limit) as opened:
        return read(opened, query)


def coverage_lines(state: ReadState) -> Iterator[str]:
    """How far memory is, by pipeline."""
    for pipeline, seq in state.covered_through.items():
        yield f"{pipeline}: covered through {seq}"
    if not state.caught_up:
        yield "not caught up: flushed messages are still on their way to a block"


def omission_lines(state: ReadState) -> Iterator[str]:
    """What was left out, and why."""
    for item in state.omitted:
        yield f"left out: {item.name} ({item.kind}): {item.reason}"
