"""``strandline import``: puts existing chats in bulk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import click
from click.core import ParameterSource

from strandline.chat_import.file_lines import longest_line
from strandline.chat_import.history_import import HistoryImport, Target
from strandline.chat_import.lines_import import ChatImport, Whose, check_readable
from strandline.chat_import.own_export import OwnExport
from strandline.chat_import.records import HistorySource, Omission
from strandline.chat_import.sources import SourceName, open_source
from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import namespace_option, settings_alone
from strandline.cli.servers.targets import NOTHING_DERIVES, servers_for_once
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import say
from strandline.cli.terminal.progress import shown_progress
from strandline.producers.writing.validate import PutLimits
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError, InvalidMessageError
from strandline.schemas.private_files import open_private
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import check_name
from strandline.schemas.values.policy import DEFAULT_FLUSH_SIZE, DEFAULT_TOKEN_LIMIT, MAX_INTEGER
from strandline.schemas.values.same_named import make_from
from strandline.schemas.wire.work import ImportReport

# Of what could not be taken, so much is printed.
MAX_PRINTED_OMISSIONS = 10
# Sources of which a part is told in bytes, and not in rows.
EXPORTS = ("openai", "anthropic", "strandline")


def import_history(
    source: HistorySource, name: str, target: Target, *, is_dry: bool, omissions_file: Path | None
) -> ImportReport:
    """Import a source, or only read it.

    Raises: as ``HistoryImport.run``; ConfigurationError if ``omissions_file`` cannot be written.
    """
    with (
        _omissions(omissions_file) as omit,
        shown_progress("importing", "byte" if name in EXPORTS else "row") as show,
        ends_as_interrupts() as interrupts,
    ):
        chats = HistoryImport(
            source,
            target,
            is_dry=is_dry,
            report=lambda done: show(
                done.portion.done, done.portion.total, quantity(done.added + done.known, "message")
            ),
            omit=omit,
            check=interrupts.check,
        )
        try:
            done = chats.run()
        except KeyboardInterrupt:
            say(f"interrupted: {chats.describe_stored()}", err=True)
            raise
    return ImportReport.of(
        done,
        source=name,
        dry_run=is_dry,
        namespace=target.namespace,
        reasons=dict(chats.reasons.most_common()),
    )


@contextmanager
def _omissions(path: Path | None) -> Iterator[Callable[[Omission], None]]:
    printed = 0

    def tell(omission: Omission) -> None:
        nonlocal printed
        printed += 1
        if printed <= MAX_PRINTED_OMISSIONS:
            say(_sentence(omission), err=True)
        if file is not None:
            place = asdict(omission.place)
            fields = {name: place[name] for name in place if name != "name" or place[name]}
            fields |= {"reason": omission.reason}
            with _name_unwritable(file.name):
                file.write(json.dumps(fields) + "\n")

    file = None
    if path is not None:
        with _name_unwritable(str(path)):
            file = open_private(path, "w", encoding="utf-8")
    try:
        yield tell
    finally:
        if file is not None:
            with _name_unwritable(file.name):
                file.close()


@contextmanager
def _name_unwritable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{name} cannot be written: {error.strerror}.") from None


def _sentence(omission: Omission) -> str:
    place = omission.place
    part = f", {place.part}" if place.part else ""
    return f"{place.table}, row {place.row}{part}: {omission.reason}"


def import_lines(
    file: Path, whose: Whose, settings: Settings, options: Mapping[str, Any], *, is_dry: bool
) -> ImportReport:
    """Import the file, or only check it.

    Raises: as ``ChatImport.run``.
    """
    limits = make_from(PutLimits, settings)
    with shown_progress("importing", "byte") as show, ends_as_interrupts() as interrupts:
        chats = ChatImport(
            file,
            whose,
            max_line_bytes=longest_line(settings),
            options=options,
            report=lambda done: show(
                done.bytes_read, done.bytes_in_all, quantity(done.added + done.known, "message")
            ),
            check=interrupts.check,
            dry_limits=limits if is_dry else None,
        )
        try:
            done = chats.run()
        except KeyboardInterrupt:
            say(f"interrupted: {chats.describe_stored(perhaps_more=True)}", err=True)
            raise
    return ImportReport.of(done, source="jsonl", dry_run=is_dry, namespace=whose.namespace)


_TOKENS = click.IntRange(1, MAX_INTEGER)
_LINES, _TABLES = "jsonl", ("llamaindex", "agno")
_SOURCES = (_LINES, *_TABLES, *EXPORTS)
# Options that say something of one kind of source only.
_OF_LINES = ("session", "session_field", "user_field")


@cli_command("import", settings_alone, ImportReport)
@click.argument("source")
@click.option(
    "--from",
    "kind",
    type=click.Choice(_SOURCES),
    default=_LINES,
    show_default=True,
    help="What SOURCE holds: chat JSONL, tables of LlamaIndex or Agno, or an export of ChatGPT, Claude or"
    " Strandline.",
)
@click.option("--table", "tables", multiple=True, metavar="NAME", help="Read only this table; repeatable.")
@click.option(
    "--session", metavar="ID", help="Put all lines, or the one session of an export, into this one."
)
@click.option(
    "--session-field",
    metavar="FIELD",
    default="session_id",
    show_default=True,
    help="Or the field that has each line's session, such as metadata.session.",
)
@click.option("--user", metavar="ID", help="The user of sessions that name none.")
@click.option(
    "--map-user",
    "mapped_users",
    multiple=True,
    metavar="THEIRS=OURS",
    help="Import what SOURCE has of one user as another's; repeatable.",
)
@click.option(
    "--user-field",
    metavar="FIELD",
    default="user_id",
    show_default=True,
    help="Or the field that has each line's user, if any.",
)
@namespace_option
@click.option("--token-limit", type=_TOKENS, default=DEFAULT_TOKEN_LIMIT, show_default=True, metavar="N")
@click.option("--token-flush-size", type=_TOKENS, default=DEFAULT_FLUSH_SIZE, show_default=True, metavar="N")
@click.option(
    "--source-name",
    metavar="NAME",
    help="Tells SOURCE from another database whose rows have the same numbers; give it at each import of it.",
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Read and check everything, and put nothing.")
@click.option(
    "--left-out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what cannot be taken to this file, as JSON Lines with the reason.",
)
def command(
    settings: Settings,
    source: str,
    kind: str,
    tables: tuple[str, ...],
    session: str | None,
    session_field: str,
    user: str | None,
    mapped_users: tuple[str, ...],
    user_field: str,
    namespace: str,
    token_limit: int,
    token_flush_size: int,
    source_name: str | None,
    is_dry: bool,
    left_out: Path | None,
) -> Output:
    """Import the chats of SOURCE.

    Of JSONL that is a file with one message per line, as a JSON object with "role" and "content"; lines may
    have "id", "name", "created_at", "metadata". Of tables it is the URL of their database, or a SQLite file.
    Of an export it is the zip as it was sent, its folder, or conversations.json.

    The newest messages of a session stay in its window; earlier ones are delivered to the pipelines. If an
    import is interrupted, run it again: messages that are already there are skipped.
    """
    _refuse_both("session", "session_field")
    _refuse_both("user", "user_field")
    _refuse_unused(kind)
    users = _read_mapped(mapped_users)
    # Before the servers, so that a wrong name or number does not make a database.
    _check_names(
        {"--session": session, "--user": user, "--namespace": namespace, "--source-name": source_name}
    )
    limits = {"token_limit": token_limit, "token_flush_size": token_flush_size}
    if kind == _LINES:
        check_readable(Path(source))
        whose = Whose(session, session_field, user, user_field, namespace)
        with _servers(settings, is_dry=is_dry) as (is_alone, urls):
            report = import_lines(Path(source), whose, settings, limits | urls, is_dry=is_dry)
    else:
        if kind == "strandline":
            history: HistorySource = OwnExport(Path(source), longest_line(settings), session)
        else:
            history = open_source(cast(SourceName, kind), source, tables)
        put_limits = make_from(PutLimits, settings)
        with _servers(settings, is_dry=is_dry) as (is_alone, urls):
            into = Target(put_limits, namespace, user, users, limits | urls, source_name or "")
            report = import_history(history, kind, into, is_dry=is_dry, omissions_file=left_out)
    if report.events and is_alone:
        say(NOTHING_DERIVES, err=True)
    failed = report.left_out > 0 and not _has_taken(report)
    return Output(report, _summary(report, source), code=int(failed))


@contextmanager
def _servers(settings: Settings, *, is_dry: bool) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Whether no worker runs, and the options for ``Memory``; none for a dry run, which looks at nothing."""
    if is_dry:
        yield False, {}
        return
    with servers_for_once(settings, create=True) as servers:
        yield (
            servers.alone,
            {
                "database_url": servers.database_url,
                "broker_url": servers.broker_url,
                "schema": settings.database_schema,
            },
        )


def _refuse_both(fixed: str, field: str) -> None:
    """Refuse a fixed name together with a field to read it from: one of them would be ignored."""
    if click.get_current_context().params[fixed] is not None and _is_given(field):
        raise click.UsageError(f"--{fixed} excludes --{field.replace('_', '-')}.")


def _refuse_unused(kind: str) -> None:
    taken = {_LINES: _OF_LINES, "strandline": ("session",)}.get(kind, ())
    unused = [name for name in _OF_LINES if name not in taken and _is_given(name)]
    unused += [] if kind in _TABLES else [name for name in ("tables",) if _is_given(name)]
    unused += [
        name for name in ("left_out", "mapped_users", "source_name") if kind == _LINES and _is_given(name)
    ]
    if unused:
        option = {"tables": "table", "mapped_users": "map-user"}.get(unused[0], unused[0]).replace("_", "-")
        raise click.UsageError(f"--{option} does not apply to --from {kind}.")


def _is_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _read_mapped(pairs: tuple[str, ...]) -> dict[str, str]:
    users = {}
    for pair in pairs:
        theirs, separator, ours = pair.rpartition("=")
        if not (theirs and separator and ours):
            raise click.BadParameter("must be THEIRS=OURS.", param_hint="'--map-user'")
        _check_names({"--map-user": ours})
        users[theirs] = ours
    return users


def _check_names(names: Mapping[str, str | None]) -> None:
    for option, name in names.items():
        try:
            check_name("", "-" if name is None else name)
        except InvalidMessageError as error:
            raise click.BadParameter(str(error).removeprefix(": "), param_hint=repr(option)) from None


def _has_taken(report: ImportReport) -> bool:
    return any((report.added, report.known, report.facts_added, report.facts_known))


def _summary(report: ImportReport, source: str) -> Iterator[str]:
    if not _has_taken(report) and report.left_out:
        other = " Or is it of another system? `--from` says of which." if report.source in EXPORTS else ""
        yield f"nothing of {source} could be taken.{other}"
    elif not _has_taken(report):
        yield (
            f"{source} holds no messages" if report.source == _LINES else f"{source} holds nothing to import"
        )
    elif report.dry_run:
        facts = f" and {quantity(report.facts_added, 'fact')}" if report.facts_added else ""
        sessions = quantity(report.sessions, "session")
        yield f"{quantity(report.added, 'message')}{facts} of {sessions} can be imported"
    else:
        yield _added_line(report)
    if report.left_out:
        yield f"{quantity(report.left_out, 'place')} could not be taken, or only in part:"
        reasons = list(report.reasons.items())
        yield from (f"  {number:,} × {reason}" for reason, number in reasons[:MAX_PRINTED_OMISSIONS])
        if len(reasons) > MAX_PRINTED_OMISSIONS:
            yield "  and more, all with --left-out FILE"


def _added_line(report: ImportReport) -> str:
    there = (
        f", {report.known:,} {'was' if report.known == 1 else 'were'} there already" if report.known else ""
    )
    facts = (
        f"; {quantity(report.facts_added, 'fact')} added" if report.facts_added or report.facts_known else ""
    )
    known = f", {report.facts_known:,} known" if report.facts_known else ""
    return (
        f"{quantity(report.added, 'message')} added{there}; {quantity(report.sessions, 'session')},"
        f" {quantity(report.events, 'flush event')} for the workers{facts}{known}"
    )
