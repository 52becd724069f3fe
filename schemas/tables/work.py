"""The work and how it is done: generations, due rows, lanes, batches, answers, receipts, workers."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from strandline.schemas.tables.base import key, metadata, moment

generation = Table(
    "generation",
    metadata,
    Column("generation_id", Integer, Identity(always=True), primary_key=True),
    Column("pipeline", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("entry_stage", Text, nullable=False),
    Column("config", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    moment("created_at", default=True),
    Index("generation_serving", "pipeline", unique=True, postgresql_where=text("state = 'serving'")),
    CheckConstraint("state IN ('serving', 'feeding', 'retired')", name="state"),
    comment="Which pipelines run, and which derivation of each one serves",
)

due = Table(
    "due",
    metadata,
    key("shard_key"),
    key("session_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    Column("stage", Text, primary_key=True),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, nullable=False),
    Column("scope_key", Uuid, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("incarnation", Uuid, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    moment("created_at", default=True),
    Column(
        "ring_at",
        DateTime(timezone=True),
        nullable=False,
        server_default=text("clock_timestamp() + interval '2 seconds'"),
    ),
    Column("rings", Integer, nullable=False, server_default="0"),
    Index("due_by_lane", "shard_key", "scope_key", "generation_id", "stage", "created_at"),
    Index("due_by_ring", "ring_at"),
    comment="Work that a lane has to do: inserted by a flush (or an earlier stage), deleted by its apply",
    postgresql_with={"autovacuum_vacuum_scale_factor": "0.02", "autovacuum_vacuum_cost_delay": "0"},
)

lane = Table(
    "lane",
    metadata,
    key("shard_key"),
    key("scope_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    Column("stage", Text, primary_key=True),
    Column("lease_epoch", BigInteger, nullable=False, server_default="0"),
    Column("holder", Uuid),
    moment("leased_at", nullable=True),
    moment("deadline_at", nullable=True),
    moment("next_attempt_at", default=True),
    Column("postponements", Integer, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("crashes", Integer, nullable=False, server_default="0"),
    Column("last_error", Text),
    Index("lane_held", "holder", postgresql_where=text("holder IS NOT NULL")),
    comment="The lease of a lane: who drains it, under which epoch, and when it may be tried again",
    postgresql_with={"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.02"},
)

batch = Table(
    "batch",
    metadata,
    key("shard_key"),
    key("batch_id"),
    Column("scope_key", Uuid, nullable=False),
    Column("generation_id", Integer, nullable=False),
    Column("stage", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="open"),
    Column("lease_epoch", BigInteger, nullable=False),
    Column("event_ids", ARRAY(Uuid), nullable=False),
    moment("created_at", default=True),
    moment("closed_at", nullable=True),
    Index(
        "batch_open",
        "shard_key",
        "scope_key",
        "generation_id",
        "stage",
        unique=True,
        postgresql_where=text("state = 'open'"),
    ),
    CheckConstraint("state IN ('open', 'applied', 'void', 'split', 'dead')", name="state"),
    CheckConstraint("cardinality(event_ids) > 0", name="events"),
    comment="Which events one model call covers, fixed before the call and reused by a replay",
)

answer = Table(
    "answer",
    metadata,
    key("shard_key"),
    key("batch_id"),
    Column("step", Text, primary_key=True),
    Column("model", Text, nullable=False),
    Column("prompt_hash", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    moment("created_at", default=True),
    comment="A model's raw answer, stored before it is applied; what is applied is always the stored one",
)

model_call = Table(
    "model_call",
    metadata,
    key("shard_key"),
    key("call_id"),
    Column("generation_id", Integer, nullable=False),
    Column("stage", Text, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    Column("step", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("prompt_hash", Text, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
    moment("created_at", default=True),
    comment="The ledger of cost, without content",
)

receipt = Table(
    "receipt",
    metadata,
    key("shard_key"),
    key("event_id"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    Column("stage", Text, primary_key=True),
    Column("outcome", Text, nullable=False),
    Column("batch_id", Uuid),
    moment("applied_at", default=True),
    CheckConstraint("outcome IN ('applied', 'void', 'dead')", name="outcome"),
    comment="That an event reached its end in a stage; written in the transaction of its effect",
)

dead_letter = Table(
    "dead_letter",
    metadata,
    key("shard_key"),
    key("session_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    Column("stage", Text, primary_key=True),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, nullable=False),
    Column("scope_key", Uuid, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("incarnation", Uuid, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    Column("reason", Text, nullable=False),
    moment("created_at", default=True),
    comment="A hole: an event that a lane went past, with the reason; its messages stay in the tail",
)

worker = Table(
    "worker",
    metadata,
    Column("worker_id", Uuid, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("stages", ARRAY(Text), nullable=False),
    moment("started_at", default=True),
    moment("heartbeat_at", default=True),
    comment="One heartbeat row per worker process; every lease it holds lives by it",
)
