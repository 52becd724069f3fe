"""The plan of an erasure, from what ``schemas/tables`` says of tables."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Table

from strandline.schemas import tables
from strandline.schemas.tables.base import ERASURE
from tools.queries.columns import written
from tools.queries.headers import SQL

PATH = SQL / "erasing.sql"
_HEAD = "-- The vacuum after an erasure.  Written by `make queries` from schemas/tables.\n"


def write_statements() -> str:
    """The text of ``schemas/sql/erasing.sql``."""
    losing = [table.fullname for table in _tables() if table.info[ERASURE].kind != "kept"]
    return written(
        [
            _HEAD,
            "-- name: vacuum_erased",
            "-- Make the space of deleted rows free to be used again, in tables and indexes, one table after"
            " the other; and take new samples. A table that another vacuum works on is passed over.",
            f"VACUUM (ANALYZE, INDEX_CLEANUP ON, SKIP_LOCKED) {', '.join(losing)}",
            "",
        ]
    )


def write_plan() -> Iterator[str]:
    """The lines of ``schemas/queries/erased.py``."""
    going = {t.name: t.info[ERASURE].session for t in _tables() if t.info[ERASURE].kind == "goes"}
    yield '"""What an erasure deletes, from ``schemas/tables``.  Written by `make queries`."""'
    yield "from __future__ import annotations\n"
    yield "from collections.abc import Mapping\n"
    yield "# The tables with an owner's rows, in the order in which they go."
    yield f"ERASED = {tuple(going)!r}\n"
    yield "# Of these, the tables whose rows go with a session, by the column with its key."
    yield f"SCOPED: Mapping[str, str] = { ({name: column for name, column in going.items() if column})!r}"


def _tables() -> list[Table]:
    """By name, but for three: the order in which they go.

    Flush events come first: a replay that makes work of an event holds its row, so that its rows exist when
    the later tables come. Data keys go behind all that they seal, and versions last: what a process reads and
    keeps without one would look as if it still stood when the rest has gone.
    """
    places = {"flush_event": 0, "data_key": 2, "derived_change": 3}
    return sorted(tables.metadata.tables.values(), key=lambda table: (places.get(table.name, 1), table.name))
