"""``strandline audit list``, ``show`` and ``export``: what was done, newest first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from strandline.cli.audit.opening import opened_audit
from strandline.cli.audit.reports import ActReport, ActsReport, report_act
from strandline.cli.servers.options import (
    json_options,
    limit_option,
    namespace_option,
    settings_from,
    target_options,
)
from strandline.cli.terminal.output import print_json, print_json_line, say, show
from strandline.pipelines.audit.listing import AuditedAct
from strandline.schemas.display.shown_text import quantity, quote
from strandline.schemas.errors import NotFoundError
from strandline.schemas.values.acts.kinds import ACTS

_TIME = click.DateTime()
TIME_FORMATS = "In UTC: 2026-11-25, 2026-11-25T10:00:00 or '2026-11-25 10:00:00'."


def in_utc(moment: datetime | None) -> datetime | None:
    """A time of an option, which is given in UTC."""
    return None if moment is None else moment.replace(tzinfo=UTC)


@click.command("list", short_help="List acts, newest first.")
@namespace_option
@click.option("--since", type=_TIME, metavar="TIME", help=f"Only acts from this time on. {TIME_FORMATS}")
@click.option("--until", type=_TIME, metavar="TIME", help=f"Only acts up to this time. {TIME_FORMATS}")
@click.option(
    "--kind", metavar="KIND", help="Only acts of a kind, such as rewind, or facts for all of these."
)
@click.option("--actor", metavar="NAME", help="Only what this actor did.")
@click.option("--user", metavar="ID", help="Only what concerns this user; nothing after an erasure.")
@limit_option()
@click.option("--before", metavar="PLACE", help="The page that follows one: its `next_before`.")
@json_options(ActsReport)
@target_options
def list_command(
    namespace: str,
    since: datetime | None,
    until: datetime | None,
    kind: str | None,
    actor: str | None,
    user: str | None,
    limit: int,
    before: str | None,
    as_json: bool,
    **target: Any,
) -> None:
    """List what was done in a namespace, newest first: when, what, by whom, from where and to whose memory.

    Users stand in the trail as pseudonyms, and are named here until they are erased. To list is an act as
    well, and recorded.
    """
    with opened_audit(settings_from(**target), namespace) as audit:
        page = audit.acts(
            since=in_utc(since),
            until=in_utc(until),
            kind=kind,
            actor=actor,
            user_id=user,
            limit=limit,
            before=before,
        )
    if as_json:
        acts = [report_act(act) for act in page.acts]
        print_json(ActsReport(namespace=namespace, next_before=page.next_before, acts=acts))
        return
    say(*map(_line, page.acts))
    if not page.acts:
        say("no acts; `strandline audit level` shows what is recorded")
    if page.next_before is not None:
        say(f"more: --before {page.next_before}")


@click.command("show", short_help="Show one act with all that is recorded of it.")
@click.argument("entry_id", metavar="ID")
@namespace_option
@json_options(ActReport)
@target_options
def show_command(entry_id: str, namespace: str, as_json: bool, **target: Any) -> None:
    """Show the act ID (`list --json` gives ids) with where it stands in the chain."""
    with opened_audit(settings_from(**target), namespace) as audit:
        act = audit.act(entry_id)
    if act is None:
        raise NotFoundError(
            f"The trail of namespace {quote(namespace)} has no act {quote(entry_id)}; it may be pruned, or of"
            " another namespace."
        )
    show(report_act(act), _details(act), as_json=as_json)


@click.command("export", short_help="Print all acts as JSON lines.")
@namespace_option
@click.option("--since", type=_TIME, metavar="TIME", help=f"Only acts from this time on. {TIME_FORMATS}")
@click.option("--until", type=_TIME, metavar="TIME", help=f"Only acts up to this time. {TIME_FORMATS}")
@target_options
def export_command(namespace: str, since: datetime | None, until: datetime | None, **target: Any) -> None:
    """Print the acts of a namespace, newest first, a line of JSON each, as `list --json` has them."""
    with opened_audit(settings_from(**target), namespace) as audit:
        for act in audit.each(since=in_utc(since), until=in_utc(until)):
            print_json_line(report_act(act).model_dump_json())


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
    """The actor; one that is the user concerned by name, as long as there is one."""
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
