"""``strandline import``: put existing chats in bulk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from strandline.chat_import.chat_import import ChatImport, Progress, Whose, check_readable
from strandline.chat_import.file_lines import longest_line
from strandline.cli.reports.work import ImportReport
from strandline.cli.servers.options import as_json, settings_from, target_options
from strandline.cli.servers.targets import NOTHING_DERIVES, servers_for_once
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import console, is_rich, print_json, say
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.values.identity import DEFAULT_NAMESPACE, check_name
from strandline.schemas.values.policy import DEFAULT_FLUSH_SIZE, DEFAULT_TOKEN_LIMIT, MAX_INTEGER

LINE_EVERY_BYTES = 50_000_000
_TOKENS = click.IntRange(1, MAX_INTEGER)


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--session", metavar="ID", help="Put all lines into this session.")
@click.option(
    "--session-field",
    metavar="FIELD",
    default="session_id",
    show_default=True,
    help="Or the field that has each line's session, such as metadata.session.",
)
@click.option("--user", metavar="ID", help="The user of the sessions.")
@click.option(
    "--user-field",
    metavar="FIELD",
    default="user_id",
    show_default=True,
    help="Or the field that has each line's user, if any.",
)
@click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True)
@click.option("--token-limit", type=_TOKENS, default=DEFAULT_TOKEN_LIMIT, show_default=True, metavar="N")
@click.option("--token-flush-size", type=_TOKENS, default=DEFAULT_FLUSH_SIZE, show_default=True, metavar="N")
@as_json
@target_options
def command(
    file: Path,
    session: str | None,
    session_field: str,
    user: str | None,
    user_field: str,
    namespace: str,
    token_limit: int,
    token_flush_size: int,
    as_json: bool,
    database_url: str | None,
    broker_url: str | None,
    schema: str | None,
) -> int:
    """Import the chats of FILE: one message per line, as a JSON object with "role" and "content".

    The newest messages of a session stay in its window; earlier ones are delivered to the pipelines. Lines
    may have "id", "name", "created_at", "metadata". If an import is interrupted, run it again: messages that
    are already there are skipped.
    """
    _refuse_both("session", "session_field")
    _refuse_both("user", "user_field")
    settings = settings_from(database_url, broker_url, schema)
    # Before the servers, so that a wrong name or number does not make a database.
    _check_names({"--session": session, "--user": user, "--namespace": namespace})
    check_readable(file)
    whose = Whose(session, session_field, user, user_field, namespace)
    with servers_for_once(settings, create=True) as servers, _progress() as report:
        options = {
            "token_limit": token_limit,
            "token_flush_size": token_flush_size,
            "database_url": servers.database_url,
            "broker_url": servers.broker_url,
            "schema": settings.database_schema,
        }
        done = _run(file, whose, options, report, longest_line(settings))
    if as_json:
        print_json(
            ImportReport(
                namespace=namespace,
                sessions=done.sessions,
                added=done.added,
                known=done.known,
                events=done.events,
            )
        )
    else:
        say(_summary_line(done) if done.added + done.known else f"{file} holds no messages")
    if done.events and servers.alone:
        say(NOTHING_DERIVES, err=True)
    return 0


def _refuse_both(fixed: str, field: str) -> None:
    """Refuse a fixed name together with a field to read it from: one of them would be ignored."""
    context = click.get_current_context()
    source = context.get_parameter_source(field)
    if context.params[fixed] is not None and source is ParameterSource.COMMANDLINE:
        raise click.UsageError(f"--{fixed} excludes --{field.replace('_', '-')}.")


def _check_names(names: Mapping[str, str | None]) -> None:
    for option, name in names.items():
        try:
            check_name("", "-" if name is None else name)
        except InvalidMessageError as error:
            raise click.BadParameter(str(error).removeprefix(": "), param_hint=repr(option)) from None


def _run(
    file: Path,
    whose: Whose,
    options: Mapping[str, Any],
    report: Callable[[Progress], None],
    max_line_bytes: int,
) -> Progress:
    with ends_as_interrupts() as interrupts:
        chats = ChatImport(
            file,
            whose,
            max_line_bytes=max_line_bytes,
            options=options,
            report=report,
            check=interrupts.check,
        )
        try:
            return chats.run()
        except KeyboardInterrupt:
            say(f"interrupted: {chats.describe_stored(perhaps_more=True)}", err=True)
            raise


def _summary_line(done: Progress) -> str:
    there = f", {done.known:,} {'was' if done.known == 1 else 'were'} there already" if done.known else ""
    return (
        f"{quantity(done.added, 'message')} added{there}; {quantity(done.sessions, 'session')},"
        f" {quantity(done.events, 'flush event')} for the workers"
    )


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal; a line now and then elsewhere."""
    if not is_rich(stderr=True):
        yield _lines()
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("importing", total=None)
        yield lambda done: bar.update(
            task,
            total=done.bytes_in_all,
            completed=done.bytes_read,
            description=quantity(done.added + done.known, "message"),
        )


def _lines() -> Callable[[Progress], None]:
    reported_bytes = 0

    def tell(done: Progress) -> None:
        nonlocal reported_bytes
        if done.bytes_read >= reported_bytes + LINE_EVERY_BYTES:
            reported_bytes = done.bytes_read
            share = 100 * done.bytes_read // max(1, done.bytes_in_all)
            say(f"{share} %: {quantity(done.added + done.known, 'message')}", err=True)

    return tell
