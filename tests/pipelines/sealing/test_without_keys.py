"""A worker that lacks the key of an encrypted namespace leaves its work as it is, however long it does."""

from __future__ import annotations

from base64 import b64encode

import pytest

from strandline import Memory
from strandline.administration.status import read_status
from strandline.pipelines.sealing.enabling import enable
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from tests.conftest import rows_of
from tests.support.opened_rows import clear_only
from tests.support.stored import dead_letters, due_work
from tests.support.workers.draining import drain_everything

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

KEYS = f"main {b64encode(b'k' * 32).decode()}"
LANES = "SELECT DISTINCT failures, last_error FROM strandline.lane WHERE last_error IS NOT NULL"


def test_the_work_waits_uncounted_and_is_done_with_the_key(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(database_url=database_url, text_backend="local", embedding_backend="local")
    options = ConnectionOptions.from_settings(database_url, settings)
    without = Database.connect(options, sealed_content(settings))
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    content = sealed_content(load_settings(database_url=database_url))
    with_key = Database.connect(options, content)
    enable(with_key, content, "default", "main", "off")
    memory = Memory.from_defaults("s", user_id="u", database_url=database_url)
    memory.put({"role": "user", "content": "I live in Porto."})
    memory.flush(all=True)
    drain_everything(without, database_url, settings)
    ((failures, said),) = rows_of(database_url, LANES)
    assert failures == 0 and "Namespace 'default' is encrypted. The key 'main' is needed" in said
    assert dead_letters(database_url) == 0
    (waiting,) = read_status(without, settings).waiting_for_keys
    assert (waiting.namespace, waiting.key_ids, waiting.events) == ("default", ["main"], 1)
    assert waiting.lanes >= 1 and waiting.reason == said
    rows_of(database_url, "UPDATE strandline.lane SET next_attempt_at = now() RETURNING 1")
    drain_everything(with_key, database_url, settings)
    assert due_work(database_url) == 0
    assert read_status(with_key, settings).waiting_for_keys == []
    assert rows_of(database_url, "SELECT count(*), count(embedding) FROM strandline.chunk") == [(1, 0)], (
        "no vectors"
    )
    assert [hit.text for hit in memory.search("Porto", scope="owner")] == ["I live in Porto."]
    memory.close()
    without.close()
    with_key.close()
