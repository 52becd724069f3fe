"""The audit trail of a namespace, opened for one command on the servers that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.audit import Audit
from strandline.cli.servers.targets import servers_for_once
from strandline.schemas.settings import Settings


@contextmanager
def opened_audit(settings: Settings, namespace: str) -> Iterator[Audit]:
    """The trail of a namespace, which may be empty.

    Raises:
        InvalidMessageError: the namespace is not a valid name.
    """
    with servers_for_once(settings) as servers:
        audit = Audit.of_namespace(
            namespace, database_url=servers.database_url, schema=settings.database_schema
        )
        try:
            yield audit
        finally:
            audit.close()
