"""Erasure of a user and of a session: what is left, what is refused, and what the receipt says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.erasure import Erasures, make_receipt_key, verifier_of
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.identity import identify_session
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS
from tests.conftest import MakeMemory, rows_of
from tests.support.workers.draining import drain_everything

WORD = "zanzibarq"
LIMITS: dict[str, Any] = {
    "token_limit": 400,
    "token_flush_size": 40,
    "memory_blocks": [FACTS, SUMMARY, VECTORS],
    "shared_scope": "harbour",
}


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_receipt_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


def fill(make_memory: MakeMemory, database: Database, url: str, settings: Settings) -> None:
    """A user with memory of every kind, and another one beside her."""
    for user, word in (("ann", WORD), ("bob", "bobsword")):
        memory = make_memory(f"{user}-{word}", user_id=user, **LIMITS)
        for number in range(4):
            memory.put({"role": "user", "content": f"my boat {word}{number} is blue", "name": word})
            memory.put({"role": "assistant", "content": f"noted {word}{number}"})
        memory.flush(all=True)
        memory.facts.add(f"likes {word} tea", actor=user, input=f"{word} said so")
        drain_everything(database, url, settings)
        memory.rewind(8, actor=user)
    # Claimed, and never put to.
    make_memory("ann-claimed", user_id="ann", **LIMITS)


def dump(url: str) -> str:
    """Every row of every table, as text."""
    tables = rows_of(url, "SELECT tablename::text FROM pg_tables WHERE schemaname = 'strandline'")
    return "\n".join(
        str(row) for (table,) in tables for row in rows_of(url, f'SELECT t::text FROM strandline."{table}" t')
    )


def test_nothing_is_left_of_an_erased_user(
    make_memory: MakeMemory, database: Database, database_url: str, settings: Settings, key: Path
) -> None:
    fill(make_memory, database, database_url, settings)
    before = dump(database_url)
    assert WORD in before and "ann" in before
    erasures = Erasures.of_namespace(database_url=database_url, key_file=key)
    planned = erasures.plan_user("ann")
    assert planned.rows["message"] > 0
    receipt = erasures.erase_user("ann", actor="operator")
    after = dump(database_url)
    assert WORD not in after
    assert str(identify_session("default", f"ann-{WORD}", "ann").session_key) not in after
    assert "bobsword" in after
    print(json.dumps(json.loads(receipt.to_json()), indent=1))
    verdict = erasures.verify(receipt, verifier_of(key.with_name("key.pem.pub")))
    assert verdict.is_good
    erasures.close()
