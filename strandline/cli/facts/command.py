"""``strandline facts``: lists and figures of an owner, capture, and clearing a namespace."""

from __future__ import annotations

import click

from strandline.cli.command import Output, cli_command
from strandline.cli.facts.capturing import capture_command
from strandline.cli.facts.figures import figures_command, users_command
from strandline.cli.facts.listing import history_command, list_command
from strandline.cli.servers.memories import opened_namespace
from strandline.cli.servers.options import actor_option
from strandline.cli.terminal.progress import status_line
from strandline.producers.namespace_facts import Clearing, NamespaceFacts
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.wire.work import ClearFactsReport


@cli_command(
    "clear",
    opened_namespace,
    ClearFactsReport,
    short_help="Clear all facts of all owners of a namespace.",
)
@click.option(
    "--namespace", metavar="NAME", required=True, help="The namespace whose owners' facts are cleared."
)
@click.option("--yes", is_flag=True, help="Clear them; without --yes, only print what would be cleared.")
@actor_option
def clear_command(facts: NamespaceFacts, namespace: str, yes: bool, actor: str | None) -> Output:
    """Clear the facts of every owner of a namespace, for good, as one event per owner.

    Nothing said earlier comes back as a fact; messages, summaries and vectors stay. The command may be
    interrupted; run again, it continues where it stopped.
    """
    done = _clear_facts(facts, actor) if yes else facts.to_clear()
    report = ClearFactsReport(namespace=namespace, dry_run=not yes, owners=done.owners, facts=done.facts)
    what = f"{quantity(done.facts, 'live fact')} of {quantity(done.owners, 'owner')}"
    line = f"{namespace}: cleared {what}" if yes else f"{namespace}: would clear {what}; add --yes to do it"
    return Output(report, [line])


def _clear_facts(facts: NamespaceFacts, actor: str | None) -> Clearing:
    done = Clearing()
    with status_line("clearing") as update:
        for cleared in facts.clear_each(actor=actor):
            done += cleared
            update(f"clearing: {quantity(done.owners, 'owner')} done")
    return done


@click.group(
    "facts",
    commands=[
        list_command,
        history_command,
        figures_command,
        users_command,
        capture_command,
        clear_command,
    ],
)
def command() -> None:
    """List facts, their history and figures, set what is captured, clear a namespace.

    To correct a fact, use `Facts.for_owner`.
    """
