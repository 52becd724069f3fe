"""``strandline erasures``: erases users and sessions, lets them begin anew, and keeps the receipts."""

from __future__ import annotations

import click

from strandline.cli.erasures.erase import erase_command, readmit_command
from strandline.cli.erasures.listing import list_command, show_command
from strandline.cli.erasures.receipts import key_command, reapply_command, verify_command


@click.group("erasures")
def command() -> None:
    """Erase users and sessions for good, list erasures, verify and repeat them by their receipts.

    Keep receipts outside of the database: after a restore of an older backup, `reapply` needs them.
    """


command.add_command(erase_command)
command.add_command(list_command)
command.add_command(show_command)
command.add_command(verify_command)
command.add_command(reapply_command)
command.add_command(readmit_command)
command.add_command(key_command)
