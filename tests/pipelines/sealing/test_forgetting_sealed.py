"""Forgetting a session of an encrypted namespace: a fact keeps what the other sessions gave it."""

from __future__ import annotations

from base64 import b64encode

import pytest

from strandline import Memory
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.sealing.enabling import enable, prepare_owners
from strandline.pipelines.sealing.resealing import Pace, reseal_namespace
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from tests.conftest import Rig, rows_of
from tests.support.opened_rows import clear_only
from tests.support.workers.draining import drain_everything

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

AGED = "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1"
KEYS = f"first {b64encode(b'1' * 32).decode()}"


def say(memory: Memory, text: str, by: str) -> None:
    memory.put({"role": "user", "content": text, "name": by})
    memory.flush(all=True)


@pytest.mark.parametrize("sealed", ["before", "after"])
def test_a_fact_keeps_the_speaker_and_topics_of_those_who_still_say_it(
    rig: Rig, sealed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    monkeypatch.setenv("OPENAI_BASE_URL", rig.model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    settings = load_settings(database_url=rig.url, embedding_backend="local")
    content = sealed_content(settings)
    database = Database.connect(ConnectionOptions.from_settings(rig.url, settings), content)
    try:
        if sealed == "before":
            assert enable(database, content, "default", "first", "clear")
        one, two = (rig.memory(name, user_id="maren", memory_blocks=["facts"]) for name in ("one", "two"))
        for memory, by in ((one, "Inga"), (two, "Lars")):
            say(memory, "Otto is my cat", by)
            drain_everything(database, rig.url, settings)
        if sealed == "after":
            assert enable(database, content, "default", "first", "clear")
            for _made in prepare_owners(database, content, "default"):
                pass
            rows_of(rig.url, AGED)
            passes = reseal_namespace(database, content, "default", cache_seconds=300, pace=Pace())
            assert max(progress.rows for progress in passes) > 0
        (fact,) = two.facts.list()
        assert (fact.said_by, fact.topics, len(fact.message_ids)) == ("Inga", ("otto",), 2)
        one.reset(derived=True)
        (fact,) = two.facts.list()
        assert (fact.said_by, fact.topics, len(fact.message_ids)) == ("Lars", ("otto",), 1)
        assert fact.said_at == two.history()[0].created_at
        assert verify(database, deep=True).violations == ()
    finally:
        database.close()
