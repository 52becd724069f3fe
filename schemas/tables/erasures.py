"""Erasures: the fences that keep an erased owner away, and the record and receipt of each erasure."""

from __future__ import annotations

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, Column, Index, Integer, Text, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB

from strandline.schemas.tables.base import Erasure, impersonal, key, moment, personal, table

erasure_fence = table(
    "erasure_fence",
    key("shard_key"),
    # The owner's key again: all of the owner; else the key of one session.
    key("scope_key"),
    Column("number", Integer, nullable=False),
    moment("fenced_at", default=True),
    moment("readmitted_at", nullable=True),
    # The last data key that the owner had: those of a new life are numbered from the next one on.
    Column("data_keys", Integer, nullable=False, server_default=text("0")),
    Index("erasure_fence_by_number", "number"),
    comment="Owners and sessions that were erased: nothing is written for them until they are readmitted",
    erasure=Erasure("kept", why="the fence itself: a key, by which the owner is kept away"),
)

erasure = table(
    "erasure",
    # Numbered one after the other, in the order of their commits: readers compare the newest one.
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("erasure_id", Uuid, nullable=False, unique=True),
    impersonal("kind", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("owner_key", Uuid, nullable=False),
    Column("scope_key", Uuid, nullable=False),
    # The model calls of an owner are kept under this random key.
    Column("ledger_key", Uuid, nullable=False),
    impersonal("state", Text, nullable=False, server_default="running"),
    impersonal("steps", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    personal("actor", Text),
    impersonal("receipt", Text),
    Column("rows_erased", BigInteger, nullable=False, server_default="0"),
    # Sentences for the receipt: what could not be reached, and no table names now.
    impersonal("missed", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    moment("requested_at", default=True),
    moment("fenced_at", nullable=True),
    moment("updated_at", default=True),
    moment("finished_at", nullable=True),
    Index("erasure_by_owner", "owner_key", "scope_key", "number"),
    CheckConstraint("kind IN ('user', 'session', 'readmission')", name="kind"),
    CheckConstraint("state IN ('running', 'done')", name="state"),
    CheckConstraint("(finished_at IS NULL) = (state = 'running')", name="finished_at"),
    comment="Each erasure, with its steps and its receipt, and each readmission; none of them holds a name",
    erasure=Erasure("kept", why="the record of the erasure itself, which holds no name"),
)
