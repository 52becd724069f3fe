"""The work and how it is done: generations, due rows, lanes, batches, answers, receipts, workers."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    SmallInteger,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from strandline.schemas.tables.base import Erasure, Export, impersonal, key, moment, personal, table

generation = table(
    "generation",
    Column("generation_id", Integer, Identity(always=True), primary_key=True),
    impersonal("pipeline", Text, nullable=False),
    impersonal("version", Text, nullable=False),
    impersonal("state", Text, nullable=False),
    impersonal("entry_stage", Text, nullable=False),
    impersonal("entry_scope", Text, nullable=False, server_default="session"),
    impersonal("config", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    impersonal("prompts", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    moment("created_at", default=True),
    Column("fed_since", DateTime(timezone=True), server_default=func.clock_timestamp()),
    Column("backfilled_through", Uuid),
    moment("served_until", nullable=True),
    # For those who listen: when it came to its state.
    moment("state_since", default=True),
    Index("generation_serving", "pipeline", unique=True, postgresql_where=text("state = 'serving'")),
    CheckConstraint("state IN ('preparing', 'feeding', 'serving', 'retired')", name="state"),
    CheckConstraint("(fed_since IS NULL) = (state = 'preparing') OR state = 'retired'", name="fed_since"),
    CheckConstraint("entry_scope IN ('session', 'owner')", name="entry_scope"),
    comment="The pipelines, the recipe of each derivation, and which one serves",
    erasure=Erasure("kept", why="recipes of the application, without owners"),
)

scope_generation = table(
    "scope_generation",
    key("shard_key"),
    impersonal("pipeline", Text, primary_key=True),
    Column("generation_id", Integer, nullable=False),
    moment("switched_at", default=True),
    moment("paused_until", nullable=True),
    comment="Owners for whom another derivation serves than for the others, until all are through",
    erasure=Erasure("goes"),
)

replay = table(
    "replay",
    Column("replay_id", Integer, Identity(always=True), primary_key=True),
    impersonal("kind", Text, nullable=False),
    impersonal("pipeline", Text, nullable=False),
    Column("generation_id", Integer, nullable=False),
    personal("selection", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    impersonal("state", Text, nullable=False, server_default="running"),
    Column("held", Boolean, nullable=False, server_default=text("false")),
    Column("position", Uuid),
    Column("calls_per_second", Double),
    # The process that carries it on reads this where it writes down how far it is.
    Column("stop_asked", Boolean, nullable=False, server_default=text("false")),
    impersonal("counts", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    moment("started_at", default=True),
    moment("updated_at", default=True),
    CheckConstraint("kind IN ('new', 'in_place')", name="kind"),
    CheckConstraint("state IN ('running', 'stopped', 'done')", name="state"),
    comment="Each replay: its work and its progress",
    erasure=Erasure("treated", why="the names of the user and of the sessions in the selection are replaced"),
)

replay_budget = table(
    "replay_budget",
    Column("namespace", Text, primary_key=True),
    Column("calls_left", Double, nullable=False),
    moment("filled_at", default=True),
    # Of a model server that limits calls: the recent calls of all workers, and its limit, as JSON.
    impersonal("pace", Text),
    comment="Model calls that may be made now, of replays by namespace, and by server; all workers share it",
    erasure=Erasure("kept", why="allowances of namespaces and of model servers, without owners"),
)

due = table(
    "due",
    key("shard_key"),
    key("session_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    impersonal("stage", Text, primary_key=True),
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
    # Turns go by these two: 0 is live, 1 was imported or is derived again.
    Column("namespace", Text(collation="C"), nullable=False),
    Column("precedence", SmallInteger, nullable=False, server_default="0"),
    # It was derived before, and is to be again: a reset that forgets nothing leaves it.
    Column("was_applied", Boolean, nullable=False, server_default=text("false")),
    # It waits until then for what may share its model call; NULL: it does not wait.
    moment("ready_at", nullable=True),
    # How often its dead letter was retried by itself.
    Column("retries", SmallInteger, nullable=False, server_default="0"),
    Index("due_by_lane", "shard_key", "scope_key", "generation_id", "stage", "created_at"),
    Index("due_by_ring", "stage", "ring_at"),
    Index(
        "due_by_turn",
        "stage",
        "precedence",
        "namespace",
        "shard_key",
        "created_at",
        postgresql_where=text("ring_at < 'infinity'"),
    ),
    Index(
        "due_unrung",
        "stage",
        "shard_key",
        "scope_key",
        "generation_id",
        postgresql_where=text("ring_at = 'infinity'"),
    ),
    comment="Work that a lane has to do: inserted by a flush (or an earlier stage), deleted by its apply",
    postgresql_with={"autovacuum_vacuum_scale_factor": "0.02", "autovacuum_vacuum_cost_delay": "0"},
    erasure=Erasure("goes", "session_key"),
)

lane = table(
    "lane",
    key("shard_key"),
    key("scope_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    impersonal("stage", Text, primary_key=True),
    Column("lease_epoch", BigInteger, nullable=False, server_default="0"),
    Column("holder", Uuid),
    moment("leased_at", nullable=True),
    moment("deadline_at", nullable=True),
    moment("next_attempt_at", default=True),
    moment("postponed_at", default=True),
    Column("postponements", Integer, nullable=False, server_default="0"),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("crashes", Integer, nullable=False, server_default="0"),
    impersonal("last_error", Text),
    Column("namespace", Text(collation="C")),
    Index("lane_held", "holder", postgresql_where=text("holder IS NOT NULL")),
    comment="The lease of a lane: its holder, its epoch, and when it may be tried again",
    postgresql_with={"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.02"},
    erasure=Erasure(
        "treated", why="deleted in the transaction that sets the fence, so that no worker writes after it"
    ),
)

batch = table(
    "batch",
    key("shard_key"),
    key("batch_id"),
    Column("scope_key", Uuid, nullable=False),
    Column("generation_id", Integer, nullable=False),
    impersonal("stage", Text, nullable=False),
    impersonal("state", Text, nullable=False, server_default="open"),
    Column("lease_epoch", BigInteger, nullable=False),
    Column("event_ids", ARRAY(Uuid), nullable=False),
    Column("context_seqs", ARRAY(BigInteger), nullable=False, server_default=text("'{}'::bigint[]")),
    # The newest act on capturing that applies to its events (capture_act), and a digest of what applies.
    Column("capture_number", BigInteger),
    impersonal("capture_hash", Text),
    # The derivation that its results were taken over from, since the messages are gone.
    Column("carried_from", Integer),
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
    Index(
        "batch_split",
        "shard_key",
        "scope_key",
        "generation_id",
        "stage",
        postgresql_where=text("state = 'split'"),
    ),
    CheckConstraint("state IN ('open', 'applied', 'void', 'split', 'dead')", name="state"),
    CheckConstraint("cardinality(event_ids) > 0", name="events"),
    CheckConstraint("(capture_number IS NULL) = (capture_hash IS NULL)", name="capture"),
    comment="The events that one model call covers, fixed before the call and reused by a replay",
    erasure=Erasure("goes", "scope_key"),
)

answer = table(
    "answer",
    key("shard_key"),
    key("batch_id"),
    impersonal("step", Text, primary_key=True),
    impersonal("model", Text, nullable=False),
    impersonal("prompt_hash", Text, nullable=False),
    personal("body", LargeBinary, sealed="bytes answer", nullable=False),
    moment("created_at", default=True),
    comment="A model's raw answer, stored before it is applied; only stored answers are applied",
    erasure=Erasure("goes"),
    divided=True,
)

model_call = table(
    "model_call",
    key("shard_key"),
    key("call_id"),
    Column("generation_id", Integer, comment="NULL for a call that a producer made"),
    impersonal("stage", Text, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    impersonal("step", Text, nullable=False),
    impersonal("model", Text, nullable=False),
    impersonal("prompt_hash", Text, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("cost_usd", Numeric),
    moment("created_at", default=True),
    comment="The ledger of cost, without content",
    erasure=Erasure("treated", why="moved to a random key: the ledger of cost stays, and leads to no name"),
    export=Export(
        "model_call",
        "A model call in the ledger, without content.",
        title="Call",
        of_session="@is_call_of(t, %(shard_key)s, %(session_key)s)",
    ),
)

receipt = table(
    "receipt",
    key("shard_key"),
    key("event_id"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    impersonal("stage", Text, primary_key=True),
    impersonal("outcome", Text, nullable=False),
    Column("batch_id", Uuid),
    moment("applied_at", default=True),
    # For those who listen to a namespace; it grows at its end, once a stage of a flush.
    Index("receipt_by_time", "applied_at"),
    CheckConstraint("outcome IN ('applied', 'void', 'dead')", name="outcome"),
    comment="Records that an event reached its end in a stage; written in the transaction of its effect",
    erasure=Erasure("goes"),
    divided=True,
)

dead_letter = table(
    "dead_letter",
    key("shard_key"),
    key("session_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    impersonal("stage", Text, primary_key=True),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, nullable=False),
    Column("scope_key", Uuid, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("incarnation", Uuid, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    impersonal("reason", Text, nullable=False),
    moment("created_at", default=True),
    moment("dropped_at", nullable=True),
    # When workers try it again by themselves, and how often they have.
    moment("retry_at", nullable=True),
    Column("retries", SmallInteger, nullable=False, server_default="0"),
    Index("dead_letter_by_retry", "retry_at", postgresql_where=text("retry_at IS NOT NULL")),
    comment="A hole: an event that a lane went past, and why; it stays in the tail until it is dropped",
    erasure=Erasure("goes", "session_key"),
    export=Export(
        "dead_letter",
        "An event that a stage went past, and why.",
        hides=("scope_key", "incarnation", "batch_id", "retry_at", "retries"),
    ),
)

worker = table(
    "worker",
    Column("worker_id", Uuid, primary_key=True),
    impersonal("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    impersonal("version", Text, nullable=False),
    impersonal("stages", ARRAY(Text), nullable=False),
    Column("unbuildable", ARRAY(Integer), nullable=False, server_default=text("'{}'::integer[]")),
    impersonal("condition", JSON, nullable=False, server_default=text("'{}'::json")),
    moment("started_at", default=True),
    moment("heartbeat_at", default=True),
    comment="One heartbeat row per worker process; every lease it holds lives by it",
    erasure=Erasure("kept", why="processes of the operator"),
)
