"""A verification over HTTP tells what it found in sentences, as the command line does."""

from __future__ import annotations

from uuid import uuid4

from strandline.pipelines.audit.keys import keys_of
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from strandline.schemas.wire.keys import SCOPES
from tests.conftest import rows_of
from tests.support.sealed_trail import seal_all
from tests.support.servers.service_server import RunningService

TAMPER = """UPDATE strandline.audit_sealed SET actor = 'eve' WHERE shard_key IN (
    SELECT shard_key FROM strandline.audit_chain WHERE namespace = %s) AND place = 1 RETURNING entry_id"""


def test_findings_are_sentences(running: RunningService) -> None:
    url, key = running.database_url, running.make_key(f"n-{uuid4().hex}", scopes=SCOPES)
    with running.client(key, user="ann") as client:
        client.post("/v1/users/ann/facts", json={"text": "One."}).raise_for_status()
        settings = load_settings(database_url=url)
        database = Database.connect(ConnectionOptions.from_settings(url, settings, pool_size=1))
        database.run(seal_all(keys_of(settings)))
        database.close()
        ((entry_id,),) = rows_of(url, TAMPER, key.namespace)
        found = client.get("/v1/admin/audit/verification").raise_for_status().json()
    assert found["findings"] == [f"seal 1, place 1: Entry {entry_id} was changed."]
