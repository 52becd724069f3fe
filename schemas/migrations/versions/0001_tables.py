"""The tables and functions of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op
from pgvector.sqlalchemy import HALFVEC
from sqlalchemy.dialects import postgresql

from strandline.schemas.postgres.statements import function_source, in_schema

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# What users said or chose as a name, and what follows from it: of these Postgres keeps no statistics, which
# are samples of the values and outlive the rows.
WITHOUT_STATISTICS = {
    "answer": ("body",),
    "archived_input": ("id", "envelope", "metadata"),
    "audit_entry": ("actor", "origin"),
    "audit_sealed": ("actor", "origin"),
    "audit_subject": ("user_id",),
    "block_state": ("state",),
    "capture_act": ("capture", "actor"),
    "chunk": ("lexemes", "embedding", "code", "speaker"),
    "correction": ("digest", "actor"),
    "erasure": ("actor",),
    "fact": (
        "text",
        "fingerprint",
        "lexemes",
        "topics",
        "said_by",
        "about_date",
        "input",
        "agent_id",
        "team_id",
        "feedback",
    ),
    "fact_candidate": ("text", "fingerprint", "topics", "said_by", "about_date"),
    "fact_event": ("payload", "traces", "actor"),
    "fact_owner": ("user_id",),
    "fact_revision": ("text", "fingerprint", "lexemes", "own_text", "own_fingerprint", "own_lexemes"),
    "kept_response": ("body",),
    "message": ("id", "digest", "envelope", "metadata", "calls", "answers", "labels"),
    "policy_change": ("before", "after", "actor"),
    "replay": ("selection",),
    "retention_act": ("actor",),
    "service_key": ("user_id", "shared_scopes"),
    "session": ("session_id", "user_id", "shared_scope"),
    "session_owner": ("session_id", "user_id"),
    "session_retention_act": ("actor",),
    "session_run": ("run_id", "agent_id", "team_id", "digests"),
    "shared_message": ("id", "envelope", "metadata"),
    "shared_session": ("session_id",),
    "store_item": ("path", "key", "value", "vectors"),
}

# What grows with each message and stays: these four hold three quarters of all bytes. `strandline migrate
# --partitions` divides them by owner. What a lane does away with again (due), and what is bounded by the number
# of sessions or by condensing (session, lane, fact), is whole: it is read across owners, or small.
PARTITIONED = ("answer", "chunk", "message", "receipt")

# Puts in the simple case set none of these columns, so they pay nothing for it.
SESSION_CHECK = """
CREATE TRIGGER session_check AFTER INSERT OR UPDATE OF log_start_seq, pinned_through, window_from, flushed_through,
    pinned_tokens, deliver, shared_scope, shared_key
ON strandline.session FOR EACH ROW EXECUTE FUNCTION strandline.check_session_v1()
"""


def _create_service_tables(schema: str) -> None:
    op.create_table(
        "service_key",
        sa.Column("key_id", sa.Text(collation="C"), nullable=False),
        sa.Column("secret_digest", sa.LargeBinary(), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=True),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("shared_scopes", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("label", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("rotated_from", sa.Text(collation="C"), nullable=True),
        sa.Column("made_by", sa.Text(collation="C"), nullable=True),
        sa.Column("request_key", sa.Uuid(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("length(secret_digest) = 32", name=op.f("service_key_digest_check")),
        sa.CheckConstraint(
            "cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'facts', 'erase', 'operate']",
            name=op.f("service_key_scopes_check"),
        ),
        sa.CheckConstraint(
            "user_id IS NOT NULL OR shared_scopes = '{}'", name=op.f("service_key_shared_check")
        ),
        sa.CheckConstraint(
            "namespace IS NOT NULL OR (user_id IS NULL AND scopes = ARRAY['operate'])",
            name=op.f("service_key_bound_check"),
        ),
        sa.PrimaryKeyConstraint("key_id", name=op.f("service_key_pkey")),
        schema=schema,
        comment="Keys of the HTTP service: what each opens, and the digest of its secret; rarely written",
    )
    op.create_index(
        "service_key_by_namespace", "service_key", ["namespace", "key_id"], unique=False, schema=schema
    )
    op.create_index("service_key_by_request", "service_key", ["request_key"], unique=True, schema=schema)
    op.create_table(
        "kept_response",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("request_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=True),
        sa.Column("request_digest", sa.LargeBinary(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("shard_key", "request_key", name=op.f("kept_response_pkey")),
        schema=schema,
        comment="Responses to requests with an Idempotency-Key, for a day; what an owner said may be in them",
    )
    op.create_index("kept_response_by_age", "kept_response", ["created_at"], unique=False, schema=schema)


def upgrade() -> None:
    schema = context.config.attributes["schema"]
    partitions = context.config.attributes["partitions"]
    divided = "HASH (shard_key)" if partitions else None
    # Functions that the tables of chunks and messages need.
    for name in ("search_code_v1", "search_terms_v1", "role_key_v1"):
        op.execute(sa.text(function_source(name, schema).replace(":", "\\:")))
    op.create_table(
        "answer",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("prompt_hash", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("shard_key", "batch_id", "step", name=op.f("answer_pkey")),
        schema=schema,
        comment="A model's raw answer, stored before it is applied; only stored answers are applied",
        postgresql_partition_by=divided,
    )
    op.create_table(
        "batch",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("scope_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="open", nullable=False),
        sa.Column("lease_epoch", sa.BigInteger(), nullable=False),
        sa.Column("event_ids", sa.ARRAY(sa.Uuid()), nullable=False),
        sa.Column(
            "context_seqs",
            sa.ARRAY(sa.BigInteger()),
            server_default=sa.text("'{}'::bigint[]"),
            nullable=False,
        ),
        sa.Column("capture_number", sa.BigInteger(), nullable=True),
        sa.Column("capture_hash", sa.Text(), nullable=True),
        sa.Column("carried_from", sa.Integer(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('open', 'applied', 'void', 'split', 'dead')", name=op.f("batch_state_check")
        ),
        sa.CheckConstraint("cardinality(event_ids) > 0", name=op.f("batch_events_check")),
        sa.CheckConstraint(
            "(capture_number IS NULL) = (capture_hash IS NULL)", name=op.f("batch_capture_check")
        ),
        sa.PrimaryKeyConstraint("shard_key", "batch_id", name=op.f("batch_pkey")),
        schema=schema,
        comment="The events that one model call covers, fixed before the call and reused by a replay",
    )
    op.create_index(
        "batch_open",
        "batch",
        ["shard_key", "scope_key", "generation_id", "stage"],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_index(
        "batch_split",
        "batch",
        ["shard_key", "scope_key", "generation_id", "stage"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("state = 'split'"),
    )
    op.create_table(
        "block_state",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("scope_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("state", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint(
            "shard_key", "scope_key", "generation_id", "ordinal", name=op.f("block_state_pkey")
        ),
        schema=schema,
        comment="The state of an ordered lane after each batch, numbered; the newest one serves",
    )
    op.create_index(
        "block_state_by_batch", "block_state", ["shard_key", "batch_id"], unique=True, schema=schema
    )
    op.create_table(
        "derived_change",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("change_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column(
            "changed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("shard_key", "kind", "change_id", name=op.f("derived_change_pkey")),
        schema=schema,
        comment=(
            "The last transactions that changed an owner's pieces, or facts; nothing in memory outlives one"
        ),
    )
    op.create_table(
        "chunk",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("piece", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("lexemes", postgresql.TSVECTOR(), nullable=False),
        sa.Column("embedding", HALFVEC(), nullable=True),
        sa.Column(
            "code",
            postgresql.BIT(varying=True),
            sa.Computed(in_schema("strandline.search_code_v1(embedding)", schema), persisted=True),
            nullable=True,
        ),
        sa.Column("role", sa.Text(), server_default="", nullable=False),
        sa.Column("speaker", postgresql.ARRAY(sa.Text()), server_default="{}", nullable=False),
        sa.Column("tone", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("said_on", sa.Date(), nullable=True),
        sa.PrimaryKeyConstraint(
            "shard_key",
            "generation_id",
            "session_key",
            "from_seq",
            "piece",
            name=op.f("chunk_pkey"),
            postgresql_include=["through_seq", "code"],
        ),
        schema=schema,
        comment="A searchable piece of conversation: its messages by range, its lexemes and its vector",
        postgresql_partition_by=divided,
    )
    op.create_index(
        "chunk_terms",
        "chunk",
        [sa.text(in_schema("strandline.search_terms_v1(shard_key, generation_id, lexemes)", schema))],
        schema=schema,
        postgresql_using="gin",
        postgresql_with={"gin_pending_list_limit": 64},
    )
    op.create_table(
        "condensation",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("facts_before", sa.Integer(), nullable=False),
        sa.Column("facts_after", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "outcome IN ('applied', 'unchanged', 'refused')", name=op.f("condensation_outcome_check")
        ),
        sa.PrimaryKeyConstraint("shard_key", "generation_id", "batch_id", name=op.f("condensation_pkey")),
        schema=schema,
        comment="Each attempt to condense an owner's facts, and its outcome",
    )
    op.create_table(
        "correction",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("correction_id", sa.Uuid(), nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("kind IN ('rewind', 'replace')", name=op.f("correction_kind_check")),
        sa.CheckConstraint("(digest IS NULL) = (kind = 'rewind')", name=op.f("correction_digest_check")),
        sa.CheckConstraint("number >= 1 AND through_seq >= from_seq", name=op.f("correction_range_check")),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "number", name=op.f("correction_pkey")),
        schema=schema,
        comment="How a session's log was corrected, by whom and when; none of what was taken back",
    )
    op.create_index(
        "correction_by_id", "correction", ["shard_key", "correction_id"], unique=True, schema=schema
    )
    op.create_table(
        "dead_letter",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("scope_key", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("dropped_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retries", sa.SmallInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint(
            "shard_key", "session_key", "generation_id", "stage", "from_seq", name=op.f("dead_letter_pkey")
        ),
        schema=schema,
        comment="A hole: an event that a lane went past, and why; it stays in the tail until it is dropped",
    )
    op.create_index(
        "dead_letter_by_retry",
        "dead_letter",
        ["retry_at"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("retry_at IS NOT NULL"),
    )
    op.create_table(
        "due",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("scope_key", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "ring_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp() + interval '2 seconds'"),
            nullable=False,
        ),
        sa.Column("rings", sa.Integer(), server_default="0", nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("precedence", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("was_applied", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("ready_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retries", sa.SmallInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint(
            "shard_key", "session_key", "generation_id", "stage", "from_seq", name=op.f("due_pkey")
        ),
        schema=schema,
        comment="Work that a lane has to do: inserted by a flush (or an earlier stage), deleted by its apply",
        postgresql_with={"autovacuum_vacuum_scale_factor": "0.02", "autovacuum_vacuum_cost_delay": "0"},
    )
    op.create_index(
        "due_by_lane",
        "due",
        ["shard_key", "scope_key", "generation_id", "stage", "created_at"],
        unique=False,
        schema=schema,
    )
    op.create_index("due_by_ring", "due", ["stage", "ring_at"], unique=False, schema=schema)
    op.create_index(
        "due_by_turn",
        "due",
        ["stage", "precedence", "namespace", "shard_key", "created_at"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("ring_at < 'infinity'"),
    )
    op.create_index(
        "due_unrung",
        "due",
        ["stage", "shard_key", "scope_key", "generation_id"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("ring_at = 'infinity'"),
    )
    op.create_table(
        "fact",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fact_id", sa.Uuid(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("lexemes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("topics", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("said_by", sa.Text(), nullable=True),
        sa.Column("about_date", sa.Date(), nullable=True),
        sa.Column("said_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column(
            "valid_from",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("valid_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("live", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("invalidated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("invalidated_by", sa.Uuid(), nullable=True),
        sa.Column("condensed_into", sa.Uuid(), nullable=True),
        sa.Column("input", sa.Text(), nullable=True),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("team_id", sa.Text(), nullable=True),
        sa.Column("feedback", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "live = (invalidated_at IS NULL AND condensed_into IS NULL)", name=op.f("fact_live_check")
        ),
        sa.PrimaryKeyConstraint("shard_key", "generation_id", "fact_id", name=op.f("fact_pkey")),
        schema=schema,
        comment="The facts of an owner; an invalidated fact stays, with the fact that replaced it",
    )
    op.create_index(
        "fact_fingerprint",
        "fact",
        ["shard_key", "generation_id", "fingerprint"],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("live"),
    )
    op.create_index(
        "fact_recent",
        "fact",
        ["shard_key", "generation_id", sa.literal_column("said_at DESC")],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("live"),
    )
    op.create_table(
        "fact_candidate",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("seqs", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("topics", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("said_by", sa.Text(), nullable=True),
        sa.Column("about_date", sa.Date(), nullable=True),
        sa.Column("said_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("prompt_hash", sa.Text(), nullable=False),
        sa.Column("dropped_by", sa.BigInteger(), nullable=True),
        sa.Column("withheld_by", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint(
            "shard_key", "generation_id", "event_id", "ordinal", name=op.f("fact_candidate_pkey")
        ),
        schema=schema,
        comment=(
            "A candidate that extract found in one event; merge applies it, unless a person's event drops it"
        ),
    )
    op.create_table(
        "fact_event",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("fact_id", sa.Uuid(), nullable=True),
        sa.Column("payload", sa.JSON(), nullable=True),
        sa.Column(
            "traces",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'[]'::jsonb"),
            nullable=False,
        ),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("instruction", sa.Uuid(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "kind IN ('add', 'replace', 'delete', 'clear', 'feedback')", name=op.f("fact_event_kind_check")
        ),
        sa.CheckConstraint("(fact_id IS NULL) = (kind = 'clear')", name=op.f("fact_event_fact_check")),
        sa.PrimaryKeyConstraint("shard_key", "number", name=op.f("fact_event_pkey")),
        schema=schema,
        comment="The changes that people made to an owner's facts, in order; they outlive every derivation",
    )
    op.create_table(
        "fact_owner",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("shard_key", name=op.f("fact_owner_pkey")),
        schema=schema,
        comment="The namespace of an owner whom people gave facts, even without any session",
    )
    op.create_index("fact_owner_by_user", "fact_owner", ["namespace", "user_id"], schema=schema)
    op.create_table(
        "fact_revision",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("fact_id", sa.Uuid(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("operation", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("lexemes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("own_text", sa.Text(), nullable=True),
        sa.Column("own_fingerprint", sa.LargeBinary(), nullable=True),
        sa.Column("own_lexemes", sa.ARRAY(sa.Text()), nullable=True),
        sa.Column("event_id", sa.Uuid(), nullable=True),
        sa.Column("session_key", sa.Uuid(), nullable=True),
        sa.Column("seqs", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("extract_batch_id", sa.Uuid(), nullable=True),
        sa.Column("merge_batch_id", sa.Uuid(), nullable=True),
        sa.Column("condense_batch_id", sa.Uuid(), nullable=True),
        sa.Column("fact_event", sa.BigInteger(), nullable=True),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("prompt_hash", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "operation IN ('add', 'update', 'invalidate', 'duplicate', 'replace', 'condense')",
            name=op.f("fact_revision_operation_check"),
        ),
        sa.CheckConstraint(
            "num_nulls(event_id, session_key, extract_batch_id, merge_batch_id, model, prompt_hash) ="
            " CASE WHEN fact_event IS NULL THEN 0 ELSE 6 END AND (condense_batch_id IS NOT NULL) ="
            " (operation = 'condense')",
            name=op.f("fact_revision_source_check"),
        ),
        sa.CheckConstraint(
            "num_nulls(own_text, own_fingerprint, own_lexemes) IN (0, 3)",
            name=op.f("fact_revision_own_check"),
        ),
        sa.PrimaryKeyConstraint(
            "shard_key", "generation_id", "fact_id", "revision", name=op.f("fact_revision_pkey")
        ),
        schema=schema,
        comment=(
            "A fact's history and provenance: which messages, prompt and model, or which person, did what"
        ),
    )
    op.create_table(
        "flush_event",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.SmallInteger(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "cause IN ('threshold', 'idle', 'turn', 'manual', 'import', 'source', 'instruction')",
            name=op.f("flush_event_cause_check"),
        ),
        sa.CheckConstraint("through_seq >= from_seq", name=op.f("flush_event_range_check")),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "from_seq", name=op.f("flush_event_pkey")),
        schema=schema,
        comment="The outbox: one immutable row per flush",
    )
    op.create_index("flush_event_by_id", "flush_event", ["shard_key", "event_id"], unique=True, schema=schema)
    op.create_index("flush_event_by_time", "flush_event", ["created_at"], unique=False, schema=schema)
    op.create_table(
        "generation",
        sa.Column("generation_id", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("entry_stage", sa.Text(), nullable=False),
        sa.Column("entry_scope", sa.Text(), server_default="session", nullable=False),
        sa.Column(
            "config",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "prompts",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "fed_since",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=True,
        ),
        sa.Column("backfilled_through", sa.Uuid(), nullable=True),
        sa.Column("served_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "state_since",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("entry_scope IN ('session', 'owner')", name=op.f("generation_entry_scope_check")),
        sa.CheckConstraint(
            "state IN ('preparing', 'feeding', 'serving', 'retired')", name=op.f("generation_state_check")
        ),
        sa.CheckConstraint(
            "(fed_since IS NULL) = (state = 'preparing') OR state = 'retired'",
            name=op.f("generation_fed_since_check"),
        ),
        sa.PrimaryKeyConstraint("generation_id", name=op.f("generation_pkey")),
        schema=schema,
        comment="The pipelines, the recipe of each derivation, and which one serves",
    )
    op.create_table(
        "scope_generation",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("generation_id", sa.Integer(), nullable=False),
        sa.Column(
            "switched_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("paused_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("shard_key", "pipeline", name=op.f("scope_generation_pkey")),
        schema=schema,
        comment="Owners for whom another derivation serves than for the others, until all are through",
    )
    op.create_table(
        "replay",
        sa.Column("replay_id", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("pipeline", sa.Text(), nullable=False),
        sa.Column("generation_id", sa.Integer(), nullable=False),
        sa.Column(
            "selection",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("state", sa.Text(), server_default="running", nullable=False),
        sa.Column("held", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("position", sa.Uuid(), nullable=True),
        sa.Column("calls_per_second", sa.Double(), nullable=True),
        sa.Column("stop_asked", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "counts",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("kind IN ('new', 'in_place')", name=op.f("replay_kind_check")),
        sa.CheckConstraint("state IN ('running', 'stopped', 'done')", name=op.f("replay_state_check")),
        sa.PrimaryKeyConstraint("replay_id", name=op.f("replay_pkey")),
        schema=schema,
        comment="Each replay: its work and its progress",
    )
    op.create_table(
        "namespace_limit",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("max_lanes", sa.Integer(), nullable=True),
        sa.Column("max_lanes_per_worker", sa.Integer(), nullable=True),
        sa.Column("calls_per_day", sa.BigInteger(), nullable=True),
        sa.Column("tokens_per_day", sa.BigInteger(), nullable=True),
        sa.Column("usd_per_day", sa.Double(), nullable=True),
        sa.Column("agents_read_only", sa.Boolean(), nullable=True),
        sa.Column("max_sessions", sa.BigInteger(), nullable=True),
        sa.Column("max_bytes", sa.BigInteger(), nullable=True),
        sa.Column("waits_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("waits_for", sa.Text(), nullable=True),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "max_lanes >= 1 AND max_lanes_per_worker >= 1", name=op.f("namespace_limit_lanes_check")
        ),
        sa.CheckConstraint(
            "calls_per_day >= 0 AND tokens_per_day >= 0 AND usd_per_day >= 0",
            name=op.f("namespace_limit_budgets_check"),
        ),
        sa.CheckConstraint("agents_read_only", name=op.f("namespace_limit_agents_check")),
        sa.CheckConstraint("max_sessions >= 0 AND max_bytes >= 0", name=op.f("namespace_limit_bounds_check")),
        sa.CheckConstraint(
            "(waits_until IS NULL) = (waits_for IS NULL)", name=op.f("namespace_limit_waits_check")
        ),
        sa.PrimaryKeyConstraint("namespace", name=op.f("namespace_limit_pkey")),
        schema=schema,
        comment="The limits of a namespace, and until when its work waits; written by hand",
    )
    op.create_table(
        "namespace_rule",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("sessions", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("is_full", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("count_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("records_puts", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("least_ttl_seconds", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("namespace", name=op.f("namespace_rule_pkey")),
        schema=schema,
        comment="The rules and the use of a namespace, which each of its puts reads",
    )
    op.create_table(
        "budget_slice",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("worker_id", sa.Uuid(), nullable=False),
        sa.Column("calls_used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("calls_granted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens_used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("tokens_granted", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("usd_used", sa.Double(), server_default="0", nullable=False),
        sa.Column("usd_granted", sa.Double(), server_default="0", nullable=False),
        sa.Column(
            "expires_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("namespace", "day", "worker_id", name=op.f("budget_slice_pkey")),
        schema=schema,
        comment="The slices that each worker has taken of a namespace's budget of a day (UTC)",
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index("budget_slice_by_day", "budget_slice", ["day"], unique=False, schema=schema)
    op.create_table(
        "capture_act",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("owner_key", sa.Uuid(), nullable=True),
        sa.Column("capture", sa.JSON(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("namespace", "number", name=op.f("capture_act_pkey")),
        schema=schema,
        comment=(
            "Numbered acts on capturing: the choice of a namespace or of one owner in it; none is changed"
        ),
    )
    op.create_index(
        "capture_act_by_owner",
        "capture_act",
        ["namespace", "owner_key", "number"],
        unique=False,
        schema=schema,
    )
    op.create_table(
        "replay_budget",
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("calls_left", sa.Double(), nullable=False),
        sa.Column(
            "filled_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("pace", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("namespace", name=op.f("replay_budget_pkey")),
        schema=schema,
        comment="Model calls that may be made now, of replays by namespace, and by server; all workers share it",
    )
    op.create_index(
        "generation_serving",
        "generation",
        ["pipeline"],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("state = 'serving'"),
    )
    op.create_table(
        "lane",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("scope_key", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("lease_epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("holder", sa.Uuid(), nullable=True),
        sa.Column("leased_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "next_attempt_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "postponed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("postponements", sa.Integer(), server_default="0", nullable=False),
        sa.Column("failures", sa.Integer(), server_default="0", nullable=False),
        sa.Column("crashes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("namespace", sa.Text(collation="C"), nullable=True),
        sa.PrimaryKeyConstraint("shard_key", "scope_key", "generation_id", "stage", name=op.f("lane_pkey")),
        schema=schema,
        comment="The lease of a lane: its holder, its epoch, and when it may be tried again",
        postgresql_with={"fillfactor": "70", "autovacuum_vacuum_scale_factor": "0.02"},
    )
    op.create_index(
        "lane_held",
        "lane",
        ["holder"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("holder IS NOT NULL"),
    )
    op.create_table(
        "message",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("envelope", sa.JSON(), nullable=False),
        sa.Column("metadata", postgresql.JSON(astext_type=sa.Text()), nullable=True),
        sa.Column("calls", sa.JSON(), nullable=True),
        sa.Column("answers", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("labels", sa.ARRAY(sa.BigInteger()), nullable=True),
        sa.CheckConstraint(
            "role IN ('system', 'developer', 'user', 'assistant', 'tool')", name=op.f("message_role_check")
        ),
        sa.CheckConstraint("tokens >= 0", name=op.f("message_tokens_check")),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "seq", name=op.f("message_pkey")),
        schema=schema,
        comment="The append-only log: no row is ever updated",
        postgresql_partition_by=divided,
    )
    op.create_index(
        "message_by_id", "message", ["shard_key", "incarnation", "id"], unique=True, schema=schema
    )
    op.create_index(
        "message_by_role",
        "message",
        [sa.text(in_schema("strandline.role_key_v1(session_key, role)", schema)), "created_at"],
        unique=False,
        schema=schema,
    )
    op.create_index(
        "message_by_system",
        "message",
        ["shard_key", "session_key", "seq"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("role IN ('system', 'developer')"),
    )
    op.create_index(
        "message_by_label",
        "message",
        ["labels"],
        unique=False,
        schema=schema,
        postgresql_using="gin",
        postgresql_where=sa.text("labels IS NOT NULL"),
        postgresql_with={"gin_pending_list_limit": 64},
    )
    op.create_table(
        "model_call",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("call_id", sa.Uuid(), nullable=False),
        sa.Column(
            "generation_id",
            sa.Integer(),
            nullable=True,
            comment="NULL for a call that a producer made",
        ),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("prompt_hash", sa.Text(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("cost_usd", sa.Numeric(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("shard_key", "call_id", name=op.f("model_call_pkey")),
        schema=schema,
        comment="The ledger of cost, without content",
    )
    op.create_table(
        "policy_change",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("before", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("after", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("flushed_through", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "number", name=op.f("policy_change_pkey")),
        schema=schema,
        comment="How a session's policy was changed, by whom, and through which message the one before held",
    )
    op.create_table(
        "popped",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("pop_id", sa.Uuid(), nullable=False),
        sa.Column(
            "popped_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "seq", name=op.f("popped_pkey")),
        schema=schema,
        comment="The numbers of messages that were removed from the log again",
    )
    op.create_table(
        "receipt",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("batch_id", sa.Uuid(), nullable=True),
        sa.Column(
            "applied_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("outcome IN ('applied', 'void', 'dead')", name=op.f("receipt_outcome_check")),
        sa.PrimaryKeyConstraint("shard_key", "event_id", "generation_id", "stage", name=op.f("receipt_pkey")),
        schema=schema,
        comment="Records that an event reached its end in a stage; written in the transaction of its effect",
        postgresql_partition_by=divided,
    )
    op.create_index("receipt_by_time", "receipt", ["applied_at"], unique=False, schema=schema)
    op.create_table(
        "session",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("incarnation", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("next_seq", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("log_start_seq", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("first_kept", sa.BigInteger(), nullable=True),
        sa.Column("pinned_through", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("window_from", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("flushed_through", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("question_seq", sa.BigInteger(), nullable=True),
        sa.Column("pinned_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("window_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("window_messages", sa.Integer(), server_default="0", nullable=False),
        sa.Column("window_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("replan_at_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("corrections", sa.Integer(), server_default="0", nullable=False),
        sa.Column("token_limit", sa.Integer(), nullable=False),
        sa.Column("flush_at_tokens", sa.Integer(), nullable=False),
        sa.Column("token_flush_size", sa.Integer(), nullable=False),
        sa.Column("max_window_messages", sa.Integer(), nullable=False),
        sa.Column("max_window_bytes", sa.Integer(), nullable=False),
        sa.Column("message_flush_size", sa.Integer(), nullable=True),
        sa.Column("deliver", sa.Text(), server_default="window", nullable=False),
        sa.Column("time_zone", sa.Text(), nullable=True),
        sa.Column("prompts", sa.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("idle_seconds", sa.Integer(), nullable=True),
        sa.Column(
            "last_put_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("watched_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("overdue_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("tokenizer", sa.Text(), nullable=False),
        sa.Column("pipelines", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("max_facts", sa.Integer(), nullable=True),
        sa.Column("shared_scope", sa.Text(), nullable=True),
        sa.Column("shared_key", sa.Uuid(), nullable=True),
        sa.Column("first_data_key", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("shard_key", "session_key", name=op.f("session_pkey")),
        schema=schema,
        comment="One conversation: its marks, its token count and its policy",
        postgresql_with={"fillfactor": "45", "autovacuum_vacuum_scale_factor": "0.02"},
    )
    op.create_index(
        "session_by_zone",
        "session",
        ["shard_key", "created_at"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("time_zone IS NOT NULL"),
    )
    op.create_table(
        "session_owner",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("owner_key", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="chat", nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "kind IN ('chat', 'source', 'instruction')", name=op.f("session_owner_kind_check")
        ),
        sa.PrimaryKeyConstraint("shard_key", name=op.f("session_owner_pkey")),
        schema=schema,
        comment="Directory: the owner of each session id; written once, before the session's first put",
    )
    op.create_index(
        "session_owner_by_name", "session_owner", ["namespace", "session_id"], unique=False, schema=schema
    )
    op.create_index(
        "session_owner_by_user",
        "session_owner",
        ["namespace", "user_id", "session_id"],
        unique=False,
        schema=schema,
    )
    op.create_table(
        "session_run",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=True),
        sa.Column("team_id", sa.Text(), nullable=True),
        sa.Column("seqs", sa.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("digests", sa.ARRAY(sa.LargeBinary()), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "changed_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'running', 'paused', 'completed', 'cancelled', 'error')",
            name=op.f("session_run_status_check"),
        ),
        sa.CheckConstraint("number >= 1", name=op.f("session_run_number_check")),
        sa.CheckConstraint(
            "cardinality(seqs) = cardinality(digests)", name=op.f("session_run_digests_check")
        ),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "run_id", name=op.f("session_run_pkey")),
        schema=schema,
        comment="The runs of agents in a session: which messages each of them brought, and how it ended",
    )
    op.create_index(
        "session_run_by_number",
        "session_run",
        ["shard_key", "session_key", "number"],
        unique=True,
        schema=schema,
    )
    op.create_table(
        "superseded",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("was_delivered", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "seq", "number", name=op.f("superseded_pkey")),
        schema=schema,
        comment="Each message that a correction took back or replaced, without content",
    )
    op.create_table(
        "watch",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("watch_id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("check_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("cause IN ('idle', 'overdue')", name=op.f("watch_cause_check")),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "watch_id", name=op.f("watch_pkey")),
        schema=schema,
        comment="When the sweep is to look at a session: once per idle period, and after a crossing",
    )
    op.create_index("watch_by_time", "watch", ["check_at"], unique=False, schema=schema)
    op.create_table(
        "shared_session",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("owner_key", sa.Uuid(), nullable=False),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("gone_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "incarnation", name=op.f("shared_session_pkey")),
        schema=schema,
        comment=(
            "Incarnations of sessions that share with a scope; one that is gone was forgotten and is"
            " never shared again"
        ),
    )
    op.create_index(
        "shared_session_by_owner", "shared_session", ["owner_key", "session_key"], unique=False, schema=schema
    )
    op.create_table(
        "erasure_fence",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("scope_key", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column(
            "fenced_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("readmitted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("data_keys", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("shard_key", "scope_key", name=op.f("erasure_fence_pkey")),
        schema=schema,
        comment=(
            "Owners and sessions that were erased: nothing is written for them until they are readmitted"
        ),
    )
    op.create_index("erasure_fence_by_number", "erasure_fence", ["number"], unique=False, schema=schema)
    op.create_table(
        "erasure",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("erasure_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("namespace", sa.Text(), nullable=False),
        sa.Column("owner_key", sa.Uuid(), nullable=False),
        sa.Column("scope_key", sa.Uuid(), nullable=False),
        sa.Column("ledger_key", sa.Uuid(), nullable=False),
        sa.Column("state", sa.Text(), server_default="running", nullable=False),
        sa.Column(
            "steps",
            postgresql.JSONB(astext_type=sa.Text()),
            server_default=sa.text("'{}'::jsonb"),
            nullable=False,
        ),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("receipt", sa.Text(), nullable=True),
        sa.Column("rows_erased", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("missed", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column(
            "requested_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("fenced_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('user', 'session', 'readmission')", name=op.f("erasure_kind_check")),
        sa.CheckConstraint("state IN ('running', 'done')", name=op.f("erasure_state_check")),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (state = 'running')", name=op.f("erasure_finished_at_check")
        ),
        sa.PrimaryKeyConstraint("number", name=op.f("erasure_pkey")),
        sa.UniqueConstraint("erasure_id", name=op.f("erasure_erasure_id_key")),
        schema=schema,
        comment=(
            "Each erasure, with its steps and its receipt, and each readmission; none of them holds a name"
        ),
    )
    op.create_index(
        "erasure_by_owner", "erasure", ["owner_key", "scope_key", "number"], unique=False, schema=schema
    )
    op.create_table(
        "shared_message",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("envelope", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "seq", name=op.f("shared_message_pkey")),
        schema=schema,
        comment="Copies of what sessions shared with a scope, as searches of the scope show them",
    )
    op.create_table(
        "store_item",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("path", sa.Text(collation="C"), nullable=False),
        sa.Column("key", sa.Text(collation="C"), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("vectors", postgresql.ARRAY(HALFVEC()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("ttl_minutes", sa.Double(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint("(ttl_minutes IS NULL) = (expires_at IS NULL)", name=op.f("store_item_ttl_check")),
        sa.PrimaryKeyConstraint("shard_key", "path", "key", name=op.f("store_item_pkey")),
        schema=schema,
        comment="Values that an application keeps under a path and a key, with vectors of their texts",
    )
    op.create_index(
        "store_item_by_expiry",
        "store_item",
        ["expires_at"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("expires_at IS NOT NULL"),
    )
    op.create_table(
        "worker",
        sa.Column("worker_id", sa.Uuid(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("stages", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column(
            "unbuildable", sa.ARRAY(sa.Integer()), server_default=sa.text("'{}'::integer[]"), nullable=False
        ),
        sa.Column("condition", sa.JSON(), server_default=sa.text("'{}'::json"), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "heartbeat_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("worker_pkey")),
        schema=schema,
        comment="One heartbeat row per worker process; every lease it holds lives by it",
    )
    _create_service_tables(schema)
    _create_audit_tables(schema)
    _create_retention(schema)
    _create_sealing(schema)
    _create_partitions(schema, partitions)

    # These go to each partition as well.
    # A vector is read whole in a scan: out of line it would cost a second look-up per row (measured, 3x).
    op.execute(in_schema("ALTER TABLE strandline.chunk ALTER COLUMN embedding SET STORAGE PLAIN", schema))
    op.execute(in_schema("ALTER TABLE strandline.chunk ALTER COLUMN code SET STORAGE MAIN", schema))
    for table, columns in WITHOUT_STATISTICS.items():
        changes = ", ".join(f"ALTER COLUMN {column} SET STATISTICS 0" for column in columns)
        op.execute(in_schema(f"ALTER TABLE strandline.{table} {changes}", schema))
    _keep_no_statistics_of_terms(schema)
    for name in (
        "check_session_v1",
        "append_act_v1",
        # Erasures; the functions after them look at fences.
        "look_at_fence_v1",
        "erase_rows_v1",
        "erase_shared_v1",
        "move_calls_v1",
        "move_entries_v1",
        "erase_directory_v1",
        "erase_names_v1",
        "erase_items_v1",
        "erase_kept_items_v1",
        "erased_rows_v1",
        "owner_rows_v1",
        "look_at_bounds_v1",
        "claim_session_v1",
        "open_fact_lanes_v1",
        "record_call_v1",
        "add_data_key_v1",
        "window_v1",
        "expire_v1",
        "put_v1",
        "set_policy_v1",
        "flush_v1",
        "unfold_v1",
        "refold_v1",
        "remove_facts_v1",
        "stand_alone_v1",
        "take_apart_v1",
        "revive_facts_v1",
        "uncondense_v1",
        "read_event_words_v1",
        "find_condensed_quotes_v1",
        "replace_quotes_v1",
        "drop_unsourced_v1",
        "restate_facts_v1",
        "refresh_facts_v1",
        "forget_facts_v1",
        "forget_traces_v1",
        "take_lanes_v1",
        "reset_v1",
        "pop_v1",
        "find_window_v1",
        "release_forks_v1",
        "derive_again_v1",
        "rederive_v1",
        "correct_v1",
        "fork_v1",
        "search_small_v1",
        "search_big_v1",
        "search_v1",
        "index_part_v1",
        "search_hits_v1",
        "begin_batch_v1",
        "store_answer_v1",
        "may_start_v1",
        "may_derive_v1",
        "take_slice_v1",
        "admit_call_v1",
        "claim_lane_v1",
        "next_lane_v1",
        "take_turn_v1",
        "ring_due_v1",
        "bring_rings_forward_v1",
        "renew_lane_v1",
        "forget_shared_v1",
        "clear_shared_v1",
        "lock_shared_session_v1",
        "fits_condition_v1",
        "deliver_expired_v1",
        "give_up_step_v1",
        "plan_removal_v1",
        "remove_messages_v1",
        "part_removed_v1",
        "carry_facts_v1",
        "carry_base_v1",
        "restore_session_v1",
        "fence_v1",
        "session_rows_v1",
        "erase_session_v1",
        "readmit_v1",
    ):
        op.execute(sa.text(function_source(name, schema).replace(":", "\\:")))
    op.execute(in_schema(SESSION_CHECK, schema))


def _create_audit_tables(schema: str) -> None:
    op.create_table(
        "audit_level",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        _moment("updated_at"),
        sa.CheckConstraint("level IN ('off', 'changes', 'all')", name=op.f("audit_level_level_check")),
        sa.PrimaryKeyConstraint("namespace", name=op.f("audit_level_pkey")),
        schema=schema,
        comment="The level of a namespace's audit trail; a namespace without a row has 'changes'",
    )
    op.create_table(
        "audit_subject",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("subject", sa.Uuid(), nullable=False),
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("shard_key", name=op.f("audit_subject_pkey")),
        schema=schema,
        comment="The random pseudonym of an owner in the audit trail, until erasure deletes the row",
    )
    op.create_index("audit_subject_by_subject", "audit_subject", ["subject"], unique=False, schema=schema)
    op.create_table(
        "audit_entry",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("entry_id", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("subject", sa.Uuid(), nullable=True),
        sa.Column("session", sa.Uuid(), nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("count", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.Column("flags", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        _moment("created_at"),
        sa.PrimaryKeyConstraint("shard_key", "entry_id", name=op.f("audit_entry_pkey")),
        schema=schema,
        comment="Acts that no seal covers yet, under the key of whom they concern, until the sealer takes them",
    )
    op.create_table(
        "audit_chain",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("seals", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("pruned_seals", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("entries", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("pruned_seals BETWEEN 0 AND seals", name=op.f("audit_chain_pruned_check")),
        sa.PrimaryKeyConstraint("shard_key", name=op.f("audit_chain_pkey")),
        schema=schema,
        comment="A namespace's chain: how many seals it has; the row that sealers lock",
    )
    op.create_table(
        "audit_seal",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("entries", sa.Integer(), nullable=False),
        sa.Column("entries_before", sa.BigInteger(), nullable=False),
        sa.Column("entry_ids", sa.ARRAY(sa.Uuid()), nullable=False),
        sa.Column("leaves", sa.LargeBinary(), nullable=False),
        sa.Column("root", sa.LargeBinary(), nullable=False),
        sa.Column("previous", sa.LargeBinary(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("mac", sa.LargeBinary(), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "entries >= 1 AND cardinality(entry_ids) = entries", name=op.f("audit_seal_entries_check")
        ),
        sa.PrimaryKeyConstraint("shard_key", "number", name=op.f("audit_seal_pkey")),
        schema=schema,
        comment="A link of a namespace's chain: the Merkle root of its entries, with a MAC over the link before",
    )
    op.create_table(
        "audit_sealed",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("seal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("place", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("entry_id", sa.Uuid(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("origin_digest", sa.LargeBinary(), nullable=True),
        sa.Column("subject", sa.Uuid(), nullable=True),
        sa.Column("session", sa.Uuid(), nullable=True),
        sa.Column("seq", sa.BigInteger(), nullable=True),
        sa.Column("count", sa.BigInteger(), nullable=True),
        sa.Column("detail", sa.JSON(), nullable=True),
        sa.Column("flags", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("shard_key", "seal", "place", name=op.f("audit_sealed_pkey")),
        schema=schema,
        comment="Acts that a seal covers, in the order of the chain, under the key of their namespace's chain",
    )
    op.create_index(
        "audit_sealed_by_subject",
        "audit_sealed",
        ["shard_key", "subject"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("subject IS NOT NULL"),
    )


def _moment(name: str) -> sa.Column[object]:
    return sa.Column(
        name, sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False
    )


def _create_sealing(schema: str) -> None:
    """Encryption at rest: which namespaces are sealed, and the wrapped keys of owners."""
    op.create_table(
        "encryption",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("kek_id", sa.Text(), nullable=False),
        sa.Column("probe", sa.LargeBinary(), nullable=False),
        sa.Column("vectors", sa.Text(), nullable=False),
        *(
            sa.Column(
                name,
                sa.DateTime(timezone=True),
                server_default=sa.text("clock_timestamp()"),
                nullable=False,
            )
            for name in ("enabled_at", "changed_at")
        ),
        sa.CheckConstraint("vectors IN ('clear', 'off')", name=op.f("encryption_vectors_check")),
        sa.PrimaryKeyConstraint("namespace", name=op.f("encryption_pkey")),
        schema=schema,
        comment="The namespaces whose content is sealed, and the key that wraps the keys of their owners",
    )
    op.create_table(
        "data_key",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("kek_id", sa.Text(), nullable=False),
        sa.Column("wrapped", sa.LargeBinary(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("number >= 1", name=op.f("data_key_number_check")),
        sa.PrimaryKeyConstraint("shard_key", "number", name=op.f("data_key_pkey")),
        schema=schema,
        comment="Wrapped keys of owners: a data key, by its number, with the search key, which stays the same",
    )
    for name, columns in (
        ("data_key_by_namespace", ["namespace", "shard_key", "number"]),
        ("data_key_by_kek", ["kek_id", "shard_key", "number"]),
    ):
        op.create_index(name, "data_key", columns, unique=False, schema=schema)
    op.create_index(
        "data_key_unsettled",
        "data_key",
        ["namespace", "shard_key"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("settled_at IS NULL"),
    )


def _create_retention(schema: str) -> None:
    op.create_table(
        "retention_act",
        sa.Column("namespace", sa.Text(collation="C"), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ttl_seconds", sa.BigInteger(), nullable=True),
        sa.Column("max_age_seconds", sa.BigInteger(), nullable=True),
        sa.Column("max_messages", sa.BigInteger(), nullable=True),
        sa.Column("forget_facts", sa.Boolean(), nullable=True),
        sa.Column("archive", sa.Text(), nullable=True),
        sa.Column("keeps_important", sa.Boolean(), nullable=True),
        sa.Column("ages", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "ttl_seconds >= 0 AND max_age_seconds >= 0 AND max_messages >= 0",
            name=op.f("retention_act_bounds_check"),
        ),
        sa.PrimaryKeyConstraint("namespace", "number", name=op.f("retention_act_pkey")),
        schema=schema,
        comment="Numbered acts on retention in a namespace; none is changed, and the newest one applies",
    )
    op.create_table(
        "session_retention_act",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ttl_seconds", sa.BigInteger(), nullable=True),
        sa.Column("max_age_seconds", sa.BigInteger(), nullable=True),
        sa.Column("max_messages", sa.BigInteger(), nullable=True),
        sa.Column("forget_facts", sa.Boolean(), nullable=True),
        sa.Column("archive", sa.Text(), nullable=True),
        sa.Column("tightened", sa.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.CheckConstraint(
            "ttl_seconds >= 0 AND max_age_seconds >= 0 AND max_messages >= 0",
            name=op.f("session_retention_act_bounds_check"),
        ),
        sa.PrimaryKeyConstraint(
            "shard_key", "session_key", "number", name=op.f("session_retention_act_pkey")
        ),
        schema=schema,
        comment="The same of one session; what an act leaves open is as its namespace's act says",
    )
    op.create_table(
        "expired_life",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("pinned_through", sa.BigInteger(), nullable=False),
        sa.Column("flushed_through", sa.BigInteger(), nullable=False),
        sa.Column(
            "expired_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "incarnation", name=op.f("expired_life_pkey")),
        schema=schema,
        comment="Lives of sessions that ended for want of puts: no read shows them, their work goes on",
    )
    op.create_index(
        "expired_life_waiting",
        "expired_life",
        ["shard_key", "session_key"],
        unique=False,
        schema=schema,
        postgresql_where=sa.text("removed_at IS NULL"),
    )
    op.create_table(
        "retention_step",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("step_id", sa.Uuid(), nullable=False),
        sa.Column("incarnation", sa.Uuid(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="planned", nullable=False),
        sa.Column("forget_facts", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("archive", sa.Text(), nullable=True),
        sa.Column("object_name", sa.Text(), nullable=True),
        sa.Column("object_digest", sa.Text(), nullable=True),
        sa.Column("rows_digest", sa.Text(), nullable=True),
        sa.Column("messages", sa.Integer(), server_default="0", nullable=False),
        sa.Column("removed", sa.Integer(), server_default="0", nullable=False),
        sa.Column(
            "kept_seqs", sa.ARRAY(sa.BigInteger()), server_default=sa.text("'{}'::bigint[]"), nullable=False
        ),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column(
            "acts", sa.ARRAY(sa.BigInteger()), server_default=sa.text("'{}'::bigint[]"), nullable=False
        ),
        sa.Column(
            "planned_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("attempted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("read_back_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "(state = 'removed') = (removed_at IS NOT NULL)", name=op.f("retention_step_removed_check")
        ),
        sa.CheckConstraint("cause IN ('ttl', 'age', 'number')", name=op.f("retention_step_cause_check")),
        sa.CheckConstraint(
            "state IN ('planned', 'archived', 'read_back', 'removed')",
            name=op.f("retention_step_state_check"),
        ),
        sa.CheckConstraint("through_seq >= from_seq", name=op.f("retention_step_range_check")),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "from_seq", name=op.f("retention_step_pkey")),
        schema=schema,
        comment="Ranges of messages on their way out of the log, and those that left it: where they are archived",
    )
    op.create_index(
        "retention_step_open",
        "retention_step",
        ["shard_key", "session_key"],
        unique=True,
        schema=schema,
        postgresql_where=sa.text("state <> 'removed'"),
    )
    op.create_table(
        "given_up_step",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("step_id", sa.Uuid(), nullable=False),
        sa.Column("from_seq", sa.BigInteger(), nullable=False),
        sa.Column("through_seq", sa.BigInteger(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("archive", sa.Text(), nullable=True),
        sa.Column("object_name", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column(
            "given_up_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("shard_key", "session_key", "step_id", name=op.f("given_up_step_pkey")),
        schema=schema,
        comment="Steps that were given up having removed nothing, and what they left in archives",
    )
    op.create_table(
        "retention_run",
        sa.Column("run_id", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("namespace", sa.Text(collation="C"), nullable=True),
        sa.Column("state", sa.Text(), server_default="running", nullable=False),
        sa.Column("position_shard", sa.Uuid(), nullable=True),
        sa.Column("position_session", sa.Uuid(), nullable=True),
        sa.Column("counts", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        sa.Column(
            "started_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column(
            "updated_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("clock_timestamp()"),
            nullable=False,
        ),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('running', 'done')", name=op.f("retention_run_state_check")),
        sa.PrimaryKeyConstraint("run_id", name=op.f("retention_run_pkey")),
        schema=schema,
        comment="Each pass over all sessions: how far it is, and what it did",
    )
    op.create_table(
        "archived_input",
        sa.Column("shard_key", sa.Uuid(), nullable=False),
        sa.Column("session_key", sa.Uuid(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("generation_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("envelope", sa.JSON(), nullable=False),
        sa.Column("metadata", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "shard_key", "session_key", "seq", "generation_id", name=op.f("archived_input_pkey")
        ),
        schema=schema,
        comment="Messages from the archive that a new derivation is made of; no read shows them",
    )


def _create_partitions(schema: str, partitions: int) -> None:
    for table in PARTITIONED:
        for number in range(partitions):
            part = f"CREATE TABLE strandline.{table}_p{number} PARTITION OF strandline.{table}"
            values = f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
            op.execute(in_schema(f"{part} {values}", schema))


def _keep_no_statistics_of_terms(schema: str) -> None:
    """Of the hashes of words; a change of a divided index does not go to its partitions."""
    indexes = op.get_bind().scalars(
        sa.text("SELECT relid::regclass::text FROM pg_partition_tree(CAST(:index AS regclass))"),
        {"index": f"{schema}.chunk_terms"},
    )
    for index in indexes.all() or [f"{schema}.chunk_terms"]:
        op.execute(f"ALTER INDEX {index} ALTER COLUMN 1 SET STATISTICS 0")
