"""The tables and functions of the first release, which ``fresh.make_tables`` makes."""

from __future__ import annotations

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Nothing comes before it."""
