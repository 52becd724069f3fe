"""The audit trail of a namespace, opened for one command on the servers that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from strandline.audit import Audit
from strandline.cli.servers.targets import opened_pool, servers_for_once
from strandline.pipelines.inspect.known_names import check_namespace
from strandline.schemas.settings import Settings


@contextmanager
def opened_audit(
    settings: Settings, namespace: str, *, even_if_unknown: bool = False, otherwise: str | None = None
) -> Iterator[Audit]:
    """The trail of a namespace, which may be empty; looking at it is recorded, so the namespace has to exist.

    Raises:
        InvalidMessageError: the namespace is not a valid name.
        NotFoundError: there is nothing of it.
    """
    with servers_for_once(settings) as servers:
        with opened_pool(servers.database_url, settings, pool_size=1) as database:
            if not even_if_unknown:
                check_namespace(database, namespace, otherwise=otherwise)
        audit = Audit.of_namespace(
            namespace, database_url=servers.database_url, schema=settings.database_schema
        )
        with closing(audit):
            yield audit
