"""The table of items: values that an application keeps itself, for frameworks with a store of their own."""

from __future__ import annotations

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import ARRAY, JSON, CheckConstraint, Column, Double, Index, Text, text

from strandline.schemas.tables.base import Erasure, key, moment, personal, table

store_item = table(
    "store_item",
    key("shard_key"),
    # The labels of the path, each followed by a full stop, so that a prefix finds its descendants.
    personal("path", Text(collation="C"), primary_key=True),
    personal("key", Text(collation="C"), primary_key=True),
    personal("value", JSON, sealed="json item", nullable=False),
    personal("vectors", ARRAY(HALFVEC), nullable=False, server_default=text("'{}'")),
    Column("ttl_minutes", Double),
    moment("expires_at", nullable=True),
    moment("created_at", default=True),
    moment("updated_at", default=True),
    Index("store_item_by_expiry", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
    CheckConstraint("(ttl_minutes IS NULL) = (expires_at IS NULL)", name="ttl"),
    comment="Values that an application keeps under a path and a key, with vectors of their texts",
    erasure=Erasure(
        "treated",
        why="what an adapter keeps of the user is deleted, and items below paths that the caller names;"
        " others belong to the namespace, and only the application knows which of them concern a user",
    ),
)
