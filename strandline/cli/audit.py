"""``strandline audit``: acts and their actors, the recorded level, and the proof of integrity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from strandline.audit import Audit
from strandline.cli.command import CommandGroup, Output
from strandline.cli.servers.options import (
    TIME_FORMATS,
    UtcTime,
    limit_option,
    namespace_option,
    settings_alone,
    time_options,
)
from strandline.cli.servers.targets import (
    ANYWAY,
    check_to_be_read,
    even_if_unknown_option,
    opened_database,
    opened_servers,
)
from strandline.cli.terminal.output import print_json_line, say
from strandline.pipelines.audit.anchors import Anchor, read_anchors
from strandline.pipelines.audit.keys import keys_of
from strandline.pipelines.audit.listing import ActPage, AuditedAct, audited_namespaces
from strandline.pipelines.audit.verifying import TrailVerification, anchor_trails, find_trails, verify_trails
from strandline.pipelines.inspect.directory import check_namespace
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import ConfigurationError, NotFoundError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.acts.kinds import ACTS, LEVELS, AuditLevel
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.schemas.wire.report import Key, Report, Time


@click.group("audit", cls=CommandGroup)
def command() -> None:
    """Who did what, from where and when: list it, prove that nothing was changed, choose what to record."""


class ActReport(Report):
    """An act of the trail.

    ``subject`` is the pseudonym of the user concerned, and ``user_id`` the user that it leads to, null after
    an erasure; ``session`` is a pseudonym as well.  ``seal`` and ``place`` are null while no seal covers it.
    """

    entry_id: Key
    at: Time
    kind: str
    actor: str | None
    origin: str | None
    subject: Key | None
    user_id: str | None
    session: Key | None
    seq: int | None
    count: int | None
    detail: dict[str, Any]
    flags: list[str]
    seal: int | None
    place: int | None


class ActsReport(Report):
    """A page of acts, newest first; ``next_before`` leads to the next one."""

    namespace: str
    next_before: str | None
    acts: list[ActReport]


class LevelReport(Report):
    """The level of a namespace's trail, and how long its chain is."""

    namespace: str
    level: str
    seals: int
    pruned_seals: int
    entries: int


class LevelsReport(Report):
    """Levels of namespaces."""

    namespaces: list[LevelReport]


class AnchorReport(Report):
    """An anchor: the end of a chain, to be kept outside of the database."""

    namespace: str
    seal: int
    entries: int
    mac: str
    sealed_at: Time


class FindingReport(Report):
    """Something that does not fit; ``seal``, ``place`` and ``entry_id`` say where."""

    problem: str
    sentence: str
    seal: int | None
    place: int | None
    entry_id: Key | None


class TrailReport(Report):
    """The result of verifying a namespace's trail."""

    namespace: str
    is_sound: bool
    seals: int
    entries: int
    pruned_seals: int
    unsealed: int
    unkeyed_seals: int
    anchors: int
    pruned_anchors: int
    first_seal_at: Time | None
    last_seal_at: Time | None
    findings: list[FindingReport]


class TrailsReport(Report):
    """The results for several namespaces."""

    trails: list[TrailReport]


class PruningReport(Report):
    """The pruned entries, or with ``dry_run`` those to prune; ``through_seal`` is the last seal concerned."""

    namespace: str
    entries: int
    through_seal: int
    dry_run: bool


@namespace_option
@contextmanager
def opened_audit(
    settings: Settings, namespace: str, even_if_unknown: bool = False, otherwise: str | None = None
) -> Iterator[Audit]:
    """The trail of a namespace, which has to exist (else NotFoundError): looking at it is recorded."""
    with opened_servers(settings) as running:
        if not even_if_unknown:
            check_namespace(running.database, namespace, otherwise=otherwise)
        with closing(Audit.of_namespace(namespace, **running.urls)) as audit:
            yield audit


@command.add("list", opened_audit, ActsReport)
@time_options("acts")
@click.option(
    "--kind", metavar="KIND", help="Only acts of a kind, such as rewind, or facts for all of these."
)
@click.option("--actor", metavar="NAME", help="Only what this actor did.")
@click.option(
    "--user", "user_id", metavar="ID", help="Only what concerns this user; nothing after an erasure."
)
@limit_option()
@click.option("--before", metavar="PLACE", help="The page that follows one: its `next_before`.")
def list_command(audit: Audit, namespace: str, **filters: Any) -> Output:
    """List what was done in a namespace, newest first: when, what, by whom, from where and to whose memory.

    Users stand in the trail as pseudonyms, and are named here until they are erased. To list is an act as
    well, and recorded.
    """
    page = audit.acts(**filters)
    return Output(ActsReport.of(page, namespace=namespace), _page_lines(page))


@command.add("show", opened_audit, ActReport)
@click.argument("entry_id", metavar="ID")
def show_command(audit: Audit, entry_id: str, namespace: str) -> Output:
    """Show the act ID (`list --json` gives ids) with where it stands in the chain."""
    act = audit.act(entry_id)
    if act is None:
        raise NotFoundError(
            f"The trail of namespace {quote(namespace)} has no act {quote(entry_id)}; it may be pruned, or of"
            " another namespace."
        )
    return Output(ActReport.of(act), _details(act))


@command.add("export", opened_audit)
@time_options("acts")
def export_command(audit: Audit, since: datetime | None, until: datetime | None) -> None:
    """Print the acts of a namespace, newest first, a line of JSON each, as `list --json` has them."""
    for act in audit.each(since=since, until=until):
        print_json_line(ActReport.of(act).model_dump_json())


def _page_lines(page: ActPage) -> Iterator[str]:
    yield from map(_line, page.acts)
    if not page.acts:
        yield "no acts; `strandline audit level` shows the recorded kinds"
    if page.next_before is not None:
        yield f"more: --before {page.next_before}"


def _line(act: AuditedAct) -> str:
    whom = act.user_id if act.user_id is not None else f"subject {str(act.subject)[:8]}"
    parts = [
        f"{act.at:%Y-%m-%d %H:%M:%S}",
        act.kind,
        f"by {_actor(act)}" if act.actor is not None else "by someone unnamed",
        f"from {act.origin}" if act.origin is not None else "",
        f"of {whom}" if act.subject is not None else "",
        _extent(act),
        f"[{', '.join(act.flags)}]" if act.flags else "",
        "" if act.seal is not None else "(not sealed yet)",
    ]
    return "  ".join(part for part in parts if part)


def _actor(act: AuditedAct) -> str:
    if act.actor == f"user:{act.subject}" and act.user_id is not None:
        return act.user_id
    return act.actor or ""


def _extent(act: AuditedAct) -> str:
    number = "" if act.count is None else quantity(act.count, "item" if act.seq is None else "message")
    return number if act.seq is None else f"{number} from {act.seq}".strip()


def _details(act: AuditedAct) -> list[str]:
    seal = "none yet" if act.seal is None else f"{act.seal}, place {act.place}"
    fields: dict[str, object] = {
        "id": act.entry_id,
        "time": act.at.isoformat(),
        "act": f"{act.kind}: {ACTS[act.kind].meaning}" if act.kind in ACTS else act.kind,
        "actor": _actor(act) or "none",
        "origin": act.origin or "none",
        "user": act.user_id or ("none" if act.subject is None else "unknown, or erased"),
        "subject": act.subject or "none: it concerns the namespace",
        "session": act.session or "none",
        "extent": _extent(act) or "none",
        "detail": ", ".join(f"{name}={value}" for name, value in act.detail.items()) or "none",
        "flags": ", ".join(act.flags) or "none",
        "seal": seal,
    }
    return [f"{name:<8} {value}" for name, value in fields.items()]


@command.add("level", settings_alone, LevelsReport)
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


@command.add("verify", settings_alone, TrailsReport)
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


@command.add("anchors", opened_database, AnchorReport)
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


@command.add("prune", settings_alone, PruningReport)
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
