"""How commands meet a name of which nothing is known: those that read refuse it, others want to be told."""

from __future__ import annotations

import click

from strandline.pipelines.inspect.known_names import check_namespace
from strandline.schemas.postgres.database import Fetcher

ANYWAY = "If it is yet to come, add --even-if-unknown."

even_if_unknown_option = click.option(
    "--even-if-unknown", is_flag=True, help="Also if nothing is stored under this name yet."
)


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
