"""What is derived: candidates, facts and their revisions, states, chunks."""

from __future__ import annotations

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR

from strandline.schemas.tables.base import key, metadata, moment

fact_candidate = Table(
    "fact_candidate",
    metadata,
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("event_id"),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("session_key", Uuid, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    Column("text", Text, nullable=False),
    Column("seqs", ARRAY(BigInteger), nullable=False),
    Column("topics", ARRAY(Text), nullable=False),
    Column("said_by", Text),
    Column("about_date", Date),
    moment("said_at"),
    Column("model", Text, nullable=False),
    Column("prompt_hash", Text, nullable=False),
    comment="What extract found in one event; merge folds it into the owner's facts",
)

fact = Table(
    "fact",
    metadata,
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("fact_id"),
    Column("text", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("lexemes", ARRAY(Text), nullable=False),
    Column("topics", ARRAY(Text), nullable=False),
    Column("said_by", Text),
    Column("about_date", Date),
    moment("said_at"),
    Column("live", Boolean, nullable=False, server_default=text("true")),
    moment("invalidated_at", nullable=True),
    Column("invalidated_by", Uuid),
    moment("created_at", default=True),
    moment("updated_at", default=True),
    Index(
        "fact_fingerprint",
        "shard_key",
        "generation_id",
        "fingerprint",
        unique=True,
        postgresql_where=text("live"),
    ),
    Index("fact_recent", "shard_key", "generation_id", text("said_at DESC"), postgresql_where=text("live")),
    CheckConstraint("live = (invalidated_at IS NULL)", name="live"),
    comment="What is known of an owner; an invalidated fact stays, with what took its place",
)

fact_revision = Table(
    "fact_revision",
    metadata,
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("fact_id"),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("operation", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("lexemes", ARRAY(Text), nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("session_key", Uuid, nullable=False),
    Column("seqs", ARRAY(BigInteger), nullable=False),
    Column("extract_batch_id", Uuid, nullable=False),
    Column("merge_batch_id", Uuid, nullable=False),
    Column("model", Text, nullable=False),
    Column("prompt_hash", Text, nullable=False),
    moment("created_at", default=True),
    CheckConstraint("operation IN ('add', 'update', 'invalidate', 'duplicate')", name="operation"),
    comment="A fact's history and provenance: which event and messages, prompt and model, did what",
)

block_state = Table(
    "block_state",
    metadata,
    key("shard_key"),
    key("scope_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("state", JSONB, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    moment("created_at", default=True),
    comment="The state of a folding pipeline after each batch; the newest one serves",
)

chunk = Table(
    "chunk",
    metadata,
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("session_key"),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("piece", Integer, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    Column("length", Integer, nullable=False),
    Column("lexemes", TSVECTOR, nullable=False),
    Column("embedding", HALFVEC),
    comment="A searchable piece of conversation: its messages by range, its lexemes and its vector",
)
