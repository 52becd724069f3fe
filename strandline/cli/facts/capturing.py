"""``strandline facts capture``: what a namespace or an owner has captured as facts, shown and set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from strandline.cli.reports.memory import CaptureActReport, CaptureReport
from strandline.cli.servers.memories import opened_facts
from strandline.cli.servers.options import json_options, namespace_option, settings_from
from strandline.cli.servers.options import target_options as targets
from strandline.cli.servers.targets import servers_for_once
from strandline.cli.terminal.output import show
from strandline.facts import Facts
from strandline.producers.facts.capturing import CaptureAct
from strandline.producers.owner_facts import CaptureFace
from strandline.schemas.display.shown_text import time_text
from strandline.schemas.settings import Settings
from strandline.schemas.values.acts.capture import MAX_INSTRUCTIONS_CHARACTERS, Capture

_OPERATIONS = ("add", "update", "delete")


@click.command("capture", short_help="Show or set what is captured as facts.")
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
@click.option(
    "--instructions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="What to keep, in place of what the prompt says.",
)
@click.option(
    "--more-instructions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Further instructions, beside those on what to keep.",
)
@click.option(
    "--summary-instructions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="How to write summaries, in place of what the prompt says.",
)
@click.option("--actor", metavar="NAME", help="The name stored with the act.")
@json_options(CaptureReport)
@targets
def capture_command(
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
    as_json: bool,
    **target: Any,
) -> None:
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
    with _open_face(settings_from(**target), namespace, user, session) as face:
        if is_set:
            add, update, delete = (name in on if name in on + off else None for name in _OPERATIONS)
            capture = Capture(add, update, delete, *map(_read, files))
            face.set_capture(capture, actor=actor)
        applied, acts = face.get_capture(), face.capture_acts()
    report = CaptureReport(
        namespace=namespace,
        user_id=user,
        session_id=session,
        **asdict(applied),
        acts=[_report(act) for act in acts],
    )
    show(report, _lines(applied, acts), as_json=as_json)


@contextmanager
def _open_face(
    settings: Settings, namespace: str, user: str | None, session: str | None
) -> Iterator[CaptureFace]:
    if user is not None or session is not None:
        with opened_facts(settings, namespace=namespace, user_id=user, session_id=session) as facts:
            yield facts
        return
    with servers_for_once(settings) as servers:
        namespace_facts = Facts.of_namespace(
            namespace, database_url=servers.database_url, schema=settings.database_schema
        )
        with closing(namespace_facts):
            yield namespace_facts


def _read(path: Path | None) -> str | None:
    """A file's text; no more of it than shows that it is too long."""
    if path is None:
        return None
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_INSTRUCTIONS_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError):
        raise click.UsageError(f"{path} cannot be read as UTF-8 text.") from None


def _report(act: CaptureAct) -> CaptureActReport:
    return CaptureActReport(
        number=act.number, actor=act.actor, created_at=act.created_at, **asdict(act.capture)
    )


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
