"""The tables of the audit trail: the appended records, the sealed chain, and the pseudonyms in both."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    Text,
    Uuid,
    text,
)

from strandline.schemas.tables.base import Erasure, Export, impersonal, key, moment, personal, table

audit_level = table(
    "audit_level",
    Column("namespace", Text(collation="C"), primary_key=True),
    impersonal("level", Text, nullable=False),
    moment("updated_at", default=True),
    CheckConstraint("level IN ('off', 'changes', 'all')", name="level"),
    comment="The level of a namespace's audit trail; a namespace without a row has 'changes'",
    erasure=Erasure("kept", why="the choice of a namespace"),
)

audit_subject = table(
    "audit_subject",
    key("shard_key"),
    Column("subject", Uuid, nullable=False),
    impersonal("salt", LargeBinary, nullable=False),
    Column("namespace", Text(collation="C"), nullable=False),
    personal("user_id", Text),
    Index("audit_subject_by_subject", "subject"),
    comment="The random pseudonym of an owner in the audit trail, until erasure deletes the row",
    erasure=Erasure("goes"),
    export=Export(
        "audit_pseudonym",
        "The name under which the user stands in the audit trail, until an erasure.",
        title="Pseudonym",
        hides=("salt", "namespace", "user_id"),
    ),
)

audit_entry = table(
    "audit_entry",
    key("shard_key"),
    key("entry_id"),
    Column("namespace", Text(collation="C"), nullable=False),
    impersonal("act", Text, nullable=False),
    personal("actor", Text),
    personal("origin", Text),
    Column("subject", Uuid),
    Column("session", Uuid),
    Column("seq", BigInteger),
    Column("count", BigInteger),
    impersonal("detail", JSON),
    impersonal("flags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    moment("created_at", default=True),
    comment="Acts that no seal covers yet, under the key of whom they concern, until the sealer takes them",
    erasure=Erasure(
        "treated", why="unsealed acts are moved to a random key: the trail stays, and leads to no user"
    ),
)

audit_chain = table(
    "audit_chain",
    key("shard_key"),
    Column("namespace", Text(collation="C"), nullable=False),
    Column("seals", BigInteger, nullable=False, server_default="0"),
    Column("pruned_seals", BigInteger, nullable=False, server_default="0"),
    Column("entries", BigInteger, nullable=False, server_default="0"),
    CheckConstraint("pruned_seals BETWEEN 0 AND seals", name="pruned"),
    comment="A namespace's chain: how many seals it has; the row that sealers lock",
    erasure=Erasure("kept", why="how long the chain of a namespace is"),
)

audit_seal = table(
    "audit_seal",
    key("shard_key"),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("entries", Integer, nullable=False),
    Column("entries_before", BigInteger, nullable=False),
    Column("entry_ids", ARRAY(Uuid), nullable=False),
    impersonal("leaves", LargeBinary, nullable=False),
    impersonal("root", LargeBinary, nullable=False),
    impersonal("previous", LargeBinary, nullable=False),
    impersonal("key_id", Text, nullable=False),
    impersonal("mac", LargeBinary, nullable=False),
    moment("sealed_at"),
    CheckConstraint("entries >= 1 AND cardinality(entry_ids) = entries", name="entries"),
    comment="A link of a namespace's chain: the Merkle root of its entries, with a MAC over the link before",
    erasure=Erasure("kept", why="links of the chain: digests of acts"),
)

audit_sealed = table(
    "audit_sealed",
    key("shard_key"),
    Column("seal", BigInteger, primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("entry_id", Uuid, nullable=False),
    impersonal("act", Text, nullable=False),
    personal("actor", Text),
    personal("origin", Text),
    impersonal("origin_digest", LargeBinary),
    Column("subject", Uuid),
    Column("session", Uuid),
    Column("seq", BigInteger),
    Column("count", BigInteger),
    impersonal("detail", JSON),
    impersonal("flags", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    moment("created_at"),
    Index("audit_sealed_by_subject", "shard_key", "subject", postgresql_where=text("subject IS NOT NULL")),
    comment="Acts that a seal covers, in the order of the chain, under the key of their namespace's chain",
    erasure=Erasure(
        "kept", why="acts under a random pseudonym, without the origins once audit_subject is gone"
    ),
)
