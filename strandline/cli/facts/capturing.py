"""``strandline facts capture``: the capture of a namespace or an owner, shown and set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.reports import CaptureActReport, CaptureReport
from strandline.cli.servers.memories import opened_facts
from strandline.cli.servers.options import Command, actor_option, namespace_option, settings_alone
from strandline.cli.servers.targets import opened_servers
from strandline.facts import Facts
from strandline.producers.facts.capturing import CaptureAct
from strandline.producers.owner_facts import CaptureFace
from strandline.schemas.display.shown_text import time_text
from strandline.schemas.settings import Settings
from strandline.schemas.values.acts.capture import MAX_INSTRUCTIONS_CHARACTERS, Capture

_OPERATIONS = ("add", "update", "delete")


def _file_option(name: str, help_text: str) -> Callable[[Command], Command]:
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option(name, type=file, metavar="FILE", help=help_text)


@cli_command("capture", settings_alone, CaptureReport, short_help="Show or set what is captured as facts.")
@namespace_option
@click.option("--user", metavar="ID", help="Of this user; without --user and --session, of the namespace.")
@click.option("--session", metavar="ID", help="Of the owner of this session, which has no user.")
@click.option("--set", "is_set", is_flag=True, help="Record an act that asks for what the options below say.")
@click.option(
    "--on", "on", type=click.Choice(_OPERATIONS), multiple=True, help="Switch an operation on; repeatable."
)
@click.option(
    "--off", "off", type=click.Choice(_OPERATIONS), multiple=True, help="Switch an operation off; repeatable."
)
@_file_option("--instructions", "What to keep, in place of what the prompt says.")
@_file_option("--more-instructions", "Further instructions, beside those on what to keep.")
@_file_option("--summary-instructions", "How to write summaries, in place of what the prompt says.")
@actor_option
def capture_command(
    settings: Settings,
    namespace: str,
    user: str | None,
    session: str | None,
    is_set: bool,
    on: tuple[str, ...],
    off: tuple[str, ...],
    instructions: Path | None,
    more_instructions: Path | None,
    summary_instructions: Path | None,
    actor: str | None,
) -> Output:
    """Show the choice of a namespace or an owner on capturing facts, and all acts; --set records an act.

    An act is the whole choice of its level, and applies to what is flushed from then on. A choice that it
    leaves open is the namespace's, and then the prompt's; `--set` alone leaves everything open.
    """
    files = (instructions, more_instructions, summary_instructions)
    options = (on, off, *files, actor)
    if any(options) and not is_set:
        raise click.UsageError("Nothing would be set. Add --set to record an act.")
    if both := set(on) & set(off):
        raise click.UsageError(f"--on and --off both name {', '.join(sorted(both))}. Choose one of the two.")
    with _open_face(settings, namespace, user, session) as face:
        if is_set:
            add, update, delete = (name in on if name in on + off else None for name in _OPERATIONS)
            capture = Capture(add, update, delete, *map(_read, files))
            face.set_capture(capture, actor=actor)
        applied, acts = face.get_capture(), face.capture_acts()
    acts_done = [
        CaptureActReport(number=act.number, actor=act.actor, created_at=act.created_at, **asdict(act.capture))
        for act in acts
    ]
    report = CaptureReport(
        namespace=namespace, user_id=user, session_id=session, acts=acts_done, **asdict(applied)
    )
    return Output(report, _lines(applied, acts))


@contextmanager
def _open_face(
    settings: Settings, namespace: str, user: str | None, session: str | None
) -> Iterator[CaptureFace]:
    if user is not None or session is not None:
        with opened_facts(settings, namespace, user, session) as facts:
            yield facts
        return
    with (
        opened_servers(settings) as running,
        closing(Facts.of_namespace(namespace, **running.urls)) as facts_of_all,
    ):
        yield facts_of_all


def _read(path: Path | None) -> str | None:
    """A file's text, read only far enough to tell that it is too long."""
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_INSTRUCTIONS_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError):
        raise click.UsageError(f"{path} cannot be read as UTF-8 text.") from None


def _lines(applied: Capture, acts: list[CaptureAct]) -> Iterator[str]:
    for name in _OPERATIONS:
        is_off = getattr(applied, f"may_{name}") is False
        yield f"{name}: {'off' if is_off else 'on'}"
    yield f"instructions: {applied.instructions or 'those of the prompt'}"
    yield f"more instructions: {applied.more_instructions or 'none'}"
    yield f"summaries: {applied.summary_instructions or 'as the prompt says'}"
    for act in acts:
        at = time_text(act.created_at)
        yield f"act {act.number}, {at}, by {act.actor or 'an operator'}: {act.capture.to_json()}"
