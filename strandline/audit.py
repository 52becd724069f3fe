"""``Audit``: the audit trail of a namespace, wired to this process's settings and resources."""

from __future__ import annotations

from strandline.producers.audit_trail import NamespaceAudit
from strandline.schemas.values.identity import DEFAULT_NAMESPACE
from strandline.wiring.environment import settings_with
from strandline.wiring.runtime import Pool, runtime_for


class Audit(NamespaceAudit):
    """The audit trail of a namespace; see ``NamespaceAudit`` for its methods."""

    @classmethod
    def of_namespace(
        cls,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        database_url: str | None = None,
        pool: Pool | None = None,
        schema: str | None = None,
    ) -> Audit:
        """The trail of a namespace; does no I/O.

        Args:
            namespace: the tenant.
            database_url, pool, schema: as for ``Memory.from_defaults``.

        Raises:
            ConfigurationError: a setting cannot be used.
            InvalidMessageError: ``namespace`` is not a valid name.
        """
        settings = settings_with(database_url=database_url, database_schema=schema)
        return cls(runtime_for(settings, pool=pool, consume=None), namespace)
