"""Encrypting a database of the benchmark, with a key of its own."""

from __future__ import annotations

import os
from base64 import b64encode

from strandline.pipelines.sealing.enabling import enable
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import DEFAULT_NAMESPACE

VARIABLE = "STRANDLINE_KEYRING_KEYS"


def encrypt(url: str, namespace: str = DEFAULT_NAMESPACE) -> None:
    """Encrypt a namespace that has no data yet; its key is in the environment from now on."""
    os.environ.setdefault(VARIABLE, f"bench {b64encode(os.urandom(32)).decode()}")
    settings = load_settings()
    content = sealed_content(settings)
    database = Database.connect(ConnectionOptions.from_settings(url, settings), content)
    try:
        enable(database, content, namespace, "bench", "clear")
    finally:
        database.close()
