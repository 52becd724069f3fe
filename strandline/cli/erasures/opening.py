"""Shared by the commands of erasures: their options, their face, and a file of receipts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from strandline.cli.servers.options import namespace_option
from strandline.cli.servers.targets import opened_servers
from strandline.cli.terminal.progress import shown_progress
from strandline.erasure import ErasureReceipt, Erasures, PlannedErasure
from strandline.schemas.display.shown_text import quantity
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.private_files import open_private
from strandline.schemas.settings import Settings

key_option = click.option(
    "--key",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The private key that signs the receipt; default: STRANDLINE_RECEIPT_KEY_FILE.",
)

Show = Callable[[str, str, int], None]


@contextmanager
def opened_erasures(
    settings: Settings, namespace: str, key: Path | None = None
) -> Iterator[tuple[Erasures, Database]]:
    key_file = key if key is not None else settings.receipt_key_file
    with (
        opened_servers(settings) as running,
        closing(Erasures.of_namespace(namespace, key_file=key_file, **running.urls)) as erasures,
    ):
        yield erasures, running.database


@dataclass(frozen=True, slots=True)
class Whose:
    """A user, or else one session of a namespace, with the erasures of that."""

    erasures: Erasures
    database: Database
    namespace: str
    user: str | None
    session: str
    items_below: tuple[str, ...]

    def plan(self) -> PlannedErasure:
        if self.user is not None:
            return self.erasures.plan_user(self.user)
        return self.erasures.plan_session(self.session)

    def erase(self, actor: str | None, planned_rows: int) -> ErasureReceipt:
        with shown_steps(planned_rows) as show:
            if self.user is None:
                return self.erasures.erase_session(self.session, actor=actor, on_progress=show)
            paths = [path.split(".") for path in self.items_below]
            return self.erasures.erase_user(self.user, actor=actor, items_below=paths, on_progress=show)

    def readmit(self, actor: str | None) -> ErasureReceipt:
        if self.user is not None:
            return self.erasures.readmit_user(self.user, actor=actor)
        return self.erasures.readmit_session(self.session, actor=actor)

    def export(self) -> Iterator[str]:
        if self.user is not None:
            return self.erasures.export_user(self.user)
        return self.erasures.export_session(self.session)


@click.option("--user", metavar="ID", help="The user.")
@click.option("--session", metavar="ID", help="One session, in place of a user.")
@namespace_option
@contextmanager
def opened_whose(
    settings: Settings,
    user: str | None,
    session: str | None,
    namespace: str,
    key: Path | None = None,
    items_below: tuple[str, ...] = (),
) -> Iterator[Whose]:
    """Raises UsageError unless exactly one of user and session is given."""
    if (user is None) == (session is None):
        raise click.UsageError("Name a user (--user ID) or a session (--session ID), and not both.")
    if items_below and user is None:
        raise click.UsageError("--items-below goes with --user: items belong to no session.")
    with opened_erasures(settings, namespace, key) as (erasures, database):
        yield Whose(erasures, database, namespace, user, session or "", items_below)


@contextmanager
def shown_steps(total: int = 0) -> Iterator[Show]:
    """Yield a function that shows the present step, and the rows of all steps; ``total``: 0 if unknown."""
    gone: dict[str, int] = {}
    with shown_progress("erasing", "row") as show:

        def tell(step: str, table: str, rows: int) -> None:
            gone[f"{step} {table}"] = rows
            show(sum(gone.values()), total, f"{step}, {table}, {quantity(rows, 'row')}")

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
        file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_TAIL_BYTES))
        _check_receipts(path, file.read())

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
