"""``strandline audit``: who did what, what is recorded, and the proof that nothing of it was changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from strandline.cli.audit.listing import TIME_FORMATS, export_command, list_command, show_command
from strandline.cli.audit.opening import opened_audit
from strandline.cli.audit.reports import (
    AnchorReport,
    LevelReport,
    LevelsReport,
    PruningReport,
    TrailsReport,
    report_anchor,
    report_trail,
)
from strandline.cli.servers.names import ANYWAY, check_to_be_read, even_if_unknown_option
from strandline.cli.servers.options import (
    json_options,
    namespace_option,
    settings_from,
    target_options,
)
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.output import print_json, print_json_line, say
from strandline.pipelines.audit.anchors import Anchor, read_anchors
from strandline.pipelines.audit.findings import TrailVerification
from strandline.pipelines.audit.keys import keys_of
from strandline.pipelines.audit.listing import audited_namespaces
from strandline.pipelines.audit.trails import anchor_trails, find_trails, verify_trails
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.acts.kinds import LEVELS, AuditLevel
from strandline.schemas.values.identity import DEFAULT_NAMESPACE


@click.group("audit")
def command() -> None:
    """Who did what, from where and when: list it, prove that nothing was changed, set what is recorded."""


command.add_command(list_command)
command.add_command(show_command)
command.add_command(export_command)


@command.command("level", short_help="Show or set what is recorded.")
@click.argument("level", required=False, type=click.Choice(LEVELS))
@click.option(
    "--namespace", metavar="NAME", help="The namespace; to set a level, `default` if none is given."
)
@even_if_unknown_option
@json_options(LevelsReport)
@target_options
def level_command(
    level: AuditLevel | None,
    namespace: str | None,
    even_if_unknown: bool,
    as_json: bool,
    **target: Any,
) -> None:
    """Show the level of a namespace, or of all that have one or a trail; with LEVEL, set it.

    `changes`, the default, records what alters memory or takes it away; `all` also puts and reads; `off`
    nothing. A change holds for puts and changes at once, for reads within five seconds, and is recorded.
    """
    settings = settings_from(**target)
    if level is not None:
        with opened_audit(
            settings, namespace or DEFAULT_NAMESPACE, even_if_unknown=even_if_unknown, otherwise=ANYWAY
        ) as audit:
            is_new = audit.set_level(level)
        if not as_json:
            say(f"{audit.namespace}: {level}" if is_new else f"{audit.namespace}: {level} already")
            return
    with opened_database(settings) as database:
        check_to_be_read(database, namespace)
        reports = _levels(database, namespace)
    if as_json:
        print_json(LevelsReport(namespaces=reports))
        return
    for one in reports:
        chain = f"{quantity(one.entries, 'entry', 'entries')} in {quantity(one.seals, 'seal')}"
        pruned = f", {one.pruned_seals:,} of these pruned" if one.pruned_seals else ""
        say(f"{one.namespace}: {one.level}; {chain}{pruned}")
    if not reports:
        say("every namespace has the level `changes`, and nothing is sealed yet")


@command.command("verify", short_help="Prove that sealed entries are as they were sealed.")
@click.option("--namespace", metavar="NAME", help="One namespace; default: all that have a trail.")
@click.option(
    "--anchors",
    "anchor_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Anchors kept outside (`audit anchors --json`): the chain has to hold each of them.",
)
@json_options(TrailsReport)
@target_options
def verify_command(namespace: str | None, anchor_file: Path | None, as_json: bool, **target: Any) -> int:
    """Verify the trail, and name each entry that was changed, removed, inserted or put at another place.

    The exit code is 1 if there are findings. Entries of the last second or so have no seal yet, and nothing
    is proven of them, nor that an act that was recorded was done. A person who has the key of the seals and
    may write to the tables can make the chain again: only anchors that were kept outside show that, or that
    the end of the chain was cut off.
    """
    settings = settings_from(**target)
    anchors = [] if anchor_file is None else _read_anchor_file(anchor_file)
    with opened_database(settings) as database:
        if not anchors:
            check_to_be_read(database, namespace)
        results = database.run(verify_trails(keys_of(settings), anchors, namespace))
    if as_json:
        print_json(TrailsReport(trails=[report_trail(result) for result in results]))
    else:
        _print_results(results, settings, anchor_file)
    return 0 if all(result.is_sound for result in results) else 1


@command.command("anchors", short_help="Print the ends of the chains, to be kept outside.")
@click.option("--namespace", metavar="NAME", help="One namespace; default: all that have a trail.")
@json_options(AnchorReport)
@target_options
def anchors_command(namespace: str | None, as_json: bool, **target: Any) -> int:
    """Print the end of each chain, a line each; with --json as `audit verify --anchors` reads them.

    The exit code is 1 if a chain stands under a key of no namespace, so that it has no anchor.

    Keep them where who may write to the database cannot: a chain that was made again, or cut off, does not
    hold them. STRANDLINE_AUDIT_ANCHORS_FILE has workers append them to a file by themselves.
    """
    with opened_database(settings_from(**target)) as database:
        check_to_be_read(database, namespace)
        names, unknown = database.run(find_trails()) if namespace is None else ({namespace}, ())
        anchors = database.run(anchor_trails(sorted(names)))
    for anchor in sorted(anchors, key=lambda one: one.namespace):
        if as_json:
            print_json_line(report_anchor(anchor).model_dump_json())
        else:
            time = f"{anchor.sealed_at:%Y-%m-%d %H:%M:%S}"
            say(f"{anchor.namespace}: seal {anchor.seal} of {time}, {anchor.mac}")
    if unknown:
        say("A trail stands under a key of no namespace; `strandline audit verify` names it.", err=True)
    return 1 if unknown else 0


@command.command("prune", short_help="Delete old entries, in whole seals.")
@namespace_option
@click.option(
    "--before",
    type=click.DateTime(),
    required=True,
    metavar="TIME",
    help=f"Entries that were sealed before. {TIME_FORMATS}",
)
@click.option("--yes", is_flag=True, help="Delete them; without --yes, only count them.")
@json_options(PruningReport)
@target_options
def prune_command(namespace: str, before: datetime, yes: bool, as_json: bool, **target: Any) -> None:
    """Delete the entries of all seals that were made before a time, from the beginning of the chain.

    The rest can still be verified: the last pruned seal stays, without its entries. The pruning is itself an
    act in the trail.
    """
    moment = before.replace(tzinfo=UTC)
    if moment > datetime.now(UTC):
        raise ConfigurationError(
            f"--before {moment:%Y-%m-%d %H:%M:%S} (UTC) is yet to come; name a time that is past."
        )
    with opened_audit(settings_from(**target), namespace) as audit:
        done = audit.prune(moment) if yes else audit.plan_pruning(moment)
    if as_json:
        print_json(
            PruningReport(
                namespace=namespace, entries=done.entries, through_seal=done.through_seal, dry_run=not yes
            )
        )
        return
    entries = quantity(done.entries, "entry", "entries")
    if yes:
        say(f"{namespace}: deleted {entries}, up to seal {done.through_seal}")
    elif done.entries:
        say(f"{namespace}: would delete {entries}, up to seal {done.through_seal}; add --yes to do it")
    else:
        say(f"{namespace}: nothing that can be pruned was sealed before {moment:%Y-%m-%d %H:%M:%S} UTC")


def _levels(database: Database, namespace: str | None) -> list[LevelReport]:
    return [LevelReport.of(row) for row in database.run(audited_namespaces(namespace))]


def _read_anchor_file(path: Path) -> list[Anchor]:
    try:
        return read_anchors(path.read_text(encoding="utf-8").splitlines(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {type(error).__name__}.") from None


def _print_results(
    results: Sequence[TrailVerification], settings: Settings, anchor_file: Path | None
) -> None:
    for result in results:
        say(_summary(result))
        say(*(f"  {one}" for one in result.findings))
    if not results:
        say("no namespace has a trail yet")
    if any(result.unkeyed_seals for result in results):
        has_key = settings.audit_key is not None or settings.audit_key_file is not None
        say(
            "seals from before there was a key prove nothing beyond the last anchor that holds them"
            if has_key
            else "seals without a key prove little: set STRANDLINE_AUDIT_KEY or STRANDLINE_AUDIT_KEY_FILE,"
            " for workers as well",
            err=True,
        )
    if anchor_file is None and results and settings.audit_anchors_file is None:
        say(
            "no anchors were compared: that the end of a chain was not cut off is not proven"
            " (`strandline audit anchors`)",
            err=True,
        )


def _summary(result: TrailVerification) -> str:
    state = "sound" if result.is_sound else quantity(len(result.findings), "finding")
    extent = f"{quantity(result.entries, 'entry', 'entries')} in {quantity(result.seals, 'seal')}"
    more = [
        f"{quantity(result.pruned_seals, 'seal')} pruned before" if result.pruned_seals else "",
        f"{quantity(result.anchors, 'anchor')} held" if result.anchors else "",
        f"{quantity(result.pruned_anchors, 'anchor')} of pruned seals" if result.pruned_anchors else "",
        f"{result.unsealed:,} not sealed yet" if result.unsealed else "",
    ]
    return ", ".join([f"{result.namespace}: {state}; {extent}", *(part for part in more if part)])
