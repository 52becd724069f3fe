"""The statements of ``schemas/sql/erasing.sql``.  Written by `make queries`."""

from __future__ import annotations

from typing import Never

from strandline.schemas.postgres.query import Query


class VacuumErased(Query[Never], name="vacuum_erased", lone=True):
    """Make the space of deleted rows free to be used again, in tables and indexes, one table after the other;
    and take new samples. A table that another vacuum works on is passed over.
    """
