"""An erased user is in the audit trail no more, and its chain stays sound."""

from __future__ import annotations

from strandline import Memory, acting
from strandline.erasure import Erasures
from strandline.pipelines.audit.keys import NO_KEYS
from strandline.pipelines.audit.sealing import seal_all
from strandline.pipelines.audit.verifying import verify_trail
from strandline.schemas.postgres.database import Database
from tests.conftest import rows_of

STORED = (
    "SELECT t::text FROM strandline.audit_sealed t UNION ALL SELECT t::text FROM strandline.audit_entry t"
)


def act(url: str, user_id: str) -> None:
    memory = Memory.from_defaults(f"chat of {user_id}", user_id=user_id, memory_blocks=[], database_url=url)
    with acting(actor="web", origin=f"address of {user_id}"):
        memory.put({"role": "user", "content": "one"})
        memory.replace(1, "two")
    memory.close()


def test_an_erased_user_leaves_a_sound_chain(
    erasures: Erasures, database: Database, database_url: str
) -> None:
    for user_id in ("eve", "ben"):
        act(database_url, user_id)
    database.run(seal_all(NO_KEYS))
    act(database_url, "eve")  # not sealed yet
    erasures.erase_user("eve", actor="operator")
    database.run(seal_all(NO_KEYS))
    assert database.run(verify_trail("default", NO_KEYS)).is_sound
    stored = str(rows_of(database_url, STORED))
    assert "address of ben" in stored
    assert "eve" not in stored


def test_an_export_is_recorded(erasures: Erasures, database_url: str) -> None:
    act(database_url, "eve")
    with acting(actor="ops"):
        assert list(erasures.export_user("eve"))
    exports = "SELECT act, actor FROM strandline.audit_entry WHERE act = 'export'"
    assert rows_of(database_url, exports) == [("export", "ops")]
