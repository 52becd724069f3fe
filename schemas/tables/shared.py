"""The rows that sessions share, under the shared scope's own key, next to its rows in ``chunk``."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Column, Index, Integer, Table, Text, Uuid

from strandline.schemas.tables.base import impersonal, key, metadata, moment, personal

shared_session = Table(
    "shared_session",
    metadata,
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
)

shared_message = Table(
    "shared_message",
    metadata,
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
)
