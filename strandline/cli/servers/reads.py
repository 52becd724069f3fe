"""A read of a session for one command: its options, the read, and what is said of its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from strandline.cli.reports.memory import ReadState
from strandline.cli.servers.memories import OpenedSession
from strandline.producers.reading.context import MemoryContext

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
        omitted=context.omitted,
    )
    return context, state


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
