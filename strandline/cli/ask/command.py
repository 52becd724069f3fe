"""``strandline ask``: what memory gives for a question, where it is from, and what was left out."""

from __future__ import annotations

from typing import Any

import click

from strandline.cli.ask.reports import AskReport, report_answer
from strandline.cli.ask.view import show_answer
from strandline.cli.servers.options import settings_from
from strandline.cli.servers.reads import read_options, read_session
from strandline.cli.terminal.output import console, print_json


@click.command("ask")
@click.argument("session")
@click.argument("question")
@read_options(AskReport)
def command(
    session: str,
    question: str,
    namespace: str,
    user: str | None,
    token_limit: int | None,
    as_json: bool,
    **target: Any,
) -> None:
    """Show what a session's memory gives for a question: pieces with their sources, and all omissions.

    The read is `Memory.get` with the default blocks of the session's pipelines; `strandline get` shows its
    messages. No model answers the question: the only model call is its embedding. The application's own
    tokenizer is not available here, so the default one counts memory.
    """
    context, state = read_session(
        settings_from(**target), session, question, namespace=namespace, user=user, token_limit=token_limit
    )
    report = report_answer(question, context, state)
    if as_json:
        print_json(report)
    else:
        show_answer(console(), report)
