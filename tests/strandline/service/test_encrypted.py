"""An encrypted namespace over HTTP: what is stored of requests and of kept answers is sealed."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.pipelines.sealing.enabling import enable
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from tests.conftest import rows_of
from tests.support.opened_rows import clear_only
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

KEYS = f"first {b64encode(b'1' * 32).decode()}"
TABLES = ("message", "fact", "fact_revision", "kept_response")


@pytest.fixture
def running(stack: EmbeddedStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningService]:
    """A service with a keyring, on a database whose namespace ``sealed`` is encrypted."""
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
    with temporary_database(stack.database_url) as url, RunningService(url) as service:
        content = sealed_content(service.settings)
        options = ConnectionOptions.from_settings(url, service.settings, pool_size=1)
        database = Database.connect(options, content)
        try:
            assert enable(database, content, "sealed", "first", "clear")
        finally:
            database.close()
        yield service


def test_messages_facts_and_kept_answers_are_sealed(running: RunningService) -> None:
    message = {"role": "user", "content": "xylophone"}
    with running.client(running.make_key("sealed"), user="u") as client:
        assert client.post("/v1/sessions/s/messages", json={"messages": [message]}).status_code == 201
        fact = client.post("/v1/users/u/facts", json={"text": "Plays the xylophone."})
        assert (fact.status_code, fact.json()["text"]) == (201, "Plays the xylophone.")
        shown = client.get("/v1/sessions/s/messages").json()["items"]
        assert [each["content"] for each in shown] == ["xylophone"]
        last = "/v1/sessions/s/messages/last"
        first, again = (client.delete(last, headers={"Idempotency-Key": "k"}) for _ in range(2))
        assert (first.json(), again.json()["message"]["content"]) == (again.json(), "xylophone")
        assert again.headers["idempotency-replayed"] == "true"
        assert client.post("/v1/sessions/s/messages", json={"messages": [message]}).status_code == 201
    for table in TABLES:
        rows = rows_of(running.database_url, f"SELECT t::text FROM strandline.{table} t")
        assert rows, table
        assert "xylophone" not in str(rows), table
