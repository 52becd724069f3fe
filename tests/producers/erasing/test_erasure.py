"""Erasure of a user and of a session: what is left, what is refused, and what the receipt says."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from strandline import Capture, ErasedError, Facts, Memory, NotFoundError
from strandline.erasure import (
    ErasureReceipt,
    Erasures,
    ReaderCheck,
    make_receipt_key,
    read_receipts,
    verifier_of,
)
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.upkeep.archive import Archive
from strandline.pipelines.upkeep.erasure.records import signed
from strandline.pipelines.upkeep.erasure.signing import read_signer
from strandline.producers.erasing.erase import find_unsettled, judge
from strandline.producers.items.operations import answer_requests
from strandline.producers.items.requests import ItemGet, ItemPut, path_of
from strandline.producers.namespace_erasures import NamespaceErasures
from strandline.schemas.errors import ConfigurationError, ConflictError
from strandline.schemas.postgres.database import Database
from strandline.schemas.tables import metadata
from strandline.schemas.tables.base import ERASURE, Erasure
from strandline.schemas.values.identity import identify_session, identify_user, item_store_key
from tests.conftest import Rig, rows_of
from tests.producers.erasing.conftest import LIMITS, retain
from tests.support.opened_rows import clear_only

WORD = "zanzibarq"
ERASURES: dict[str, Erasure] = {table.name: table.info[ERASURE] for table in metadata.tables.values()}
LOSING = {name for name, erasure in ERASURES.items() if erasure.kind != "kept"}
TABLES = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'strandline'"
# Tables of owners that this user has no rows in: what fails, and what a replay switches.
EMPTY = {"condensation", "dead_letter", "scope_generation"}
UNKEYED = {"replay", "service_key", "store_item", "shared_message", "watch", "due"}


def dump(url: str) -> str:
    """Every row of every table, as text."""
    return "\n".join(
        str(row)
        for (table,) in rows_of(url, TABLES)
        for row in rows_of(url, f'SELECT t::text FROM strandline."{table}" t')
    )


def said(url: str, session: str, user: str) -> list[str]:
    memory = Memory.from_defaults(session, user_id=user, database_url=url, **LIMITS)
    return [message.text for message in memory.get_all()]


def unnamed_tables(url: str) -> set[str]:
    """The tables in the catalog that the plan of the erasure does not name; parts of divided ones aside."""
    parts = {row[0] for row in rows_of(url, "SELECT inhrelid::regclass::oid FROM pg_inherits")}
    tables = rows_of(
        url,
        "SELECT c.oid, c.relname::text FROM pg_class c WHERE c.relnamespace = 'strandline'::regnamespace"
        " AND c.relkind IN ('r', 'p')",
    )
    return {name for oid, name in tables if oid not in parts} - {*ERASURES, "alembic_version"}


def test_each_table_is_named_by_the_eraser(database_url: str) -> None:
    """A new table cannot be declared without its treatment; one that is not declared fails here."""
    assert unnamed_tables(database_url) == set()
    assert all(erasure.why for erasure in ERASURES.values() if erasure.kind != "goes")
    _execute(database_url, "CREATE TABLE strandline.diary (shard_key uuid PRIMARY KEY, said text)")
    assert unnamed_tables(database_url) == {"diary"}


def _execute(url: str, sql: str, *params: object) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql, params)


def test_a_table_that_the_eraser_misses_is_found_by_the_check(erasures: Erasures, database_url: str) -> None:
    """The check goes by the catalog: rows in a table that is not named keep the erasure from its receipt."""
    key = identify_user("default", "ann").shard_key
    _execute(database_url, "CREATE TABLE strandline.diary (shard_key uuid PRIMARY KEY, said text)")
    _execute(database_url, "INSERT INTO strandline.diary VALUES (%s, 'my boat')", key)
    with pytest.raises(ConflictError, match="diary"):
        erasures.erase_user("ann")
    assert erasures.show(1).state == "running"
    _execute(database_url, "DELETE FROM strandline.diary")
    assert erasures.erase_user("ann").number == 1


@clear_only("keys of the user are made by SQL")
def test_nothing_is_left_of_an_erased_user(erasures: Erasures, database_url: str, tmp_path: Path) -> None:
    retain(database_url, tmp_path)
    before = dump(database_url)
    user = identify_user("default", "ann")
    sessions = [identify_session("default", f"{WORD}-{name}", "ann") for name in ("one", "two", "fork")]
    planned = erasures.plan_user("ann").rows
    assert LOSING - set(planned) - EMPTY <= UNKEYED | {"model_call", "audit_entry"}
    assert not {"model_call", "audit_entry"} & set(planned), "they stay"
    receipt = erasures.erase_user("ann", actor="operator")
    after = dump(database_url)
    for trace in (WORD, *(str(key) for one in sessions for key in (one.session_key, one.directory_key))):
        assert trace in before
        assert trace not in after
    # Elsewhere, as an actor and in a selection, the name has become a mark.
    assert rows_of(database_url, "SELECT count(*) FROM strandline.fact_event WHERE actor = 'ann'") == [(0,)]
    assert rows_of(database_url, "SELECT count(*) FROM strandline.correction WHERE actor = 'ann'") == [(0,)]
    ((selection,),) = rows_of(database_url, "SELECT selection FROM strandline.replay")
    assert selection["namespace"] == "default"
    assert selection["user_id"].startswith("erased-")
    # The key of the owner is in the fence and in the record alone.
    with_key = {
        table
        for (table,) in rows_of(database_url, TABLES)
        if rows_of(
            database_url,
            f'SELECT FROM strandline."{table}" t WHERE t::text LIKE %s',
            f"%{user.shard_key}%",
        )
    }
    assert with_key == {"erasure", "erasure_fence"}
    assert not any(check.remaining for check in receipt.checks)
    assert {check.reader for check in receipt.checks} >= {"get", "history", "search", "facts", "export"}
    assert all(check.looked_at for check in receipt.checks)
    # Acts of the trail stay under pseudonyms, whose names are gone.
    assert rows_of(database_url, "SELECT count(*) FROM strandline.audit_subject WHERE user_id = 'ann'") == [
        (0,)
    ]
    acts = "SELECT count(*) FROM strandline.audit_entry WHERE act = 'erasure' AND subject IS NOT NULL"
    assert rows_of(database_url, acts) == [(1,)]
    assert receipt.counts["message"] == planned["message"]
    assert "ann" not in receipt.to_json()
    # The archive of retention is cleared; what a handler of the application took is named.
    assert not (tmp_path / "object").exists()
    assert any(check.reader == f"archive file://{tmp_path}" for check in receipt.checks)
    assert any("handler:at.sea:keep: 1 ranges" in sentence for sentence in receipt.not_covered)


def test_others_keep_everything(erasures: Erasures, database: Database, database_url: str) -> None:
    bobs = said(database_url, "bobsword-one", "bob")
    facts = [fact.text for fact in Facts.for_owner(user_id="bob", database_url=database_url).list()]
    calls = rows_of(database_url, "SELECT count(*), sum(input_tokens) FROM strandline.model_call")
    erasures.erase_user("ann")
    assert said(database_url, "bobsword-one", "bob") == bobs != []
    assert [fact.text for fact in Facts.for_owner(user_id="bob", database_url=database_url).list()] == facts
    memory = Memory.from_defaults("bobsword-one", user_id="bob", database_url=database_url, **LIMITS)
    assert memory.search("bobsword", scope="shared")
    assert not memory.search(WORD, scope="shared")
    # The cost is known as before.
    assert rows_of(database_url, "SELECT count(*), sum(input_tokens) FROM strandline.model_call") == calls
    assert verify(database).violations == ()


WRITES: dict[str, Callable[[Memory], Any]] = {
    "put": lambda memory: memory.put({"role": "user", "content": "back"}),
    "puts": lambda memory: memory.put_messages([{"role": "user", "content": f"back {n}"} for n in range(3)]),
    "import": lambda memory: memory.import_messages([{"role": "user", "content": "back"}]),
    "run": lambda memory: memory.add_run("r", [{"role": "user", "content": "back"}]),
    "add": lambda memory: memory.facts.add("likes tea"),
    "clear": lambda memory: memory.facts.clear(),
    "source": lambda memory: memory.facts.create_from([{"role": "user", "content": "I like tea"}], key="k"),
    "capture": lambda memory: memory.facts.set_capture(Capture(may_add=False)),
    "aput": lambda memory: asyncio.run(_aput(memory)),
}


async def _aput(memory: Memory) -> None:
    try:
        await memory.aput({"role": "user", "content": "back"})
    finally:
        await memory.aclose()


@pytest.mark.parametrize("session", [f"{WORD}-one", "a new one"])
def test_nothing_can_be_written_for_an_erased_user(
    session: str, erasures: Erasures, database_url: str
) -> None:
    receipt = erasures.erase_user("ann")
    memory = Memory.from_defaults(session, user_id="ann", database_url=database_url, **LIMITS)
    for name, write in WRITES.items():
        with pytest.raises(ErasedError) as refused:
            write(memory)
        assert refused.value.erasure == receipt.number, name
        assert "readmit" in str(refused.value)
    # What changes only what is there has nothing to change.
    memory.reset(derived=True)
    memory.reset()
    assert memory.pop() is None
    assert list(memory.get()) == []
    assert erasures.find_erased_rows() == {}
    assert erasures.plan_user("ann").total == 0


def test_who_is_readmitted_begins_with_nothing(erasures: Erasures, database_url: str) -> None:
    erasures.erase_user("ann")
    readmission = erasures.readmit_user("ann", actor="operator")
    assert readmission.kind == "readmission"
    memory = Memory.from_defaults(f"{WORD}-one", user_id="ann", database_url=database_url, **LIMITS)
    assert memory.put({"role": "user", "content": "back"}) == 1
    assert said(database_url, f"{WORD}-one", "ann") == ["back"]
    assert erasures.find_erased_rows() == {}
    with pytest.raises(NotFoundError):
        erasures.readmit_user("ann")
    second = erasures.erase_user("ann")
    assert second.number == readmission.number + 1
    assert second.counts["message"] == 1


def test_a_user_of_whom_nothing_is_known_is_kept_away_too(erasures: Erasures, database_url: str) -> None:
    receipt = erasures.erase_user("nobody")
    assert receipt.counts == {"audit_subject": 1}, "the pseudonym that the act of erasing is under"
    memory = Memory.from_defaults("first", user_id="nobody", database_url=database_url, **LIMITS)
    with pytest.raises(ErasedError):
        memory.put({"role": "user", "content": "hello"})
    assert erasures.erase_user("nobody") == receipt


@clear_only("looks for words within rows of all tables")
def test_a_session_goes_and_its_user_stays(erasures: Erasures, database: Database, database_url: str) -> None:
    keys = identify_session("default", f"{WORD}-two", "ann")
    others = said(database_url, f"{WORD}-one", "ann")
    assert f"{WORD}two1" in dump(database_url)
    planned = erasures.plan_session(f"{WORD}-two").rows
    facts = "SELECT count(*) FROM strandline.fact"
    ((before,),) = rows_of(database_url, facts)
    receipt = erasures.erase_session(f"{WORD}-two")
    ((left,),) = rows_of(database_url, facts)
    # What the forgetting reset deletes is counted; lanes that nobody had opened are opened for it.
    assert {table: receipt.counts.get(table) for table in planned if table != "lane"} == {
        table: rows for table, rows in planned.items() if table != "lane"
    }
    assert receipt.counts.get("fact", 0) == before - left > 0
    after = dump(database_url)
    assert f"{WORD}two" not in after
    assert str(keys.directory_key) not in after
    with_key = {
        table
        for (table,) in rows_of(database_url, TABLES)
        if rows_of(
            database_url, f'SELECT FROM strandline."{table}" t WHERE t::text LIKE %s', f"%{keys.session_key}%"
        )
    }
    assert with_key == {"erasure", "erasure_fence"}
    assert said(database_url, f"{WORD}-one", "ann") == others != []
    assert receipt.scope_key == keys.session_key
    memory = Memory.from_defaults(f"{WORD}-two", user_id="ann", database_url=database_url, **LIMITS)
    with pytest.raises(ErasedError):
        memory.put({"role": "user", "content": "back"})
    assert verify(database).violations == ()
    erasures.readmit_session(f"{WORD}-two")
    assert memory.put({"role": "user", "content": "back"}) == 1
    with pytest.raises(NotFoundError):
        erasures.erase_session("no such session")


def test_a_sessions_erasure_that_ends_anywhere_goes_on(erasures: Erasures, database_url: str) -> None:
    """Also where the directory does not know its owner any more."""
    for step in range(0, 30, 2):
        passed = iter(range(1_000))

        def end(_step: str, _table: str, _rows: int) -> None:
            if next(passed) == step:  # noqa: B023  # called within this round alone
                raise KeyboardInterrupt

        try:
            receipt = erasures.erase_session(f"{WORD}-two", on_progress=end)
            break
        except KeyboardInterrupt:
            pass
    assert [one.state for one in erasures.list()] == ["done"]
    assert receipt.scope_key == identify_session("default", f"{WORD}-two", "ann").session_key
    assert f"{WORD}two" not in dump(database_url)


def test_a_session_without_a_user_is_an_owner(rig: Rig, erasures: Erasures) -> None:
    memory = rig.memory("alone", **LIMITS)
    memory.put({"role": "user", "content": "lonelyword"})
    receipt = erasures.erase_session("alone")
    assert receipt.scope_key == receipt.owner_key == identify_session("default", "alone", None).shard_key
    assert "lonelyword" not in dump(rig.url)
    with pytest.raises(ErasedError):
        memory.put({"role": "user", "content": "back"})


def test_an_erasure_that_ends_anywhere_goes_on(database_url: str, key: Path) -> None:
    """After each of its transactions in turn; the receipt counts as much as of one that was not ended."""
    erasures = Erasures.of_namespace(database_url=database_url, key_file=key)
    planned = erasures.plan_user("ann").rows["message"]
    ends = 0

    def end_at(step: int) -> Callable[[str, str, int], None]:
        passed = iter(range(1_000))

        def told(_step: str, _table: str, _rows: int) -> None:
            if next(passed) == step:
                raise KeyboardInterrupt

        return told

    for step in range(0, 60, 3):
        try:
            receipt = erasures.erase_user("ann", on_progress=end_at(step))
            break
        except KeyboardInterrupt:
            ends += 1
            if step:
                assert erasures.show(1).state == "running"
    assert ends > 8
    assert receipt.number == 1
    assert receipt.counts["message"] == planned
    assert WORD not in dump(database_url)
    erasures.close()


async def test_two_at_once_share_the_work_and_the_receipt(erasures: Erasures) -> None:
    receipts = await asyncio.gather(erasures.aerase_user("ann"), erasures.aerase_user("ann"))
    await erasures.aclose()
    (first, second) = list(receipts)
    assert first == second


def test_a_receipt_verifies_and_a_changed_one_does_not(erasures: Erasures, key: Path, tmp_path: Path) -> None:
    receipt = erasures.erase_user("ann")
    verifier = verifier_of(key.with_name("key.pem.pub"))
    assert erasures.verify(receipt, verifier).is_good
    for changed in (
        replace(receipt, counts={**receipt.counts, "message": 1}),
        replace(receipt, not_covered=()),
        replace(receipt, owner_key=receipt.erasure_id),
        replace(receipt, signature=receipt.signature and receipt.signature[:-4] + "AAA="),
    ):
        verdict = erasures.verify(changed, verifier)
        assert (verdict.signature, verdict.is_good) == ("changed", False)
    make_receipt_key(tmp_path / "other.pem")
    assert erasures.verify(receipt, verifier_of(tmp_path / "other.pem")).signature == "other_key"
    (tmp_path / "receipts").write_text(f"{receipt.to_json()}\n\n{receipt.to_json()}\n")
    assert read_receipts(tmp_path / "receipts") == [receipt, receipt]
    (tmp_path / "receipts").write_text(receipt.to_json() + '\n{"version": 1}\n')
    with pytest.raises(ConfigurationError, match="line 2"):
        read_receipts(tmp_path / "receipts")


def test_without_a_key_the_receipt_is_not_signed_and_says_so(database_url: str) -> None:
    erasures = Erasures.of_namespace(database_url=database_url)
    receipt = erasures.erase_user("ann")
    assert (receipt.signature, receipt.key_id) == (None, None)
    assert erasures.verify(receipt).signature == "unsigned"
    assert [one.is_signed for one in erasures.list()] == [False]
    erasures.close()


def test_erased_rows_that_come_back_are_found(rig: Rig, erasures: Erasures) -> None:
    receipt = erasures.erase_user("ann")
    watch = (
        "INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)"
        " VALUES (%s, gen_random_uuid(), 'idle', now())"
    )
    _execute(rig.url, watch, receipt.owner_key)
    assert erasures.find_erased_rows() == {"watch": 1}
    assert erasures.verify(receipt).rows == {"watch": 1}
    (violation,) = verify(rig.database).violations
    assert (violation.kind, violation.table) == ("erased_row", "watch")
    assert "reapply" in violation.sentence


def test_items_of_a_user_go_where_the_application_names_them(erasures: Erasures, database: Database) -> None:
    """Items belong to a namespace: what is below the paths that are named goes, and nothing else."""
    store = item_store_key("default")
    places = [path_of(("users", name)) for name in ("ann", "annabel")]
    database.run(answer_requests(store, [ItemPut(place, "k", json.dumps({"v": 1})) for place in places]))
    receipt = erasures.erase_user("ann", items_below=[("users", "ann")])
    assert receipt.counts["store_item"] == 1
    left = database.run(answer_requests(store, [ItemGet(place, "k", False) for place in places]))
    assert [item is None for item in left] == [True, False]


def test_what_lies_outside_is_erased_too_or_named(database_url: str, key: Path) -> None:
    class Archive:
        name = "archive in the cellar"

        def __init__(self) -> None:
            self.asked: list[object] = []

        def erase(self, owner_key: object, session_key: object) -> int:
            self.asked.append((owner_key, session_key))
            return 3

    class Lost:
        name = "archive at sea"

        def erase(self, owner_key: object, session_key: object) -> int:
            raise TimeoutError

    cellar = Archive()
    erasures = Erasures.of_namespace(database_url=database_url, key_file=key, outside=(cellar, Lost()))
    receipt = erasures.erase_user("ann")
    assert cellar.asked == [(receipt.owner_key, None)]
    assert any(check.reader == cellar.name and check.looked_at == 3 for check in receipt.checks)
    assert any("archive at sea" in sentence for sentence in receipt.not_covered)
    erasures.close()


def test_the_tables_of_a_session_have_the_column_that_is_named() -> None:
    for table in metadata.tables.values():
        session = ERASURES[table.name].session
        assert session is None or table.columns.get(session) is not None


def test_reapply_takes_no_receipt_that_no_key_vouches_for(
    rig: Rig, erasures: Erasures, key: Path, tmp_path: Path
) -> None:
    receipt = erasures.erase_user("ann")
    bob = identify_user("default", "bob").shard_key
    forged = replace(receipt, owner_key=bob, scope_key=bob, erasure_id=uuid4())
    readmission = replace(receipt, kind="readmission", number=99, erasure_id=uuid4())
    make_receipt_key(tmp_path / "other.pem")
    other = Erasures.of_namespace(database_url=rig.url, key_file=tmp_path / "other.pem")
    without = Erasures.of_namespace(database_url=rig.url)
    unsigned = replace(forged, signature=None, key_id=None)
    for one in (forged, readmission, unsigned):
        for face in (erasures, other, without):
            with pytest.raises(ConfigurationError, match="nothing was done"):
                list(face.reapply([receipt, one]))
    with pytest.raises(ConfigurationError, match="nothing was done"):
        list(other.reapply([receipt]))
    assert rig.memory("bobsword-one", user_id="bob").history()
    with pytest.raises(ErasedError):
        rig.memory("back", user_id="ann").put({"role": "user", "content": "again"})
    for face in (erasures, other, without):
        assert [one.outcome for one in face.reapply([receipt], verifiers=[verifier_of(key)])] == ["known"]
    assert [one.outcome for one in without.reapply([unsigned], unverified=True)] == ["erased"]
    assert not rig.memory("bobsword-one", user_id="bob").history()


RECEIPT = ErasureReceipt(
    kind="user",
    erasure_id=UUID(int=1),
    number=7,
    namespace="dé",
    owner_key=UUID(int=0xA),
    scope_key=UUID(int=0xA),
    requested_at=datetime(2026, 1, 2, 3, tzinfo=UTC),
    finished_at=datetime(2026, 1, 2, 4, tzinfo=UTC),
    release="1",
    counts={"message": 3},
    checks=(ReaderCheck("get", 1, 0),),
    not_covered=("One.",),
)


def test_a_receipt_has_one_spelling(tmp_path: Path) -> None:
    """Whatever is not byte for byte what was written is refused, also where it would mean the same."""
    text = RECEIPT.to_json()
    assert ErasureReceipt.from_json(text) == RECEIPT
    (tmp_path / "receipts").write_text(f"{text}\n")
    assert read_receipts(tmp_path / "receipts") == [RECEIPT]
    for old, new in {
        '"number":7': '"number":7,"number":7',
        '"number":': '"number":8,"number":',
        "7": "7.0",
        ":3": ":3e0",
        ",": ", ",
        '"kind"': ' "kind"',
        "dé": "de\u0301",
        "\\u00e9": "é",
        "00e9": "00E9",
        '"get"': '"g\\u0065t"',
        "00000a": "00000A",
        "+00:00": "Z",
        "03:00:00": "03:00:00.000000",
        '"user"': '"everybody"',
        '"version":1': '"version":true',
        '"kept":{}': '"kept":null',
        ',"version"': ',"more":1,"version"',
        '"signature":null,': "",
    }.items():
        for other in {text.replace(old, new), text.replace(old, new, 1)} - {text}:
            with pytest.raises(ConfigurationError):
                ErasureReceipt.from_json(other)
    for other in (
        f" {text}",
        f"{text} ",
        f"{text}\t",
        f"\ufeff{text}",
        f"{text}\x0c{text}",
        "[" * 100_000,
        "{}",
    ):
        (tmp_path / "receipts").write_text(other, encoding="utf-8")
        with pytest.raises(ConfigurationError, match="line 1"):
            read_receipts(tmp_path / "receipts")


def test_a_signature_has_one_spelling(key: Path) -> None:
    """The last letter of base64 has bits that are not of the bytes."""
    one = signed(RECEIPT, read_signer(key))
    verifier = verifier_of(key)
    assert one.signature is not None
    assert judge(one, verifier).signature == "valid"
    place = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".index(one.signature[-3])
    letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[place ^ 1]
    again = replace(one, signature=f"{one.signature[:-3]}{letter}==")
    assert b64decode(again.signature or "") == b64decode(one.signature)
    assert judge(again, verifier).signature == "changed"


def test_what_hides_an_erasure_is_found(rig: Rig, erasures: Erasures, key: Path) -> None:
    """Rows of an erased user came back; whoever brought them changes what says that the user was erased."""
    receipt, verifier = erasures.erase_user("ann"), verifier_of(key)
    assert erasures.verify(receipt, verifier).is_good
    _execute(
        rig.url,
        "INSERT INTO strandline.watch (shard_key, session_key, cause, check_at)"
        " VALUES (%s, gen_random_uuid(), 'idle', now())",
        receipt.owner_key,
    )
    with pytest.raises(ConflictError, match="there again"):
        erasures.readmit_user("ann")
    _execute(rig.url, "UPDATE strandline.erasure_fence SET readmitted_at = now()")
    assert erasures.find_erased_rows() == {"watch": 1}
    assert [one.finding for one in rig.database.run(find_unsettled())] == ["unfenced"]
    verdict = erasures.verify(receipt, verifier)
    assert (verdict.rows, verdict.is_unfenced, verdict.is_good) == ({"watch": 1}, True, False)
    # A readmission that no key vouches for lets nobody in.
    _execute(
        rig.url,
        "INSERT INTO strandline.erasure (number, erasure_id, kind, namespace, owner_key, scope_key,"
        " ledger_key, state, receipt, finished_at) SELECT 2, gen_random_uuid(), 'readmission', namespace,"
        " owner_key, scope_key, ledger_key, 'done', %s, now() + interval '1 s' FROM strandline.erasure",
        replace(
            receipt, kind="readmission", finished_at=receipt.finished_at + timedelta(seconds=1)
        ).to_json(),
    )
    assert erasures.verify(receipt, verifier).rows == {"watch": 1}
    _execute(rig.url, "DELETE FROM strandline.erasure WHERE number = 1")
    assert [(one.number, one.finding) for one in rig.database.run(find_unsettled())] == [
        (1, "removed"),
        (1, "unrecorded"),
    ]


@clear_only("rows of retention are made by SQL")
def test_what_could_not_be_reached_is_in_the_receipt(database_url: str, tmp_path: Path) -> None:
    """The process that could not delete an object ended after the row that names it was gone."""

    def lost(name: str) -> Archive:
        raise ConfigurationError("not mounted")

    def end(step: str, _table: str, _rows: int) -> None:
        if step == "check":
            raise KeyboardInterrupt

    retain(database_url, tmp_path)
    resources = Erasures.of_namespace(database_url=database_url)
    without = NamespaceErasures(resources._resources, "default", open_archive=lost)
    with pytest.raises(KeyboardInterrupt):
        without.erase_user("ann", on_progress=end)
    receipt = resources.erase_user("ann")
    assert any("were not erased there: object" in sentence for sentence in receipt.not_covered)
    resources.close()


def test_a_put_to_a_session_whose_row_was_lost_begins_after_what_is_there(rig: Rig) -> None:
    """As after a restore of some tables alone; no read shows what is there, and ``verify`` names it."""
    last = max(seq for (seq,) in rows_of(rig.url, "SELECT max(seq) FROM strandline.message"))
    _execute(rig.url, "DELETE FROM strandline.session")
    memory = Memory.from_defaults(f"{WORD}-two", user_id="ann", database_url=rig.url, **LIMITS)
    assert (memory.put({"role": "user", "content": "on"}) or 0) <= last + 1
    assert memory.put_messages([{"role": "user", "content": str(n)} for n in range(2)])
    assert [message.text for message in memory.get_all()] == ["on", "0", "1"]
    assert "message_stray" in {one.kind for one in verify(rig.database).violations}
