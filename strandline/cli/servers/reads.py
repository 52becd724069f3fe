"""A read of a session for one command: its options, the read, and what is said of its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from strandline.cli.reports.memory import LeftOut, ReadState
from strandline.cli.servers.memories import opened_session
from strandline.cli.servers.options import json_options, namespace_option, target_options
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.settings import Settings

Command = TypeVar("Command", bound=Callable[..., Any])

_USER = click.option("--user", metavar="ID", help="The user that must own it; default: any.")
_TOKEN_LIMIT = click.option(
    "--token-limit", type=click.IntRange(1), metavar="N", help="The token limit; default: the session's."
)


def read_options(report: type[BaseModel]) -> Callable[[Command], Command]:
    """``--namespace``, ``--user``, ``--token-limit``, those of the report as JSON, those of the servers."""
    output = json_options(report)
    return lambda command: namespace_option(_USER(_TOKEN_LIMIT(output(target_options(command)))))


def read_session(
    settings: Settings,
    session: str,
    query: str | None,
    *,
    namespace: str,
    user: str | None,
    token_limit: int | None,
) -> tuple[MemoryContext, ReadState]:
    """What ``Memory.get`` gives with the default blocks of the session's pipelines, and its state.

    Raises:
        NotFoundError: there is no such session.
    """
    with opened_session(settings, session, namespace=namespace, user_id=user, token_limit=token_limit) as (
        memory,
        stored,
    ):
        context = memory.get(query)
        limit = memory.token_limit
    state = ReadState(
        namespace=namespace,
        session_id=session,
        user_id=stored.user_id,
        token_limit=limit,
        tokens=context.tokens,
        over_budget=context.over_budget,
        caught_up=context.caught_up,
        covered_through=dict(context.covered_through),
        omitted=[LeftOut(**asdict(item)) for item in context.omitted],
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
