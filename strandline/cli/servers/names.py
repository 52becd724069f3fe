"""How commands treat unknown names: readers refuse them, others ask for confirmation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from strandline.cli.servers.targets import opened_database
from strandline.pipelines.inspect.directory import check_namespace
from strandline.schemas.postgres.database import Database, Fetcher
from strandline.schemas.settings import Settings

ANYWAY = "If it is yet to come, add --even-if-unknown."

even_if_unknown_option = click.option(
    "--even-if-unknown", is_flag=True, help="Also if nothing is stored under this name yet."
)


@contextmanager
def opened_to_read(settings: Settings, namespace: str | None) -> Iterator[Database]:
    """The database, if there is something of the namespace, or none is named.

    Raises: as ``check_to_be_read``.
    """
    with opened_database(settings) as database:
        check_to_be_read(database, namespace)
        yield database


def check_to_be_read(fetcher: Fetcher, namespace: str | None) -> None:
    """Check that there is something of a namespace, if one is named.

    Raises:
        NotFoundError: there is nothing; with the names that are near.
    """
    if namespace is not None:
        check_namespace(fetcher, namespace)


def check_to_be_changed(fetcher: Fetcher, namespace: str, *, even_if_unknown: bool) -> None:
    """As ``check_to_be_read``, unless the option says that the namespace is yet to come."""
    if not even_if_unknown:
        check_namespace(fetcher, namespace, otherwise=ANYWAY)
