"""The tables, declared once; a test compares the migrations with this declaration.

Every table of an owner's data has ``shard_key`` first in its primary key.  ``generation``, ``replay``,
``replay_budget``, ``namespace_limit``, ``budget_slice``, ``capture_act``, ``erasure``, ``worker`` and
``alembic_version`` are small reference tables.  Invariants are named constraints in the database. Hot rows
are narrow: no index covers a counter of ``session``, so that its updates stay HOT, and ``message`` rows are
never updated.
"""

from strandline.schemas.tables import derived, erasures, items, limits, log, shared, work
from strandline.schemas.tables.base import SCHEMA, metadata

__all__ = ["SCHEMA", "derived", "erasures", "items", "limits", "log", "metadata", "shared", "work"]
