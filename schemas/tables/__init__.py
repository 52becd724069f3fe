"""The tables, declared once: an empty schema is made from this declaration.

Every table of an owner's data has ``shard_key`` first in its primary key; the others are small.
Invariants are named constraints in the database. Hot rows are narrow: no index covers a counter of
``session``, so that its updates stay HOT. Of a ``message`` row nothing is ever updated but the form in
which its content is stored (docs/architecture/encryption.md).
"""

from strandline.schemas.tables import application, audit, derived, erasures, limits, log, retention, work
from strandline.schemas.tables.base import SCHEMA, metadata

__all__ = [
    "SCHEMA",
    "application",
    "audit",
    "derived",
    "erasures",
    "limits",
    "log",
    "metadata",
    "retention",
    "work",
]
