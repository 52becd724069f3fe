"""``strandline sessions rewind``, ``replace``, ``fork`` and ``delete``."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TextIO

import click

from strandline.cli.servers.memories import opened_session
from strandline.cli.servers.options import (
    json_options,
    namespace_option,
    settings_from,
    target_options,
)
from strandline.cli.terminal.output import print_json, say, show
from strandline.memory import Memory
from strandline.producers.writing.correcting.correct import Correction
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.wire.report import Report

_user_option = click.option("--user", metavar="ID", help="The user that must own it; default: any.")
_actor_option = click.option("--actor", metavar="NAME", help="Your name; it is stored with the correction.")
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
    """A session whose messages were deleted, with what was derived from them."""

    namespace: str
    session_id: str
    messages: int


@click.command("rewind", short_help="Take back a session's messages from one on.")
@click.argument("session")
@click.argument("from_seq", type=click.IntRange(1))
@namespace_option
@_user_option
@_actor_option
@_key_option
@click.option("--dry-run", "is_dry", is_flag=True, help="Only say how many messages it would take back.")
@json_options(CorrectionReport)
@target_options
def rewind_command(
    session: str,
    from_seq: int,
    namespace: str,
    user: str | None,
    actor: str | None,
    key: str | None,
    is_dry: bool,
    as_json: bool,
    **target: Any,
) -> int:
    """Take back the messages of SESSION from number FROM_SEQ on, with what was derived from them.

    No copy of them is kept.
    """
    settings = settings_from(**target)
    with opened_session(settings, session, namespace=namespace, user_id=user) as (memory, _):
        if is_dry:
            return _show_estimate(memory, from_seq, as_json=as_json)
        correction = memory.rewind(from_seq, actor=actor, idempotency_key=key)
    return _show(correction, f"took back {quantity(len(correction.seqs), 'message')}", as_json=as_json)


@click.command("replace", short_help="Give a session's message other content.")
@click.argument("session")
@click.argument("seq", type=click.IntRange(1))
@click.argument("content", type=click.File(encoding="utf-8"))
@namespace_option
@_user_option
@_actor_option
@_key_option
@click.option("--empty", "may_be_empty", is_flag=True, help="Let the message have no content any more.")
@json_options(CorrectionReport)
@target_options
def replace_command(
    session: str,
    seq: int,
    content: TextIO,
    namespace: str,
    user: str | None,
    actor: str | None,
    key: str | None,
    may_be_empty: bool,
    as_json: bool,
    **target: Any,
) -> int:
    """Give message SEQ of SESSION other content: the text of the file CONTENT, or of the input with -.

    Memory derived from the message goes, and is derived again.  No copy of the old content is kept.
    """
    text = content.read().removesuffix("\n")
    if not text and not may_be_empty:
        raise click.UsageError(
            "CONTENT is empty, and no copy of the old content is kept. If that is meant, give --empty."
        )
    settings = settings_from(**target)
    with opened_session(settings, session, namespace=namespace, user_id=user) as (memory, _):
        correction = memory.replace(seq, text, actor=actor, idempotency_key=key)
    return _show(correction, f"gave message {seq} other content", as_json=as_json)


class ForkReport(Report):
    """A session that began as a copy of another."""

    session_id: str
    through_seq: int
    messages: int


@click.command("fork", short_help="Begin another session as a copy of one.")
@click.argument("session")
@click.argument("new", required=False)
@namespace_option
@_user_option
@click.option("--through", type=click.IntRange(1), metavar="SEQ", help="The last message to take over.")
@json_options(ForkReport)
@target_options
def fork_command(
    session: str,
    new: str | None,
    namespace: str,
    user: str | None,
    through: int | None,
    as_json: bool,
    **target: Any,
) -> None:
    """Begin the session NEW (default: a random name) of the same user with the messages of SESSION.

    Memory derived from them is taken over; nothing is extracted again.
    """
    settings = settings_from(**target)
    with opened_session(settings, session, namespace=namespace, user_id=user) as (memory, _):
        fork = memory.fork(new, through_seq=through)
    show(
        ForkReport(session_id=fork.session_id, through_seq=fork.through_seq, messages=fork.messages),
        [f"session {fork.session_id} begins with {quantity(fork.messages, 'message')}"],
        as_json=as_json,
    )


@click.command("delete", short_help="Delete a session's messages and what was derived.")
@click.argument("session")
@namespace_option
@_user_option
@click.option("--yes", is_flag=True, help="Delete; without it, only say what would be deleted.")
@json_options(DeletionReport)
@target_options
def delete_command(
    session: str,
    namespace: str,
    user: str | None,
    yes: bool,
    as_json: bool,
    **target: Any,
) -> None:
    """Delete the messages of SESSION and what was derived from them, as reset(derived=True) does.

    Its name stays with its owner.  Facts that people added or worded by hand stay.
    """
    settings = settings_from(**target)
    with opened_session(settings, session, namespace=namespace, user_id=user) as (memory, state):
        if yes:
            memory.reset(derived=True)
    if as_json:
        deleted = state.messages if yes else 0
        print_json(DeletionReport(namespace=namespace, session_id=session, messages=deleted))
        return
    messages = quantity(state.messages, "message")
    say(f"deleted {messages}" if yes else f"would delete {messages}, and what was derived: add --yes")


def _show_estimate(memory: Memory, from_seq: int, *, as_json: bool) -> int:
    # Page by page: a session may hold more messages than fit into memory.
    count, last = 0, from_seq - 1
    for message in memory.iterate(after_seq=last):
        count, last = count + 1, message.seq or last
    if as_json:
        estimate = CorrectionReport(
            number=None,
            kind="rewind",
            from_seq=from_seq,
            through_seq=last,
            seqs=(),
            messages=count,
            created_at=None,
        )
        print_json(estimate)
    else:
        say(f"would take back {quantity(count, 'message')}; nothing was changed")
    return 0


def _show(correction: Correction, what: str, *, as_json: bool) -> int:
    show(
        CorrectionReport.of(correction, messages=len(correction.seqs)),
        [f"{what} (correction {correction.number})"],
        as_json=as_json,
    )
    return 0
