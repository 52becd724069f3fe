"""An erased user is in the audit trail no more, and its chain stays sound."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from strandline import Memory, acting
from strandline.erasure import Erasures
from strandline.pipelines.audit import sealing
from strandline.pipelines.audit.appending import Act, append_act
from strandline.pipelines.audit.keys import NO_KEYS
from strandline.pipelines.audit.sealing import seal_once
from strandline.pipelines.audit.verifying import verify_trail
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.upkeep.erasures import EraseSession, FenceOwner
from strandline.schemas.values.identity import audit_chain_key, identify_session, identify_user
from tests.conftest import Rig, lock_is_awaited, rows_of, wait_until
from tests.support.sealed_trail import seal_all

STORED = (
    "SELECT t::text FROM strandline.audit_sealed t UNION ALL SELECT t::text FROM strandline.audit_entry t"
)


def act(url: str, user_id: str) -> None:
    memory = Memory.from_defaults(f"chat of {user_id}", user_id=user_id, memory_blocks=[], database_url=url)
    with acting(actor="web", origin=f"address of {user_id}"):
        memory.put({"role": "user", "content": "one"})
        memory.replace(1, "two")
    memory.close()


def test_an_erased_user_leaves_a_sound_chain(rig: Rig, erasures: Erasures) -> None:
    for user_id in ("eve", "ben"):
        act(rig.url, user_id)
    rig.database.run(seal_all(NO_KEYS))
    act(rig.url, "eve")  # not sealed yet
    erasures.erase_user("eve", actor="operator")
    rig.database.run(seal_all(NO_KEYS))
    assert rig.database.run(verify_trail("default", NO_KEYS)).is_sound
    stored = str(rows_of(rig.url, STORED))
    assert "address of ben" in stored
    assert "eve" not in stored


SUBJECTS = """
SELECT e.subject IS NOT NULL, e.actor FROM strandline.audit_entry e
WHERE e.act = 'reveal' ORDER BY e.created_at DESC LIMIT 1"""


@pytest.mark.parametrize(
    ("ending", "is_named"), [("other session", True), ("session", False), ("user", False)]
)
def test_an_act_during_an_erasure_loses_the_name_only_if_it_concerns_what_is_erased(
    rig: Rig, ending: str, is_named: bool
) -> None:
    """An erasure has set the fence, and has not committed yet."""
    act(rig.url, "eve")
    eve = identify_session("default", "chat of eve", "eve")
    other = identify_session("default", "another", "eve")
    fence: Query[Any]
    common: Any = {"erasure_id": uuid4(), "ledger_key": uuid4(), "actor": "ops", "is_forced": True}
    common |= {"namespace": "default", "shard_key": eve.shard_key, "user_id": "eve"}
    if ending == "user":
        fence = FenceOwner(kind="user", act=Act.here("erasure").as_json(), **common)
    else:
        which = eve if ending == "session" else other
        keys: Any = {"session_key": which.session_key, "directory_key": which.directory_key}
        fence = EraseSession(act=Act.here("erasure").as_json(), **keys, **common)
    with rig.database.transaction() as erasing:
        erasing.fetch(fence)
        with psycopg.connect(rig.url) as reader:
            names = "'default', 'eve', %s, %s::jsonb, false"
            reader.execute(
                f"SELECT strandline.append_act_v1(%s, true, {names})",
                (eve.shard_key, eve.session_key, Act.here("reveal", actor="eve").as_json()),
            )
    ((has_subject, actor),) = rows_of(rig.url, SUBJECTS)
    assert has_subject is is_named
    assert actor != "eve"


def test_an_export_is_recorded(erasures: Erasures, database_url: str) -> None:
    act(database_url, "eve")
    with acting(actor="ops"):
        assert list(erasures.export_user("eve"))
    exports = "SELECT act, actor FROM strandline.audit_entry WHERE act = 'export'"
    assert rows_of(database_url, exports) == [("export", "ops")]


RENAME = "SELECT strandline.erase_names_v1(1, %s, 'shop', 'eve', NULL, 'erased-x')"


def test_a_seal_covers_what_an_erasure_made_of_an_act(database: Database, database_url: str) -> None:
    """The erasure has replaced eve's name as an actor, and has not committed, while acts are sealed."""
    for session in ("one", "two"):
        bob = identify_session("shop", session, "bob")
        database.run(append_act(bob, Act.here("pop", actor="eve" if session == "one" else "ben")))
    eve = identify_user("shop", "eve")
    with psycopg.connect(database_url) as erasing:
        erasing.execute(RENAME, (eve.shard_key,))
        assert database.run(seal_all(NO_KEYS)) != ()
        assert database.run(verify_trail("shop", NO_KEYS)).unsealed == 1
    database.run(seal_all(NO_KEYS))
    result = database.run(verify_trail("shop", NO_KEYS))
    assert (result.findings, result.entries, result.unsealed) == ([], 2, 0)
    actors = "SELECT actor FROM strandline.audit_sealed WHERE shard_key = %s ORDER BY 1"
    assert rows_of(database_url, actors, audit_chain_key("shop")) == [("ben",), ("erased-x",)]


def test_an_erasure_waits_for_the_seal_that_is_being_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    bob = identify_session("shop", "one", "bob")
    rig.database.run(append_act(bob, Act.here("pop", actor="eve")))
    eve = identify_user("shop", "eve")
    make_seals = sealing._make_seals  # between reading the acts and moving them
    erasing = threading.Thread(target=rows_of, args=(rig.url, RENAME, eve.shard_key))

    def wait_and_make(*given: Any) -> Any:
        erasing.start()
        wait_until(lambda: lock_is_awaited(rig.url), timeout=30, what="the erasure to wait")
        return make_seals(*given)

    monkeypatch.setattr(sealing, "_make_seals", wait_and_make)
    rig.database.run(seal_once(NO_KEYS))
    erasing.join()
    assert rig.database.run(verify_trail("shop", NO_KEYS)).findings == []
