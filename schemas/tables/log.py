"""The log and its marks: sessions, messages, flush events, and when to look at a session again."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from strandline.schemas.tables.base import SCHEMA, Erasure, Export, impersonal, key, moment, personal, table
from strandline.schemas.values.flush_event import TRACEPARENT
from strandline.schemas.values.message import ROLES, RUN_STATUSES

session_owner = table(
    "session_owner",
    key("shard_key"),
    Column("namespace", Text, nullable=False),
    personal("session_id", Text, nullable=False),
    personal("user_id", Text),
    Column("owner_key", Uuid, nullable=False),
    impersonal("kind", Text, nullable=False, server_default="chat"),
    moment("created_at", default=True),
    CheckConstraint("kind IN ('chat', 'source', 'instruction')", name="kind"),
    Index("session_owner_by_name", "namespace", "session_id"),
    Index("session_owner_by_user", "namespace", "user_id", "session_id"),
    comment="Directory: the owner of each session id; written once, before the session's first put",
    erasure=Erasure(
        "treated", why="deleted: the directory entries of the owner, each under the key of its session's name"
    ),
)

session = table(
    "session",
    key("shard_key"),
    key("session_key"),
    Column("incarnation", Uuid, nullable=False, server_default=func.gen_random_uuid()),
    Column("next_seq", BigInteger, nullable=False, server_default="1"),
    Column("log_start_seq", BigInteger, nullable=False, server_default="1"),
    # Where a history begins if important messages of lives that expired are kept; NULL: at log_start_seq.
    Column("first_kept", BigInteger),
    Column("pinned_through", BigInteger, nullable=False, server_default="0"),
    Column("window_from", BigInteger, nullable=False, server_default="1"),
    Column("flushed_through", BigInteger, nullable=False, server_default="0"),
    # The user's messages of the turn inside of which the window begins; they are shown before the window.
    Column("question_seqs", ARRAY(BigInteger)),
    Column("pinned_tokens", BigInteger, nullable=False, server_default="0"),
    Column("window_tokens", BigInteger, nullable=False, server_default="0"),
    Column("window_messages", Integer, nullable=False, server_default="0"),
    Column("window_bytes", BigInteger, nullable=False, server_default="0"),
    Column("replan_at_tokens", BigInteger, nullable=False, server_default="0"),
    Column("corrections", Integer, nullable=False, server_default="0"),
    Column("token_limit", Integer, nullable=False),
    Column("flush_at_tokens", Integer, nullable=False),
    Column("token_flush_size", Integer, nullable=False),
    Column("max_window_messages", Integer, nullable=False),
    Column("max_window_bytes", Integer, nullable=False),
    Column("message_flush_size", Integer),
    impersonal("deliver", Text, nullable=False, server_default="window"),
    impersonal("time_zone", Text),
    # The newest messages that replaced the prompt, in order.
    Column("prompts", ARRAY(BigInteger)),
    Column("idle_seconds", Integer),
    moment("last_put_at", default=True),
    moment("watched_until", nullable=True),
    moment("overdue_at", nullable=True),
    moment("created_at", default=True),
    Column("namespace", Text, nullable=False),
    personal("session_id", Text, nullable=False),
    personal("user_id", Text),
    impersonal("tokenizer", Text, nullable=False),
    impersonal("pipelines", ARRAY(Text), nullable=False),
    Column("max_facts", Integer),
    personal("shared_scope", Text),
    Column("shared_key", Uuid),
    # Of the owner's data keys, the first of its present life; 0: the session takes content in clear.
    Column("first_data_key", Integer, nullable=False, server_default=text("0")),
    # Its few different values are found without a look at each session.
    Index("session_by_pipelines", "pipelines"),
    Index("session_by_zone", "shard_key", "created_at", postgresql_where=text("time_zone IS NOT NULL")),
    # Its marks, counters and policy fit together: the trigger session_check (check_session_v1).
    comment="One conversation: its marks, its token count and its policy",
    postgresql_with={"fillfactor": "45", "autovacuum_vacuum_scale_factor": "0.02"},
    erasure=Erasure(
        "treated", why="deleted in the transaction that sets the fence, so that no put comes after it"
    ),
)

policy_change = table(
    "policy_change",
    key("shard_key"),
    key("session_key"),
    Column("number", Integer, primary_key=True, autoincrement=False),
    personal("before", JSONB, nullable=False),
    personal("after", JSONB, nullable=False),
    Column("flushed_through", BigInteger, nullable=False),
    personal("actor", Text),
    moment("created_at", default=True),
    comment="How a session's policy was changed, by whom, and through which message the one before held",
    erasure=Erasure("goes", "session_key"),
    export=Export("policy_change", "A change of a session's policy.", hides=("flushed_through",)),
)

message = table(
    "message",
    key("shard_key"),
    key("session_key"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("incarnation", Uuid, nullable=False),
    personal("id", Text, nullable=False),
    impersonal("role", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("bytes", Integer, nullable=False),
    personal("digest", LargeBinary, sealed="digest", nullable=False),
    personal("envelope", JSON, sealed="json message id", nullable=False),
    personal("metadata", JSON, sealed="json metadata id"),
    personal("calls", JSON, sealed="references"),
    personal("answers", JSON, sealed="references"),
    moment("created_at"),
    personal("labels", ARRAY(BigInteger), sealed="label"),
    Index("message_by_id", "shard_key", "incarnation", "id", unique=True),
    Index(
        "message_by_role",
        text(f"{SCHEMA}.role_key_v1(session_key, role)"),
        "created_at",
    ),
    Index(
        "message_by_label",
        "labels",
        postgresql_using="gin",
        postgresql_where=text("labels IS NOT NULL"),
        postgresql_with={"gin_pending_list_limit": 64},
    ),
    Index(
        "message_by_system",
        "shard_key",
        "session_key",
        "seq",
        postgresql_where=text("role IN ('system', 'developer')"),
    ),
    CheckConstraint(f"role IN ({', '.join(repr(role) for role in ROLES)})", name="role"),
    CheckConstraint("tokens >= 0", name="tokens"),
    comment="The append-only log: no row is ever updated",
    erasure=Erasure("goes", "session_key"),
    divided=True,
)

popped = table(
    "popped",
    key("shard_key"),
    key("session_key"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("pop_id", Uuid, nullable=False),
    moment("popped_at", default=True),
    comment="The numbers of messages that were removed from the log again",
    erasure=Erasure("goes", "session_key"),
)

correction = table(
    "correction",
    key("shard_key"),
    key("session_key"),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("correction_id", Uuid, nullable=False),
    Column("incarnation", Uuid, nullable=False),
    impersonal("kind", Text, nullable=False),
    Column("from_seq", BigInteger, nullable=False),
    Column("through_seq", BigInteger, nullable=False),
    personal("digest", LargeBinary, sealed="digest"),
    personal("actor", Text),
    moment("created_at", default=True),
    Index("correction_by_id", "shard_key", "correction_id", unique=True),
    CheckConstraint("kind IN ('rewind', 'replace')", name="kind"),
    CheckConstraint("(digest IS NULL) = (kind = 'rewind')", name="digest"),
    CheckConstraint("number >= 1 AND through_seq >= from_seq", name="range"),
    comment="How a session's log was corrected, by whom and when; none of what was taken back",
    erasure=Erasure("goes", "session_key"),
    export=Export(
        "correction",
        "A correction of a session's log.",
        hides=("correction_id", "incarnation", "digest"),
        named={"kind": "correction"},
    ),
)

superseded = table(
    "superseded",
    key("shard_key"),
    key("session_key"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("tokens", Integer, nullable=False),
    Column("was_delivered", Boolean, nullable=False),
    comment="Each message that a correction took back or replaced, without content",
    erasure=Erasure("goes", "session_key"),
)

session_run = table(
    "session_run",
    key("shard_key"),
    key("session_key"),
    personal("run_id", Text, primary_key=True),
    Column("number", Integer, nullable=False),
    impersonal("status", Text, nullable=False),
    personal("agent_id", Text),
    personal("team_id", Text),
    Column("seqs", ARRAY(BigInteger), nullable=False),
    personal("digests", ARRAY(LargeBinary), sealed="digest", nullable=False),
    moment("created_at", default=True),
    moment("changed_at", default=True),
    Index("session_run_by_number", "shard_key", "session_key", "number", unique=True),
    CheckConstraint(f"status IN ({', '.join(repr(status) for status in RUN_STATUSES)})", name="status"),
    CheckConstraint("number >= 1", name="number"),
    CheckConstraint("cardinality(seqs) = cardinality(digests)", name="digests"),
    comment="The runs of agents in a session: which messages each of them brought, and how it ended",
    erasure=Erasure("goes", "session_key"),
    export=Export("run", "A run of an agent, with the numbers of its messages.", hides=("digests",)),
)

flush_event = table(
    "flush_event",
    key("shard_key"),
    key("session_key"),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("incarnation", Uuid, nullable=False),
    impersonal("cause", Text, nullable=False),
    Column("message_count", Integer, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("version", SmallInteger, nullable=False),
    moment("created_at", default=True),
    # Of the span that flushed, in the form of W3C Trace Context; NULL where nothing was traced.
    impersonal("traceparent", Text),
    Index("flush_event_by_id", "shard_key", "event_id", unique=True),
    # For those who listen to a namespace; it grows at its end, once a flush.
    Index("flush_event_by_time", "created_at"),
    CheckConstraint(
        "cause IN ('threshold', 'idle', 'turn', 'manual', 'import', 'source', 'instruction')", name="cause"
    ),
    CheckConstraint("through_seq >= from_seq", name="range"),
    CheckConstraint(f"traceparent ~ '{TRACEPARENT}'", name="traceparent"),
    comment="The outbox: one immutable row per flush",
    erasure=Erasure("goes", "session_key"),
)

watch = table(
    "watch",
    key("shard_key"),
    key("session_key"),
    Column("watch_id", Uuid, primary_key=True, server_default=func.gen_random_uuid()),
    impersonal("cause", Text, nullable=False),
    moment("check_at"),
    Index("watch_by_time", "check_at"),
    CheckConstraint("cause IN ('idle', 'overdue')", name="cause"),
    comment="When the sweep is to look at a session: once per idle period, and after a crossing",
    erasure=Erasure("goes", "session_key"),
)
