"""The tables of namespaces' limits, the budget that workers have used, and capture."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Double,
    Index,
    Integer,
    Text,
    Uuid,
)

from strandline.schemas.tables.base import Erasure, Export, impersonal, moment, personal, table

namespace_limit = table(
    "namespace_limit",
    Column("namespace", Text(collation="C"), primary_key=True),
    Column("max_lanes", Integer),
    Column("max_lanes_per_worker", Integer),
    Column("calls_per_day", BigInteger),
    Column("tokens_per_day", BigInteger),
    Column("usd_per_day", Double),
    Column("agents_read_only", Boolean),
    Column("max_sessions", BigInteger),
    Column("max_bytes", BigInteger),
    moment("waits_until", nullable=True),
    impersonal("waits_for", Text),
    moment("updated_at", default=True),
    CheckConstraint("max_lanes >= 1 AND max_lanes_per_worker >= 1", name="lanes"),
    CheckConstraint("calls_per_day >= 0 AND tokens_per_day >= 0 AND usd_per_day >= 0", name="budgets"),
    CheckConstraint("agents_read_only", name="agents"),
    CheckConstraint("max_sessions >= 0 AND max_bytes >= 0", name="bounds"),
    CheckConstraint("(waits_until IS NULL) = (waits_for IS NULL)", name="waits"),
    comment="The limits of a namespace, and until when its work waits; written by hand",
    erasure=Erasure("kept", why="limits of a namespace, without owners"),
)

namespace_rule = table(
    "namespace_rule",
    Column("namespace", Text(collation="C"), primary_key=True),
    Column("sessions", BigInteger, nullable=False, server_default="0"),
    Column("bytes", BigInteger, nullable=False, server_default="0"),
    Column("is_full", Boolean, nullable=False, server_default="false"),
    # NULL: nothing bounds it.
    moment("count_at", nullable=True),
    Column("records_puts", Boolean, nullable=False, server_default="false"),
    Column("least_ttl_seconds", BigInteger),
    comment="The rules and the use of a namespace, which each of its puts reads",
    erasure=Erasure("kept", why="sums and choices of a namespace, without owners"),
)

budget_slice = table(
    "budget_slice",
    Column("namespace", Text(collation="C"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("worker_id", Uuid, primary_key=True),
    Column("calls_used", BigInteger, nullable=False, server_default="0"),
    Column("calls_granted", BigInteger, nullable=False, server_default="0"),
    Column("tokens_used", BigInteger, nullable=False, server_default="0"),
    Column("tokens_granted", BigInteger, nullable=False, server_default="0"),
    Column("usd_used", Double, nullable=False, server_default="0"),
    Column("usd_granted", Double, nullable=False, server_default="0"),
    moment("expires_at", default=True),
    Index("budget_slice_by_day", "day"),
    comment="The slices that each worker has taken of a namespace's budget of a day (UTC)",
    postgresql_with={"fillfactor": "70"},
    erasure=Erasure("kept", why="sums of a namespace, without owners"),
)

capture_act = table(
    "capture_act",
    Column("namespace", Text(collation="C"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("owner_key", Uuid),
    personal("capture", JSON, nullable=False),
    personal("actor", Text),
    moment("created_at", default=True),
    Index("capture_act_by_owner", "namespace", "owner_key", "number"),
    comment="Numbered acts on capturing: the choice of a namespace or of one owner in it; none is changed",
    erasure=Erasure(
        "treated", why="deleted: the acts on capturing of the owner; as an actor the user is renamed"
    ),
    export=Export("capture_act", "A choice of this user's capture.", owned_by=("namespace", "owner_key")),
)
