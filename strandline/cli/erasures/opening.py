"""The commands' face, and their display of an erasure's steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from strandline.cli.servers.targets import opened_servers
from strandline.cli.terminal.output import console, is_rich, say
from strandline.erasure import Erasures
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.settings import Settings

LINE_EVERY_ROWS = 100_000

user_option = click.option("--user", metavar="ID", help="The user.")
session_option = click.option("--session", metavar="ID", help="One session, in place of a user.")
key_option = click.option(
    "--key",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The private key that signs the receipt; default: STRANDLINE_RECEIPT_KEY_FILE.",
)

Show = Callable[[str, str, int], None]


@contextmanager
def opened_erasures(settings: Settings, namespace: str, key: Path | None = None) -> Iterator[Erasures]:
    key_file = key if key is not None else settings.receipt_key_file
    with (
        opened_servers(settings) as running,
        closing(Erasures.of_namespace(namespace, key_file=key_file, **running.urls)) as erasures,
    ):
        yield erasures


def check_one(user: str | None, session: str | None) -> None:
    """Check that exactly one of the two options is given."""
    if (user is None) == (session is None):
        raise click.UsageError("Name a user (--user ID) or a session (--session ID), and not both.")


@contextmanager
def shown_steps() -> Iterator[Show]:
    """A line with the present step on a terminal, gone in the end; elsewhere a line now and then."""
    if is_rich(stderr=True):
        with console(stderr=True).status("erasing") as status:
            yield lambda step, table, rows: status.update(
                f"erasing, {step}: {table}, {quantity(rows, 'row')}"
            )
        return
    reported: dict[str, int] = {}

    def tell(step: str, table: str, rows: int) -> None:
        if rows >= reported.get(table, 0) + LINE_EVERY_ROWS:
            reported[table] = rows
            say(f"erasing, {step}: {table}, {quantity(rows, 'row')}", err=True)

    yield tell
