"""``strandline audit list``, ``show`` and ``export``: acts, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime

import click

from strandline.audit import Audit
from strandline.cli.audit.reports import ActReport, ActsReport
from strandline.cli.command import Output, cli_command
from strandline.cli.servers.options import limit_option, namespace_option
from strandline.cli.servers.targets import opened_servers
from strandline.cli.terminal.numbers import UtcTime
from strandline.cli.terminal.output import print_json_line
from strandline.pipelines.audit.listing import ActPage, AuditedAct
from strandline.pipelines.inspect.directory import check_namespace
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import NotFoundError
from strandline.schemas.settings import Settings
from strandline.schemas.values.acts.kinds import ACTS

TIME_FORMATS = "In UTC: 2026-11-25, 2026-11-25T10:00:00 or '2026-11-25 10:00:00'."
_since_option = click.option(
    "--since", type=UtcTime(), metavar="TIME", help=f"Only acts from this time on. {TIME_FORMATS}"
)
_until_option = click.option(
    "--until", type=UtcTime(), metavar="TIME", help=f"Only acts up to this time. {TIME_FORMATS}"
)


@contextmanager
def opened_audit(
    settings: Settings, namespace: str, even_if_unknown: bool = False, otherwise: str | None = None
) -> Iterator[Audit]:
    """The trail of a namespace, which may be empty; looking at it is recorded, so the namespace has to exist.

    Raises:
        InvalidMessageError: the namespace is not a valid name.
        NotFoundError: it is unknown.
    """
    with opened_servers(settings) as running:
        if not even_if_unknown:
            check_namespace(running.database, namespace, otherwise=otherwise)
        with closing(Audit.of_namespace(namespace, **running.urls)) as audit:
            yield audit


@cli_command("list", opened_audit, ActsReport, short_help="List acts, newest first.")
@namespace_option
@_since_option
@_until_option
@click.option(
    "--kind", metavar="KIND", help="Only acts of a kind, such as rewind, or facts for all of these."
)
@click.option("--actor", metavar="NAME", help="Only what this actor did.")
@click.option("--user", metavar="ID", help="Only what concerns this user; nothing after an erasure.")
@limit_option()
@click.option("--before", metavar="PLACE", help="The page that follows one: its `next_before`.")
def list_command(
    audit: Audit,
    namespace: str,
    since: datetime | None,
    until: datetime | None,
    kind: str | None,
    actor: str | None,
    user: str | None,
    limit: int,
    before: str | None,
) -> Output:
    """List what was done in a namespace, newest first: when, what, by whom, from where and to whose memory.

    Users stand in the trail as pseudonyms, and are named here until they are erased. To list is an act as
    well, and recorded.
    """
    page = audit.acts(
        since=since,
        until=until,
        kind=kind,
        actor=actor,
        user_id=user,
        limit=limit,
        before=before,
    )
    return Output(ActsReport.of(page, namespace=namespace), _lines(page))


@cli_command("show", opened_audit, ActReport, short_help="Show one act with all that is recorded of it.")
@click.argument("entry_id", metavar="ID")
@namespace_option
def show_command(audit: Audit, entry_id: str, namespace: str) -> Output:
    """Show the act ID (`list --json` gives ids) with where it stands in the chain."""
    act = audit.act(entry_id)
    if act is None:
        raise NotFoundError(
            f"The trail of namespace {quote(namespace)} has no act {quote(entry_id)}; it may be pruned, or of"
            " another namespace."
        )
    return Output(ActReport.of(act), _details(act))


@cli_command("export", opened_audit, short_help="Print all acts as JSON lines.")
@namespace_option
@_since_option
@_until_option
def export_command(audit: Audit, since: datetime | None, until: datetime | None) -> None:
    """Print the acts of a namespace, newest first, a line of JSON each, as `list --json` has them."""
    for act in audit.each(since=since, until=until):
        print_json_line(ActReport.of(act).model_dump_json())


def _lines(page: ActPage) -> Iterator[str]:
    yield from map(_line, page.acts)
    if not page.acts:
        yield "no acts; `strandline audit level` shows what is recorded"
    if page.next_before is not None:
        yield f"more: --before {page.next_before}"


def _line(act: AuditedAct) -> str:
    parts = [
        f"{act.at:%Y-%m-%d %H:%M:%S}",
        act.kind,
        f"by {_actor(act)}" if act.actor is not None else "by someone unnamed",
        f"from {act.origin}" if act.origin is not None else "",
        f"of {_whom(act)}" if act.subject is not None else "",
        _extent(act),
        f"[{', '.join(act.flags)}]" if act.flags else "",
        "" if act.seal is not None else "(not sealed yet)",
    ]
    return "  ".join(part for part in parts if part)


def _actor(act: AuditedAct) -> str:
    if act.actor == f"user:{act.subject}" and act.user_id is not None:
        return act.user_id
    return act.actor or ""


def _whom(act: AuditedAct) -> str:
    return act.user_id if act.user_id is not None else f"subject {str(act.subject)[:8]}"


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
