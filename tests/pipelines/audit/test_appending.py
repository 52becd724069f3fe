"""Acts are appended in the transaction that carries them out, at the namespace's level, without names."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from strandline import acting
from strandline.pipelines.audit.appending import Act, append_act, append_query
from strandline.schemas.errors import InvalidMessageError
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.identity import audit_chain_key, identify_session, identify_user
from tests.conftest import Rig, rows_of

ANNS = identify_session("shop", "chat-1", "ann")
COLUMNS = "act, actor, origin, seq, count, detail::text, flags"
ENTRIES = f"SELECT {COLUMNS} FROM strandline.audit_entry ORDER BY created_at"


def _set_level(url: str, level: str) -> None:
    rows_of(
        url,
        "WITH ruled AS (INSERT INTO strandline.namespace_rule (namespace, records_puts)"
        " VALUES ('shop', true) ON CONFLICT DO NOTHING)"
        " INSERT INTO strandline.audit_level VALUES ('shop', %s) ON CONFLICT (namespace)"
        " DO UPDATE SET level = excluded.level RETURNING 1",
        level,
    )


def test_an_act_is_appended_with_who_and_where(database: Database, database_url: str) -> None:
    with acting(actor="ben", origin="192.0.2.7"):
        act = Act.here("rewind", seq=4, count=2, detail={"corrections": 1}, flags=["pii"])
    database.run(append_act(ANNS, act))
    database.run(append_act("shop", Act.here("limits", actor="cli:root")))
    assert rows_of(database_url, ENTRIES) == [
        ("rewind", "ben", "192.0.2.7", 4, 2, '{"corrections": 1}', ["pii"]),
        ("limits", "cli:root", None, None, None, None, []),
    ]
    assert rows_of(database_url, "SELECT shard_key FROM strandline.audit_entry WHERE act = 'limits'") == [
        (audit_chain_key("shop"),)
    ]


def test_it_is_part_of_the_transaction_around_it(database: Database, database_url: str) -> None:
    with suppress(ZeroDivisionError), database.transaction() as transaction:
        transaction.run(append_act(ANNS, Act.here("pop")))
        raise ZeroDivisionError
    assert rows_of(database_url, ENTRIES) == []
    assert rows_of(database_url, "SELECT subject FROM strandline.audit_subject") == []


@pytest.mark.parametrize(
    ("level", "recorded"), [("off", []), ("changes", ["pop", "put"]), ("all", ["pop", "put", "read"])]
)
def test_each_level_has_its_acts(rig: Rig, level: str, recorded: list[str]) -> None:
    _set_level(rig.url, level)
    rig.database.run(append_act(ANNS, Act.here("pop")))
    rig.database.run(append_act(ANNS, Act.here("put", flags=["pii"])))  # with a flag it counts as a change
    rig.database.run(append_act(ANNS, Act.here("read")))
    assert [row[0] for row in rows_of(rig.url, ENTRIES)] == recorded


def test_a_user_and_a_session_appear_as_pseudonyms(database: Database, database_url: str) -> None:
    other = identify_session("shop", "chat-2", "ann")
    for whom in (ANNS, other, ANNS, identify_user("shop", "ann"), identify_session("shop", "chat-1", "ben")):
        database.run(append_act(whom, Act.here("pop", actor="ann")))
    rows: list[tuple[Any, ...]] = rows_of(
        database_url, "SELECT subject, session, actor FROM strandline.audit_entry ORDER BY created_at"
    )
    ann, ben = rows[0][0], rows[4][0]
    assert [row[0] for row in rows] == [ann, ann, ann, ann, ben]
    assert ann != ben
    chat_1, chat_2 = rows[0][1], rows[1][1]
    assert [row[1] for row in rows[:4]] == [chat_1, chat_2, chat_1, None]
    assert len({chat_1, chat_2, rows[4][1], ANNS.session_key, ANNS.shard_key, ann}) == 6
    # By the pseudonym where she acts on her own memory; elsewhere she is an actor like any other.
    assert [row[2] for row in rows] == [f"user:{ann}"] * 4 + ["ann"]


def test_acts_at_the_same_time_make_one_pseudonym(database: Database, database_url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        acts = [pool.submit(database.run, append_act(ANNS, Act.here("pop"))) for _ in range(32)]
    assert all(act.exception() is None for act in acts)
    subjects = rows_of(database_url, "SELECT subject, count(*) FROM strandline.audit_entry GROUP BY 1")
    assert subjects == [(rows_of(database_url, "SELECT subject FROM strandline.audit_subject")[0][0], 32)]


def test_a_detail_is_bounded(database: Database) -> None:
    with pytest.raises(InvalidMessageError, match="detail"):
        database.run(append_act(ANNS, Act.here("pop", detail={"x": "y" * 2_000})))


def test_a_repeated_attempt_is_the_same_act(database: Database, database_url: str) -> None:
    act = Act.here("pop")
    assert isinstance(act.entry_id, UUID)
    assert append_query(ANNS, act).values == append_query(ANNS, act).values
