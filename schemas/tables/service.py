"""The tables of the HTTP service: its keys, and responses kept for requests that come again."""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    JSON,
    CheckConstraint,
    Column,
    Index,
    LargeBinary,
    SmallInteger,
    Text,
    Uuid,
    text,
)

from strandline.schemas.tables.base import Erasure, Export, impersonal, key, moment, personal, table

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
