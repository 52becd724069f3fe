"""The tables of an application's own: its items, the keys of its encryption, and its HTTP service."""

from __future__ import annotations

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import (
    ARRAY,
    JSON,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    Uuid,
    text,
)

from strandline.schemas.tables.base import Erasure, Export, impersonal, key, moment, personal, table

store_item = table(
    "store_item",
    key("shard_key"),
    # The labels of the path, each followed by a full stop, so that a prefix finds its descendants.
    personal("path", Text(collation="C"), primary_key=True),
    personal("key", Text(collation="C"), primary_key=True),
    personal("value", JSON, sealed="json item", nullable=False),
    personal("vectors", ARRAY(HALFVEC), nullable=False, server_default=text("'{}'")),
    Column("ttl_minutes", Double),
    moment("expires_at", nullable=True),
    moment("created_at", default=True),
    moment("updated_at", default=True),
    Index("store_item_by_expiry", "expires_at", postgresql_where=text("expires_at IS NOT NULL")),
    CheckConstraint("(ttl_minutes IS NULL) = (expires_at IS NULL)", name="ttl"),
    comment="Values that an application keeps under a path and a key, with vectors of their texts",
    erasure=Erasure(
        "treated",
        why="what an adapter keeps of the user is deleted, and items below paths that the caller names;"
        " others belong to the namespace, and only the application knows which of them concern a user",
    ),
)


encryption = table(
    "encryption",
    Column("namespace", Text(collation="C"), primary_key=True),
    impersonal("kek_id", Text, nullable=False),
    # Something that the key has wrapped, by which another key of the same id is known.
    impersonal("probe", LargeBinary, nullable=False),
    impersonal("vectors", Text, nullable=False),
    moment("enabled_at", default=True),
    moment("changed_at", default=True),
    CheckConstraint("vectors IN ('clear', 'off')", name="vectors"),
    comment="The namespaces whose content is sealed, and the key that wraps the keys of their owners",
    erasure=Erasure("kept", why="the choice of a namespace, and its wrapped probe"),
)

data_key = table(
    "data_key",
    key("shard_key"),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("namespace", Text(collation="C"), nullable=False),
    impersonal("kek_id", Text, nullable=False),
    impersonal("wrapped", LargeBinary, nullable=False),
    moment("created_at", default=True),
    moment("settled_at", nullable=True),
    Index("data_key_by_namespace", "namespace", "shard_key", "number"),
    Index("data_key_unsettled", "namespace", "shard_key", postgresql_where=text("settled_at IS NULL")),
    Index("data_key_by_kek", "kek_id", "shard_key", "number"),
    CheckConstraint("number >= 1", name="number"),
    comment="Wrapped keys of owners: a data key, by its number, with the search key, which stays the same",
    erasure=Erasure("goes"),
)


service_key = table(
    "service_key",
    impersonal("key_id", Text(collation="C"), primary_key=True),
    impersonal("secret_digest", LargeBinary, nullable=False),
    # NULL: an operator's key of the whole installation, which opens no memory.
    Column("namespace", Text(collation="C")),
    personal("user_id", Text),
    impersonal("scopes", ARRAY(Text), nullable=False),
    # Which scopes a key of one user may begin sessions in; a key of all users names any.
    personal("shared_scopes", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    impersonal("label", Text, nullable=False, server_default=text("''")),
    impersonal("rotated_from", Text(collation="C")),
    # The key that asked for it; NULL: a command or the library made it.
    impersonal("made_by", Text(collation="C")),
    # The request that made it, by its Idempotency-Key: a repetition of it makes no second key.
    Column("request_key", Uuid),
    moment("created_at", default=True),
    moment("expires_at", nullable=True),
    moment("revoked_at", nullable=True),
    Index("service_key_by_namespace", "namespace", "key_id"),
    Index("service_key_by_request", "request_key", unique=True),
    CheckConstraint("length(secret_digest) = 32", name="digest"),
    CheckConstraint(
        "cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'facts', 'erase', 'operate']",
        name="scopes",
    ),
    CheckConstraint("user_id IS NOT NULL OR shared_scopes = '{}'", name="shared"),
    CheckConstraint("namespace IS NOT NULL OR (user_id IS NULL AND scopes = ARRAY['operate'])", name="bound"),
    comment="Keys of the HTTP service: what each opens, and the digest of its secret; rarely written",
    erasure=Erasure("treated", why="deleted: keys of the HTTP service that open the user alone"),
    export=Export(
        "service_key",
        "A key of the HTTP service that opens this user alone; its secret is not stored.",
        owned_by=("namespace", "user_id"),
        hides=("secret_digest", "shared_scopes", "rotated_from", "made_by", "request_key"),
    ),
)

kept_response = table(
    "kept_response",
    key("shard_key"),
    key("request_key"),
    # Of whose messages one is in the body, which goes with them; NULL: none is.
    Column("session_key", Uuid),
    impersonal("request_digest", LargeBinary, nullable=False),
    Column("status", SmallInteger, nullable=False),
    personal("body", JSON, sealed="json response"),
    moment("created_at", default=True),
    Index("kept_response_by_age", "created_at"),
    comment="Responses to requests with an Idempotency-Key, for a day; what an owner said may be in them",
    erasure=Erasure("goes", "session_key"),
)
