"""``strandline ask``: what memory gives for a question, where it is from, and what was left out."""

from __future__ import annotations

import click

from strandline.cli.ask.reports import AskReport, report_answer
from strandline.cli.ask.view import show_answer
from strandline.cli.command import Output, cli_command
from strandline.cli.servers.memories import OpenedSession, opened_session, read, token_limit_option
from strandline.cli.servers.options import namespace_option, user_option
from strandline.cli.terminal.output import console


@cli_command("ask", opened_session, AskReport)
@click.argument("session")
@click.argument("question")
@namespace_option
@user_option
@token_limit_option
def command(opened: OpenedSession, question: str, as_json: bool) -> Output | None:
    """Show what a session's memory gives for a question: pieces with their sources, and all omissions.

    The read is `Memory.get` with the default blocks of the session's pipelines; `strandline get` shows its
    messages. No model answers the question: the only model call is its embedding. The application's own
    tokenizer is not available here, so the default one counts memory.
    """
    context, state = read(opened, question)
    report = report_answer(question, context, state)
    if as_json:
        return Output(report, [])
    show_answer(console(), report)
    return None
