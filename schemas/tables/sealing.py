"""The tables of encryption: which namespaces seal their content, and the wrapped keys of each owner."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, Index, Integer, LargeBinary, Text, text

from strandline.schemas.tables.base import Erasure, impersonal, key, moment, table

encryption = table(
    "encryption",
    Column("namespace", Text(collation="C"), primary_key=True),
    impersonal("kek_id", Text, nullable=False),
    # Something that the key has wrapped, by which another key of the same id is known.
    impersonal("probe", LargeBinary, nullable=False),
    impersonal("vectors", Text, nullable=False),
    moment("enabled_at", default=True),
    moment("changed_at", default=True),
    CheckConstraint("vectors IN ('clear', 'off')", name="vectors"),
    comment="The namespaces whose content is sealed, and the key that wraps the keys of their owners",
    erasure=Erasure("kept", why="the choice of a namespace, and its wrapped probe"),
)

data_key = table(
    "data_key",
    key("shard_key"),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("namespace", Text(collation="C"), nullable=False),
    impersonal("kek_id", Text, nullable=False),
    impersonal("wrapped", LargeBinary, nullable=False),
    moment("created_at", default=True),
    moment("settled_at", nullable=True),
    Index("data_key_by_namespace", "namespace", "shard_key", "number"),
    Index("data_key_unsettled", "namespace", "shard_key", postgresql_where=text("settled_at IS NULL")),
    Index("data_key_by_kek", "kek_id", "shard_key", "number"),
    CheckConstraint("number >= 1", name="number"),
    comment="Wrapped keys of owners: a data key, by its number, with the search key, which stays the same",
    erasure=Erasure("goes"),
)
