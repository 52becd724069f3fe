"""The newest migration, as a constant: comparing it costs one look, where asking Alembic costs 0.5 s.

A test holds it to the migration scripts.
"""

from __future__ import annotations

HEAD_REVISION = "0001"
