"""The rows that sessions share, under the shared scope's own key, next to its rows in ``chunk``."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Index, Integer, Text, Uuid

from strandline.schemas.tables.base import Erasure, impersonal, key, moment, personal, table

shared_session = table(
    "shared_session",
    key("shard_key"),
    key("session_key"),
    key("incarnation"),
    Column("owner_key", Uuid, nullable=False),
    personal("session_id", Text),
    moment("created_at", default=True),
    moment("gone_at", nullable=True),
    # For an erasure to find an owner's shared rows.
    Index("shared_session_by_owner", "owner_key", "session_key"),
    comment=(
        "Incarnations of sessions that share with a scope; one that is gone was forgotten and is never"
        " shared again"
    ),
    erasure=Erasure("treated", why="deleted, with the copies in shared scopes"),
)

shared_message = table(
    "shared_message",
    key("shard_key"),
    key("session_key"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("incarnation", Uuid, nullable=False),
    personal("id", Text, nullable=False),
    impersonal("role", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    personal("envelope", JSON, sealed="json message id", nullable=False),
    personal("metadata", JSON, sealed="json metadata id"),
    moment("created_at"),
    comment="Copies of what sessions shared with a scope, as searches of the scope show them",
    erasure=Erasure("treated", why="deleted: copies in shared scopes; so are their pieces in chunk"),
)
