"""Partitions of the big tables: a choice of whoever makes the tables, and made once.

``strandline migrate --partitions`` divides what grows with each message by hash of ``shard_key``, so that
vacuum and the build of an index deal with one part at a time.  Statements do not change: each gives the key
of its owner by value, so Postgres looks into that owner's partition alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.schemas.errors import ConfigurationError, SchemaError

MIN_PARTITIONS = 2
MAX_PARTITIONS = 1_024


def check_partitions(number: int) -> None:
    """Raise ConfigurationError unless tables may be divided into so many partitions."""
    if not MIN_PARTITIONS <= number <= MAX_PARTITIONS:
        raise ConfigurationError(
            f"A table may have {MIN_PARTITIONS} to {MAX_PARTITIONS:,} partitions, not {number:,}."
        )


def require_partitions(divided: Mapping[str, int], number: int, schema: str) -> None:
    """Raise SchemaError unless the tables that exist have this number of partitions.

    Args:
        divided: the tables that are divided, and into how many partitions.
        number: as many as were asked for.
        schema: where the tables are.
    """
    if set(divided.values()) == {number}:
        return
    raise SchemaError(
        f"The tables in schema {schema} exist already, with {describe_partitions(divided)}, not {number:,}."
        " Tables are divided only when they are made: run `strandline migrate` without --partitions to leave"
        " them as they are, or move the data to a new database (docs/operations.md#partitions)."
    )


def describe_partitions(divided: Mapping[str, int]) -> str:
    """``no partitions``, ``16 partitions``; several numbers if a partition was detached by hand."""
    return f"{' or '.join(map(str, sorted(set(divided.values())))) or 'no'} partitions"
