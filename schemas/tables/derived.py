"""The tables of derived memory: candidates, facts and their revisions, states, chunks, shared rows."""

from __future__ import annotations

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Date,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import BIT, JSONB, TSVECTOR

from strandline.schemas.tables.base import SCHEMA, Erasure, Export, impersonal, key, moment, personal, table

fact_candidate = table(
    "fact_candidate",
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("event_id"),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("session_key", Uuid, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    personal("text", Text, sealed="text fact", nullable=False),
    personal("fingerprint", LargeBinary, sealed="digest", nullable=False),
    Column("seqs", ARRAY(BigInteger), nullable=False),
    personal("topics", ARRAY(Text), sealed="name topic", nullable=False),
    personal("said_by", Text, sealed="name said_by"),
    personal("about_date", Date),
    moment("said_at"),
    impersonal("model", Text, nullable=False),
    impersonal("prompt_hash", Text, nullable=False),
    Column("dropped_by", BigInteger),
    # The act that had an operation switched off without which it could not become a fact.
    Column("withheld_by", BigInteger),
    comment="A candidate that extract found in one event; merge applies it, unless a person's event drops it",
    erasure=Erasure("goes", "session_key"),
    export=Export(
        "fact_candidate",
        "A possible fact that was found in messages.",
        title="Candidate",
        hides=("fingerprint",),
    ),
)

fact = table(
    "fact",
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("fact_id"),
    personal("text", Text, sealed="text fact", nullable=False),
    personal("fingerprint", LargeBinary, sealed="digest", nullable=False),
    personal("lexemes", ARRAY(Text), sealed="word", nullable=False),
    personal("topics", ARRAY(Text), sealed="name topic", nullable=False),
    personal("said_by", Text, sealed="name said_by"),
    personal("about_date", Date),
    moment("said_at"),
    moment("valid_from", default=True),
    moment("valid_until", nullable=True),
    Column("live", Boolean, nullable=False, server_default=text("true")),
    moment("invalidated_at", nullable=True),
    Column("invalidated_by", Uuid),
    Column("condensed_into", Uuid),
    personal("input", Text, sealed="text input"),
    personal("agent_id", Text),
    personal("team_id", Text),
    personal("feedback", Text, sealed="text feedback"),
    # The refused decision on another fact, for which this one was added.
    impersonal("doubt_operation", Text),
    impersonal("doubt_reason", Text),
    Column("doubt_fact_id", Uuid),
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
    CheckConstraint("live = (invalidated_at IS NULL AND condensed_into IS NULL)", name="live"),
    CheckConstraint("num_nulls(doubt_operation, doubt_reason, doubt_fact_id) IN (0, 3)", name="doubt"),
    comment="The facts of an owner; an invalidated fact stays, with the fact that replaced it",
    erasure=Erasure("goes"),
    export=Export(
        "fact",
        "A fact of one derivation, ended ones included.",
        hides=("fingerprint", "lexemes"),
        of_session="@is_fact_of(t, %(shard_key)s, %(session_key)s)",
    ),
)

fact_revision = table(
    "fact_revision",
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("fact_id"),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    impersonal("operation", Text, nullable=False),
    personal("text", Text, sealed="text fact", nullable=False),
    personal("fingerprint", LargeBinary, sealed="digest", nullable=False),
    personal("lexemes", ARRAY(Text), sealed="word", nullable=False),
    personal("own_text", Text, sealed="text fact"),
    personal("own_fingerprint", LargeBinary, sealed="digest"),
    personal("own_lexemes", ARRAY(Text), sealed="word"),
    Column("event_id", Uuid),
    Column("session_key", Uuid),
    Column("seqs", ARRAY(BigInteger), nullable=False),
    Column("extract_batch_id", Uuid),
    Column("merge_batch_id", Uuid),
    Column("condense_batch_id", Uuid),
    Column("fact_event", BigInteger),
    impersonal("model", Text),
    impersonal("prompt_hash", Text),
    moment("created_at", default=True),
    CheckConstraint(
        "operation IN ('add', 'update', 'invalidate', 'duplicate', 'replace', 'condense')", name="operation"
    ),
    CheckConstraint(
        "num_nulls(event_id, session_key, extract_batch_id, merge_batch_id, model, prompt_hash)"
        " = CASE WHEN fact_event IS NULL THEN 0 ELSE 6 END"
        " AND (condense_batch_id IS NOT NULL) = (operation = 'condense')",
        name="source",
    ),
    CheckConstraint("num_nulls(own_text, own_fingerprint, own_lexemes) IN (0, 3)", name="own"),
    comment="A fact's history and provenance: which messages, prompt and model, or which person, did what",
    erasure=Erasure("goes"),
    export=Export(
        "fact_revision",
        "A change of a fact, and its provenance: messages, prompt and model, or the edit by its number.",
        title="Revision",
        hides=("fingerprint", "lexemes", "own_fingerprint", "own_lexemes"),
        named={"fact_event": "edit"},
    ),
)

fact_event = table(
    "fact_event",
    key("shard_key"),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    impersonal("kind", Text, nullable=False),
    Column("fact_id", Uuid),
    personal(
        "payload",
        JSON,
        sealed="within text=text:fact;input=text:input;feedback=text:feedback;topics.*=name:topic",
    ),
    personal("traces", JSONB, sealed="traces", nullable=False, server_default=text("'[]'::jsonb")),
    # Sessions with the first and last of their messages that no worker had read.
    impersonal("waiting", JSONB, nullable=False, server_default=text("'[]'::jsonb")),
    personal("actor", Text),
    # The event of the instruction that asked for this change, if one did.
    Column("instruction", Uuid),
    moment("created_at", default=True),
    CheckConstraint("kind IN ('add', 'replace', 'delete', 'clear', 'feedback')", name="kind"),
    CheckConstraint("(fact_id IS NULL) = (kind = 'clear')", name="fact"),
    comment="The changes that people made to an owner's facts, in order; they outlive every derivation",
    erasure=Erasure("goes"),
    export=Export(
        "fact_edit",
        "An edit of a fact by a person or an agent; the words of deleted ones are gone.",
        title="Edit",
        hides=("traces", "waiting"),
        named={"kind": "edit"},
    ),
)

former_fact = table(
    "former_fact",
    key("shard_key"),
    key("session_key"),
    key("fact_id"),
    Column("seqs", ARRAY(BigInteger), nullable=False),
    personal("fingerprints", ARRAY(LargeBinary), sealed="digest", nullable=False),
    # Of the fact, which has it again if the same messages give it again.
    moment("created_at"),
    comment="The messages and words of facts that went, by which their successors are found",
    erasure=Erasure("goes", "session_key"),
)

fact_owner = table(
    "fact_owner",
    key("shard_key"),
    Column("namespace", Text, nullable=False),
    personal("user_id", Text),
    Index("fact_owner_by_user", "namespace", "user_id"),
    comment="The namespace of an owner whom people gave facts, even without any session",
    erasure=Erasure("goes"),
)

condensation = table(
    "condensation",
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("batch_id"),
    impersonal("outcome", Text, nullable=False),
    Column("facts_before", Integer, nullable=False),
    Column("facts_after", Integer, nullable=False),
    impersonal("reason", Text),
    moment("created_at", default=True),
    CheckConstraint("outcome IN ('applied', 'unchanged', 'refused')", name="outcome"),
    comment="Each attempt to condense an owner's facts, and its outcome",
    erasure=Erasure("goes"),
)

block_state = table(
    "block_state",
    key("shard_key"),
    key("scope_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    Column("ordinal", BigInteger, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, nullable=False),
    personal("state", JSONB, sealed="json state", nullable=False),
    Column("batch_id", Uuid, nullable=False),
    moment("created_at", default=True),
    Index("block_state_by_batch", "shard_key", "batch_id", unique=True),
    comment="The state of an ordered lane after each batch, numbered; the newest one serves",
    erasure=Erasure("goes", "scope_key"),
)

chunk = table(
    "chunk",
    key("shard_key"),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    key("session_key"),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("piece", Integer, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("batch_id", Uuid, nullable=False),
    Column("length", Integer, nullable=False),
    personal("lexemes", TSVECTOR, sealed="tsvector", nullable=False),
    # A vector is read whole in a scan: out of line it would cost a second look-up per row (measured, 3x).
    personal("embedding", HALFVEC, sealed="vector", storage="PLAIN"),
    personal(
        "code",
        BIT(varying=True),
        Computed(f"{SCHEMA}.search_code_v1(embedding)", persisted=True),
        storage="MAIN",
    ),
    # Who speaks, how and when, which a search weighs. speaker: the lexemes of the name; tone: as
    # pipelines/text/tone.py numbers it.
    impersonal("role", Text, nullable=False, server_default=""),
    personal("speaker", ARRAY(Text), sealed="word", nullable=False, server_default="{}"),
    Column("tone", SmallInteger, nullable=False, server_default=text("0")),
    Column("said_on", Date),
    PrimaryKeyConstraint(
        "shard_key",
        "generation_id",
        "session_key",
        "from_seq",
        "piece",
        postgresql_include=["through_seq", "code"],
    ),
    # Entries wait for each other, which makes writing cheaper; few, in kB, since each search reads those.
    Index(
        "chunk_terms",
        text(f"{SCHEMA}.search_terms_v1(shard_key, generation_id, lexemes)"),
        postgresql_using="gin",
        postgresql_with={"gin_pending_list_limit": 64},
    ),
    comment="A searchable piece of conversation: its messages by range, its lexemes and its vector",
    erasure=Erasure("goes", "session_key"),
    divided=True,
)

derived_change = table(
    "derived_change",
    key("shard_key"),
    impersonal("kind", Text, primary_key=True),
    Column("change_id", BigInteger, primary_key=True, autoincrement=False),
    moment("changed_at", default=True),
    comment="The last transactions that changed an owner's pieces, or facts; nothing in memory outlives one",
    erasure=Erasure("goes"),
)


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
