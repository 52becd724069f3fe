"""``strandline sessions rewind``, ``replace``, ``fork`` and ``delete``."""

from __future__ import annotations

from datetime import datetime
from typing import TextIO

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.servers.memories import OpenedSession, opened_session
from strandline.cli.servers.options import (
    actor_option,
    namespace_option,
    session_options,
    settings_alone,
    user_option,
)
from strandline.memory import Memory
from strandline.producers.writing.correcting.correct import Correction
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.settings import Settings
from strandline.schemas.wire.report import Report
from strandline.schemas.wire.sessions import ForkOut

_key_option = click.option(
    "--key", metavar="KEY", help="A name for this correction: repeated with it, nothing more is corrected."
)


class CorrectionReport(Report):
    """A correction: its number in the session, and the messages that it took back or replaced.

    Of a dry run there is neither a number nor a time, and no messages are named: ``messages`` counts them.
    """

    number: int | None
    kind: str
    from_seq: int
    through_seq: int
    seqs: tuple[int, ...]
    messages: int
    created_at: datetime | None


class DeletionReport(Report):
    """A session whose messages were deleted, with their derived memory."""

    namespace: str
    session_id: str
    messages: int


@cli_command(
    "rewind", opened_session, CorrectionReport, short_help="Take back a session's messages from one on."
)
@session_options
@click.argument("from_seq", type=click.IntRange(1))
@actor_option
@_key_option
@click.option("--dry-run", "is_dry", is_flag=True, help="Only say how many messages it would take back.")
def rewind_command(
    opened: OpenedSession, from_seq: int, actor: str | None, key: str | None, is_dry: bool
) -> Output:
    """Take back the messages of SESSION from number FROM_SEQ on, with what was derived from them.

    No copy of them is kept.
    """
    memory, _ = opened
    if is_dry:
        return _estimate(memory, from_seq)
    correction = memory.rewind(from_seq, actor=actor, idempotency_key=key)
    return _output(correction, f"took back {quantity(len(correction.seqs), 'message')}")


@cli_command(
    "replace", settings_alone, CorrectionReport, short_help="Give a session's message other content."
)
@session_options
@click.argument("seq", type=click.IntRange(1))
@click.argument("content", type=click.File(encoding="utf-8"))
@actor_option
@_key_option
@click.option("--empty", "may_be_empty", is_flag=True, help="Let the message have no content any more.")
def replace_command(
    settings: Settings,
    session: str,
    namespace: str,
    user: str | None,
    seq: int,
    content: TextIO,
    actor: str | None,
    key: str | None,
    may_be_empty: bool,
) -> Output:
    """Give message SEQ of SESSION other content: the text of the file CONTENT, or of the input with -.

    Memory derived from the message goes, and is derived again.  No copy of the old content is kept.
    """
    text = content.read().removesuffix("\n")
    if not text and not may_be_empty:
        raise click.UsageError(
            "CONTENT is empty, and no copy of the old content is kept. If that is meant, give --empty."
        )
    with opened_session(settings, session, namespace, user) as (memory, _):
        correction = memory.replace(seq, text, actor=actor, idempotency_key=key)
    return _output(correction, f"gave message {seq} other content")


@cli_command("fork", opened_session, ForkOut, short_help="Begin another session as a copy of one.")
@click.argument("session")
@click.argument("new", required=False)
@namespace_option
@user_option
@click.option("--through", type=click.IntRange(1), metavar="SEQ", help="The last message to take over.")
def fork_command(opened: OpenedSession, new: str | None, through: int | None) -> Output:
    """Begin the session NEW (default: a random name) of the same user with the messages of SESSION.

    Memory derived from them is taken over; nothing is extracted again.
    """
    memory, _ = opened
    fork = memory.fork(new, through_seq=through)
    line = f"session {fork.session_id} begins with {quantity(fork.messages, 'message')}"
    return Output(ForkOut.model_validate(fork), [line])


@cli_command(
    "delete", opened_session, DeletionReport, short_help="Delete a session's messages and what was derived."
)
@session_options
@click.option("--yes", is_flag=True, help="Delete; without it, only say what would be deleted.")
def delete_command(opened: OpenedSession, session: str, namespace: str, yes: bool) -> Output:
    """Delete the messages of SESSION and what was derived from them, as reset(derived=True) does.

    Its name stays with its owner.  Facts that people added or worded by hand stay.
    """
    memory, state = opened
    if yes:
        memory.reset(derived=True)
    messages = quantity(state.messages, "message")
    return Output(
        DeletionReport(namespace=namespace, session_id=session, messages=state.messages if yes else 0),
        [f"deleted {messages}" if yes else f"would delete {messages}, and what was derived: add --yes"],
    )


def _estimate(memory: Memory, from_seq: int) -> Output:
    # Page by page: a session may hold more messages than fit into memory.
    count, last = 0, from_seq - 1
    for message in memory.iterate(after_seq=last):
        count, last = count + 1, message.seq or last
    estimate = CorrectionReport(
        number=None,
        kind="rewind",
        from_seq=from_seq,
        through_seq=last,
        seqs=(),
        messages=count,
        created_at=None,
    )
    return Output(estimate, [f"would take back {quantity(count, 'message')}; nothing was changed"])


def _output(correction: Correction, what: str) -> Output:
    report = CorrectionReport.of(correction, messages=len(correction.seqs))
    return Output(report, [f"{what} (correction {correction.number})"])
