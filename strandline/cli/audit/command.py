"""``strandline audit``: acts and their actors, the recorded level, and the proof of integrity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from strandline.cli.audit.listing import (
    TIME_FORMATS,
    export_command,
    list_command,
    opened_audit,
    show_command,
)
from strandline.cli.audit.reports import (
    AnchorReport,
    LevelReport,
    LevelsReport,
    PruningReport,
    TrailsReport,
)
from strandline.cli.command import Output, cli_command
from strandline.cli.servers.names import ANYWAY, check_to_be_read, even_if_unknown_option
from strandline.cli.servers.options import namespace_option, settings_alone
from strandline.cli.servers.targets import opened_database
from strandline.cli.terminal.numbers import UtcTime
from strandline.cli.terminal.output import print_json_line, say
from strandline.pipelines.audit.anchors import Anchor, read_anchors
from strandline.pipelines.audit.keys import keys_of
from strandline.pipelines.audit.listing import audited_namespaces
from strandline.pipelines.audit.verifying import TrailVerification, anchor_trails, find_trails, verify_trails
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.acts.kinds import LEVELS, AuditLevel
from strandline.schemas.values.identity import DEFAULT_NAMESPACE


@cli_command("level", settings_alone, LevelsReport, short_help="Show or set what is recorded.")
@click.argument("level", required=False, type=click.Choice(LEVELS))
@click.option(
    "--namespace", metavar="NAME", help="The namespace; to set a level, `default` if none is given."
)
@even_if_unknown_option
def level_command(
    settings: Settings, level: AuditLevel | None, namespace: str | None, even_if_unknown: bool
) -> Output:
    """Show the level of a namespace, or of all that have one or a trail; with LEVEL, set it.

    `changes`, the default, records what alters memory or takes it away; `all` also puts and reads; `off`
    nothing. A change holds for puts and changes at once, for reads within five seconds, and is recorded.
    """
    now_set = []
    if level is not None:
        named = namespace or DEFAULT_NAMESPACE
        with opened_audit(settings, named, even_if_unknown, otherwise=ANYWAY) as audit:
            now_set = [f"{named}: {level}" if audit.set_level(level) else f"{named}: {level} already"]
    with opened_database(settings) as database:
        if level is None:
            check_to_be_read(database, namespace)
        levels = [LevelReport.of(row) for row in database.run(audited_namespaces(namespace))]
    return Output(LevelsReport(namespaces=levels), now_set or _level_lines(levels))


def _level_lines(levels: Sequence[LevelReport]) -> Iterator[str]:
    for one in levels:
        chain = f"{quantity(one.entries, 'entry', 'entries')} in {quantity(one.seals, 'seal')}"
        pruned = f", {one.pruned_seals:,} of these pruned" if one.pruned_seals else ""
        yield f"{one.namespace}: {one.level}; {chain}{pruned}"
    if not levels:
        yield "every namespace has the level `changes`, and nothing is sealed yet"


@cli_command(
    "verify", settings_alone, TrailsReport, short_help="Prove that sealed entries are as they were sealed."
)
@click.option("--namespace", metavar="NAME", help="One namespace; default: all that have a trail.")
@click.option(
    "--anchors",
    "anchor_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Anchors kept outside (`audit anchors --json`): the chain has to hold each of them.",
)
def verify_command(settings: Settings, namespace: str | None, anchor_file: Path | None) -> Output:
    """Verify the trail, and name each entry that was changed, removed, inserted or put at another place.

    The exit code is 1 if there are findings. Entries of the last second or so have no seal yet, and nothing
    is proven of them, nor that an act that was recorded was done. A person who has the key of the seals and
    may write to the tables can make the chain again: only anchors that were kept outside show that, or that
    the end of the chain was cut off.
    """
    anchors = [] if anchor_file is None else _read_anchor_file(anchor_file)
    with opened_database(settings) as database:
        if not anchors:
            check_to_be_read(database, namespace)
        results = database.run(verify_trails(keys_of(settings), anchors, namespace))
    report = TrailsReport.of(trails=results)
    is_sound = all(result.is_sound for result in results)
    return Output(report, _lines(results), 0 if is_sound else 1, _notes(results, settings, anchor_file))


@cli_command(
    "anchors", opened_database, AnchorReport, short_help="Print the ends of the chains, to be kept outside."
)
@click.option("--namespace", metavar="NAME", help="One namespace; default: all that have a trail.")
def anchors_command(database: Database, namespace: str | None, as_json: bool) -> int:
    """Print the end of each chain, a line each; with --json as `audit verify --anchors` reads them.

    The exit code is 1 if a chain stands under a key of no namespace, so that it has no anchor.

    Keep them where who may write to the database cannot: a chain that was made again, or cut off, does not
    hold them. STRANDLINE_AUDIT_ANCHORS_FILE has workers append them to a file by themselves.
    """
    check_to_be_read(database, namespace)
    names, unknown = database.run(find_trails()) if namespace is None else ({namespace}, ())
    anchors = database.run(anchor_trails(sorted(names)))
    for anchor in sorted(anchors, key=lambda one: one.namespace):
        if as_json:
            print_json_line(AnchorReport.of(anchor).model_dump_json())
        else:
            time = f"{anchor.sealed_at:%Y-%m-%d %H:%M:%S}"
            say(f"{anchor.namespace}: seal {anchor.seal} of {time}, {anchor.mac}")
    if unknown:
        say("A trail stands under a key of no namespace; `strandline audit verify` names it.", err=True)
    return 1 if unknown else 0


@cli_command("prune", settings_alone, PruningReport, short_help="Delete old entries, in whole seals.")
@namespace_option
@click.option(
    "--before",
    type=UtcTime(),
    required=True,
    metavar="TIME",
    help=f"Entries that were sealed before. {TIME_FORMATS}",
)
@click.option("--yes", is_flag=True, help="Delete them; without --yes, only count them.")
def prune_command(settings: Settings, namespace: str, before: datetime, yes: bool) -> Output:
    """Delete the entries of all seals that were made before a time, from the beginning of the chain.

    The rest can still be verified: the last pruned seal stays, without its entries. The pruning is itself an
    act in the trail.
    """
    if before > datetime.now(UTC):
        raise ConfigurationError(
            f"--before {before:%Y-%m-%d %H:%M:%S} (UTC) is yet to come; name a time that is past."
        )
    with opened_audit(settings, namespace) as audit:
        done = audit.prune(before) if yes else audit.plan_pruning(before)
    report = PruningReport(
        namespace=namespace, entries=done.entries, through_seal=done.through_seal, dry_run=not yes
    )
    entries = quantity(done.entries, "entry", "entries")
    if yes:
        line = f"{namespace}: deleted {entries}, up to seal {done.through_seal}"
    elif done.entries:
        line = f"{namespace}: would delete {entries}, up to seal {done.through_seal}; add --yes to do it"
    else:
        line = f"{namespace}: nothing that can be pruned was sealed before {before:%Y-%m-%d %H:%M:%S} UTC"
    return Output(report, [line])


def _read_anchor_file(path: Path) -> list[Anchor]:
    try:
        return read_anchors(path.read_text(encoding="utf-8").splitlines(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {type(error).__name__}.") from None


def _lines(results: Sequence[TrailVerification]) -> Iterator[str]:
    for result in results:
        yield _summary(result)
        yield from (f"  {one}" for one in result.findings)
    if not results:
        yield "no namespace has a trail yet"


def _notes(
    results: Sequence[TrailVerification], settings: Settings, anchor_file: Path | None
) -> Iterator[str]:
    if any(result.unkeyed_seals for result in results):
        has_key = settings.audit_key is not None or settings.audit_key_file is not None
        yield (
            "seals from before there was a key prove nothing beyond the last anchor that holds them"
            if has_key
            else "seals without a key prove little: set STRANDLINE_AUDIT_KEY or STRANDLINE_AUDIT_KEY_FILE,"
            " for workers as well"
        )
    if anchor_file is None and results and settings.audit_anchors_file is None:
        yield (
            "no anchors were compared: that the end of a chain was not cut off is not proven"
            " (`strandline audit anchors`)"
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


@click.group(
    "audit",
    commands=[
        list_command,
        show_command,
        export_command,
        level_command,
        verify_command,
        anchors_command,
        prune_command,
    ],
)
def command() -> None:
    """Who did what, from where and when: list it, prove that nothing was changed, set what is recorded."""
