"""What the commands of erasures share: their options, their face, and a file of receipts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO

import click

from strandline.cli.servers.targets import opened_servers
from strandline.cli.terminal.output import console, is_rich, say
from strandline.erasure import ErasureReceipt, Erasures
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.private_files import open_private
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


Keep = Callable[[ErasureReceipt], None]

# Of a file that is there: enough of it for its last receipt.
MAX_TAIL_BYTES = 1_000_000

receipt_option = click.option(
    "--receipt",
    "receipt_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Append the receipt to this file, one line; keep it outside of the database.",
)


@contextmanager
def receipts_kept(path: Path | None) -> Iterator[Keep]:
    """A writer of receipts to the end of a file; without a file a no-op.

    The file is opened first. A new file is removed if it got no receipt.

    Raises:
        ConfigurationError: it cannot be written, or holds something other than receipts.
    """
    if path is None:
        yield lambda _receipt: None
        return
    is_new = not path.exists()
    try:
        file = open_private(path, "ab+")
    except OSError as error:
        raise ConfigurationError(
            f"Receipts cannot be written to {path}: {error.strerror}. Nothing was done."
        ) from None
    with file:
        _check_receipts(path, _tail_of(file))

        def keep(receipt: ErasureReceipt) -> None:
            try:
                file.write(receipt.to_json().encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            except OSError as error:
                raise ConfigurationError(
                    f"The receipt cannot be written to {path}: {error.strerror}. It is stored:"
                    " `strandline erasures list --receipts` prints it."
                ) from None

        try:
            yield keep
        finally:
            if is_new and os.fstat(file.fileno()).st_size == 0:
                path.unlink(missing_ok=True)


def _tail_of(file: IO[bytes]) -> bytes:
    file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_TAIL_BYTES))
    return file.read()


def _check_receipts(path: Path, tail: bytes) -> None:
    if not tail:
        return
    try:
        ErasureReceipt.from_json(tail.decode().splitlines()[-1])
    except (UnicodeDecodeError, ConfigurationError):
        raise ConfigurationError(
            f"{path} is there, and does not end with a receipt; name another file. Nothing was done."
        ) from None
    if not tail.endswith(b"\n"):
        raise ConfigurationError(f"The last line of {path} has no end; add one. Nothing was done.")
