"""The tables of retention: its policies, the departures from the log, and the runs' progress."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Identity,
    Index,
    Integer,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from strandline.schemas.tables.base import Erasure, Export, impersonal, key, moment, personal, table

STEP_STATES = ("planned", "archived", "read_back", "removed")

retention_act = table(
    "retention_act",
    Column("namespace", Text(collation="C"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("ttl_seconds", BigInteger),
    Column("max_age_seconds", BigInteger),
    Column("max_messages", BigInteger),
    Column("forget_facts", Boolean),
    impersonal("archive", Text),
    # Whether messages that say that they are important stay; NULL: they do.
    Column("keeps_important", Boolean),
    # Ages of the tables that grow next to the log, in seconds by name.
    impersonal("ages", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    personal("actor", Text),
    moment("created_at", default=True),
    CheckConstraint("ttl_seconds >= 0 AND max_age_seconds >= 0 AND max_messages >= 0", name="bounds"),
    comment="Numbered acts on retention in a namespace; none is changed, and the newest one applies",
    erasure=Erasure("kept", why="the choice of a namespace"),
)

session_retention_act = table(
    "session_retention_act",
    key("shard_key"),
    key("session_key"),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("ttl_seconds", BigInteger),
    Column("max_age_seconds", BigInteger),
    Column("max_messages", BigInteger),
    Column("forget_facts", Boolean),
    impersonal("archive", Text),
    # Bounds set by a key without the scope ``operate``: the namespace's hold as well.
    impersonal("tightened", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    personal("actor", Text),
    moment("created_at", default=True),
    CheckConstraint("ttl_seconds >= 0 AND max_age_seconds >= 0 AND max_messages >= 0", name="bounds"),
    comment="The same of one session; what an act leaves open is as its namespace's act says",
    erasure=Erasure("goes", "session_key"),
    export=Export(
        "retention_act",
        "A session's choice of retention; null is as for its namespace.",
        hides=("tightened",),
    ),
)

expired_life = table(
    "expired_life",
    key("shard_key"),
    key("session_key"),
    key("incarnation"),
    Column("from_seq", BigInteger, nullable=False),
    Column("through_seq", BigInteger, nullable=False),
    Column("pinned_through", BigInteger, nullable=False),
    Column("flushed_through", BigInteger, nullable=False),
    moment("expired_at", default=True),
    moment("removed_at", nullable=True),
    Index("expired_life_waiting", "shard_key", "session_key", postgresql_where=text("removed_at IS NULL")),
    comment="Lives of sessions that ended for want of puts: no read shows them, their work goes on",
    erasure=Erasure("goes", "session_key"),
)

retention_step = table(
    "retention_step",
    key("shard_key"),
    key("session_key"),
    Column("from_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("through_seq", BigInteger, nullable=False),
    Column("step_id", Uuid, nullable=False),
    Column("incarnation", Uuid, nullable=False),
    impersonal("cause", Text, nullable=False),
    impersonal("state", Text, nullable=False, server_default="planned"),
    Column("forget_facts", Boolean, nullable=False, server_default=text("false")),
    impersonal("archive", Text),
    # Of the object in the archive: its name, a digest of its bytes, and one of the rows that it was made of.
    impersonal("object_name", Text),
    impersonal("object_digest", Text),
    impersonal("rows_digest", Text),
    Column("messages", Integer, nullable=False, server_default="0"),
    Column("removed", Integer, nullable=False, server_default="0"),
    Column("kept_seqs", ARRAY(BigInteger), nullable=False, server_default=text("'{}'::bigint[]")),
    Column("attempts", Integer, nullable=False, server_default="0"),
    impersonal("last_error", Text),
    # The numbers of the acts that it was planned by: of the session and of its namespace, 0 for none.
    Column("acts", ARRAY(BigInteger), nullable=False, server_default=text("'{}'::bigint[]")),
    moment("planned_at", default=True),
    moment("attempted_at", nullable=True),
    # When an attempt ended without removing anything; a later start is under way.
    moment("failed_at", nullable=True),
    moment("archived_at", nullable=True),
    moment("read_back_at", nullable=True),
    moment("removed_at", nullable=True),
    Index(
        "retention_step_open",
        "shard_key",
        "session_key",
        unique=True,
        postgresql_where=text("state <> 'removed'"),
    ),
    CheckConstraint(f"state IN ({', '.join(map(repr, STEP_STATES))})", name="state"),
    CheckConstraint("cause IN ('ttl', 'age', 'number')", name="cause"),
    CheckConstraint("through_seq >= from_seq", name="range"),
    CheckConstraint("(state = 'removed') = (removed_at IS NOT NULL)", name="removed"),
    comment="Ranges of messages on their way out of the log, and those that left it: where they are archived",
    erasure=Erasure("goes", "session_key"),
    export=Export(
        "archived",
        "A range of messages that retention took out of a session's log, or is about to, and where they are.",
        hides=(
            "step_id",
            "incarnation",
            "forget_facts",
            "rows_digest",
            "attempts",
            "last_error",
            "acts",
            "planned_at",
            "attempted_at",
            "failed_at",
            "archived_at",
            "read_back_at",
        ),
    ),
)

given_up_step = table(
    "given_up_step",
    key("shard_key"),
    key("session_key"),
    key("step_id"),
    Column("from_seq", BigInteger, nullable=False),
    Column("through_seq", BigInteger, nullable=False),
    impersonal("cause", Text, nullable=False),
    # How far it was.
    impersonal("state", Text, nullable=False),
    impersonal("archive", Text),
    impersonal("object_name", Text),
    impersonal("reason", Text, nullable=False),
    moment("given_up_at", default=True),
    # When its object was last looked for, and when it was deleted.
    moment("tried_at", nullable=True),
    moment("deleted_at", nullable=True),
    comment="Steps that were given up having removed nothing, and what they left in archives",
    erasure=Erasure("goes", "session_key"),
)

retention_run = table(
    "retention_run",
    Column("run_id", Integer, Identity(always=True), primary_key=True),
    Column("namespace", Text(collation="C")),
    impersonal("state", Text, nullable=False, server_default="running"),
    # Sessions are gone through in the order of their keys.
    Column("position_shard", Uuid),
    Column("position_session", Uuid),
    impersonal("counts", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    moment("started_at", default=True),
    moment("updated_at", default=True),
    moment("ended_at", nullable=True),
    CheckConstraint("state IN ('running', 'done')", name="state"),
    comment="Each pass over all sessions: how far it is, and what it did",
    erasure=Erasure("kept", why="passes over all sessions, without names"),
)

archived_input = table(
    "archived_input",
    key("shard_key"),
    key("session_key"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("generation_id", Integer, primary_key=True, autoincrement=False),
    personal("id", Text, nullable=False),
    impersonal("role", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    personal("envelope", JSON, sealed="json message id", nullable=False),
    personal("metadata", JSON, sealed="json metadata id"),
    moment("created_at"),
    comment="Messages from the archive that a new derivation is made of; no read shows them",
    erasure=Erasure("goes", "session_key"),
)
