"""The tables, declared once; a test compares the migrations with this declaration.

Every table of an owner's data has ``shard_key`` first in its primary key. ``generation``, ``replay``,
``replay_budget``, ``namespace_limit``, ``namespace_rule``, ``budget_slice``, ``capture_act``,
``audit_level``, ``encryption``, ``erasure``, ``retention_act``, ``retention_run``, ``service_key``,
``worker`` and ``alembic_version`` are small reference tables. Invariants are named constraints in the
database. Hot rows are narrow: no index covers a counter of ``session``, so that its updates stay HOT. Of
a ``message`` row nothing is ever updated but the form in which its content is stored
(docs/architecture/encryption.md).
"""

from strandline.schemas.tables import (
    audit,
    derived,
    erasures,
    items,
    limits,
    log,
    retention,
    sealing,
    service,
    shared,
    work,
)
from strandline.schemas.tables.base import SCHEMA, metadata

__all__ = [
    "SCHEMA",
    "audit",
    "derived",
    "erasures",
    "items",
    "limits",
    "log",
    "metadata",
    "retention",
    "sealing",
    "service",
    "shared",
    "work",
]
