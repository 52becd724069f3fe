"""The bare limit: the rows of ``strandline.message`` by a plain prepared INSERT, through the same driver."""

from __future__ import annotations

import json
from hashlib import blake2b
from itertools import count
from os import urandom
from typing import Any
from uuid import UUID, uuid4

from bench.environment import Given, Ground

BARE_TABLE = "CREATE TABLE bare_message (LIKE strandline.message INCLUDING ALL)"
BARE_INSERT = """
INSERT INTO bare_message (shard_key, session_key, seq, incarnation, id, role, tokens, bytes, digest,
    envelope, metadata, calls, answers, created_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, NULL, NULL, NULL, clock_timestamp())
"""
BARE_SELECT = """
SELECT seq, id, role, tokens, created_at, envelope::text, metadata::text FROM strandline.message
WHERE shard_key = %s AND session_key = %s AND seq >= %s ORDER BY seq
"""
SESSION = "SELECT shard_key, session_key, window_from FROM strandline.session WHERE session_id = %s"


class BareSession:
    """Makes the rows of one session as an application would that keeps its messages itself."""

    def __init__(self) -> None:
        self._keys: tuple[UUID, UUID, UUID] = (uuid4(), uuid4(), uuid4())
        self._seqs = count(1)

    def row(self, message: Given) -> list[Any]:
        """The parameters of ``BARE_INSERT``: the id, the JSON and its digest are made here and now."""
        shard_key, session_key, incarnation = self._keys
        envelope = json.dumps({"content": message["content"]}, ensure_ascii=False)
        encoded = envelope.encode()
        digest, size = blake2b(encoded, digest_size=16).digest(), len(encoded)
        number = next(self._seqs)
        role = message["role"]
        keys = [shard_key, session_key, number, incarnation, urandom(16).hex()]
        return [*keys, role, 40, size, digest, envelope]


def make_bare_table(ground: Ground) -> None:
    with ground.connection() as connection:
        connection.execute(BARE_TABLE)
