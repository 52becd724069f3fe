"""The sealed trail: what was changed, removed, inserted or put at another place is found and named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from strandline.pipelines.audit import upkeep
from strandline.pipelines.audit.anchors import Anchor, read_anchors
from strandline.pipelines.audit.appending import Act, append_act
from strandline.pipelines.audit.keys import NO_KEYS, SealKeys, one_key, read_keyring
from strandline.pipelines.audit.listing import ActFilter, list_acts
from strandline.pipelines.audit.sealing import seal_once
from strandline.pipelines.audit.upkeep import forget_pseudonym, prune_trail, set_level
from strandline.pipelines.audit.verifying import TrailVerification, verify_trail
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.identity import identify_session, identify_user
from tests.conftest import Rig, rows_of
from tests.support.sealed_trail import seal_all

SECRET = "not a secret, but long enough"
KEYS = one_key(SECRET)
LATER = datetime(2200, 1, 1, tzinfo=UTC)
SEALED = "SELECT seal, place, entry_id FROM strandline.audit_sealed ORDER BY seal, place"
ANN = identify_session("shop", "chat", "ann")


@pytest.fixture
def sealed(database: Database) -> list[list[UUID]]:
    """Three seals of four entries each; their ids, by seal."""
    seals = []
    for seal in range(3):
        acts = []
        for place in range(4):
            act = replace(Act.here("pop", actor="ben", seq=4 * seal + place), origin="192.0.2.7")
            database.run(append_act(ANN, act))
            acts.append(act.entry_id)
        assert database.run(seal_once(KEYS)).entries == 4
        seals.append(acts)
    return seals


def check(
    database: Database, keys: SealKeys = KEYS, anchors: list[Anchor] | None = None
) -> TrailVerification:
    return database.run(verify_trail("shop", keys, anchors or ()))


def found(database: Database, keys: SealKeys = KEYS) -> set[tuple[str, int | None, int | None, UUID | None]]:
    return {(one.problem, one.seal, one.place, one.entry_id) for one in check(database, keys).findings}


def tamper(url: str, sql: str, *params: object) -> None:
    with psycopg.connect(url) as connection:
        assert connection.execute(sql.encode(), params).rowcount > 0


def test_an_untouched_trail_is_sound(database: Database, sealed: list[list[UUID]]) -> None:
    result = check(database)
    assert result.is_sound
    assert (result.seals, result.entries, result.unsealed, result.unkeyed_seals) == (3, 12, 0, 0)


def test_a_pass_says_that_there_is_more_only_if_it_was_full(database: Database) -> None:
    """Else the sealer would go on for as long as puts come, and take a processor from them."""
    for seq in range(5):
        database.run(append_act(ANN, Act.here("pop", actor="ben", seq=seq)))
    passes = [database.run(seal_once(KEYS, limit=2)) for _ in range(4)]
    assert [(one.entries, one.is_full) for one in passes] == [(2, True), (2, True), (1, False), (0, False)]


def test_nothing_is_sealed_twice_or_left(rig: Rig, sealed: list[list[UUID]]) -> None:
    assert rig.database.run(seal_once(KEYS)).entries == 0
    assert [row[2] for row in rows_of(rig.url, SEALED)] == [one for acts in sealed for one in acts]
    assert rows_of(rig.url, "SELECT FROM strandline.audit_entry") == []


CHANGES = {
    "act": "'rewind'", "actor": "'eve'", "origin": "'198.51.100.1'", "subject": "gen_random_uuid()",
    "session": "NULL", "seq": "99", "count": "7", "detail": """'{"x": 1}'""", "flags": "'{pii}'",
    "created_at": "created_at - interval '1 microsecond'", "origin_digest": "sha256('x')",
}  # fmt: skip


@pytest.mark.parametrize("column", CHANGES)
def test_a_changed_entry_is_named(rig: Rig, sealed: list[list[UUID]], column: str) -> None:
    tamper(
        rig.url,
        f"UPDATE strandline.audit_sealed SET {column} = {CHANGES[column]} WHERE seal = 2 AND place = 3",
    )
    assert found(rig.database) == {("changed", 2, 3, sealed[1][2])}


def test_an_origin_that_was_taken_away_is_named(rig: Rig, sealed: list[list[UUID]]) -> None:
    tamper(rig.url, "UPDATE strandline.audit_sealed SET origin = NULL WHERE seal = 2 AND place = 3")
    assert found(rig.database) == {("changed", 2, 3, sealed[1][2])}


@pytest.mark.parametrize("place", [1, 4])
def test_a_removed_entry_is_named(rig: Rig, sealed: list[list[UUID]], place: int) -> None:
    tamper(rig.url, "DELETE FROM strandline.audit_sealed WHERE seal = 2 AND place = %s", place)
    assert found(rig.database) == {("removed", 2, place, sealed[1][place - 1])}


INSERT = """
INSERT INTO strandline.audit_sealed (shard_key, seal, place, entry_id, act, created_at)
SELECT shard_key, %s, %s, gen_random_uuid(), 'pop', now() FROM strandline.audit_chain RETURNING entry_id
"""


@pytest.mark.parametrize(("seal", "place"), [(2, 5), (2, 0), (4, 1)])
def test_an_inserted_entry_is_named(rig: Rig, sealed: list[list[UUID]], seal: int, place: int) -> None:
    ((entry_id,),) = rows_of(rig.url, INSERT, seal, place)
    assert found(rig.database) == {("inserted", seal, place, entry_id)}


def test_entries_in_another_order_are_named(rig: Rig, sealed: list[list[UUID]]) -> None:
    tamper(
        rig.url,
        "UPDATE strandline.audit_sealed SET place = place + 10 WHERE seal = 2 AND place IN (2, 3)",
    )
    tamper(rig.url, "UPDATE strandline.audit_sealed SET place = 15 - place WHERE place > 10")
    assert found(rig.database) == {
        ("reordered", 2, 3, sealed[1][1]),
        ("reordered", 2, 2, sealed[1][2]),
    }


def test_an_entry_of_another_seal_is_named(rig: Rig, sealed: list[list[UUID]]) -> None:
    tamper(rig.url, "UPDATE strandline.audit_sealed SET seal = 3, place = 5 WHERE seal = 2 AND place = 4")
    assert found(rig.database) == {("removed", 2, 4, sealed[1][3]), ("inserted", 3, 5, sealed[1][3])}


@pytest.mark.parametrize(
    "change",
    [
        "root = sha256('x')", "mac = sha256('x')", "previous = sha256('x')", "leaves = leaves || leaves",
        "sealed_at = sealed_at + interval '1 day'", "entries_before = 5",
        "entry_ids = ARRAY[entry_ids[2], entry_ids[1]] || entry_ids[3:4]",
    ],
)  # fmt: skip
def test_a_changed_seal_is_named(rig: Rig, sealed: list[list[UUID]], change: str) -> None:
    tamper(rig.url, f"UPDATE strandline.audit_seal SET {change} WHERE number = 2")
    assert ("seal_changed", 2) in {(one.problem, one.seal) for one in check(rig.database).findings}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_removed_seal_is_named(rig: Rig, sealed: list[list[UUID]], number: int) -> None:
    tamper(rig.url, "DELETE FROM strandline.audit_seal WHERE number = %s", number)
    problems = {(one.problem, one.seal) for one in check(rig.database).findings}
    assert problems == {("seal_removed", number), ("inserted", number)}


def test_an_end_that_was_cut_off_is_found_by_an_anchor(rig: Rig, sealed: list[list[UUID]]) -> None:
    """Without one it is not: the chain is then a shorter one that nobody can tell from an earlier day's."""
    ((mac, at),) = rows_of(rig.url, "SELECT mac, sealed_at FROM strandline.audit_seal WHERE number = 3")
    anchor = Anchor("shop", 3, 12, mac.hex(), at)
    assert check(rig.database, anchors=[anchor]).anchors == 1
    for table in ("seal", "sealed"):
        number = {"seal": "number", "sealed": "seal"}[table]
        tamper(rig.url, f"DELETE FROM strandline.audit_{table} WHERE {number} = 3")
    tamper(rig.url, "UPDATE strandline.audit_chain SET seals = 2, entries = 8")
    assert check(rig.database).is_sound
    assert [(one.problem, one.seal) for one in check(rig.database, anchors=[anchor]).findings] == [
        ("anchor", 3)
    ]


MAKE_UNSEALED = """
WITH old AS (DELETE FROM strandline.audit_sealed RETURNING *), seals AS (DELETE FROM strandline.audit_seal),
    chains AS (DELETE FROM strandline.audit_chain)
INSERT INTO strandline.audit_entry (shard_key, entry_id, namespace, act, actor, subject, created_at)
SELECT gen_random_uuid(), entry_id, 'shop', act, 'eve', subject, created_at FROM old
"""


def test_a_chain_that_was_made_again_with_the_key_is_found_by_an_anchor(
    rig: Rig, sealed: list[list[UUID]]
) -> None:
    ((mac, at),) = rows_of(rig.url, "SELECT mac, sealed_at FROM strandline.audit_seal WHERE number = 3")
    tamper(rig.url, MAKE_UNSEALED)
    for _seal in range(3):
        rig.database.run(seal_once(KEYS, limit=4))
    assert check(rig.database).is_sound
    anchors = read_anchors([Anchor("shop", 3, 12, mac.hex(), at).as_line(), ""], "anchors.jsonl")
    assert [(one.problem, one.seal) for one in check(rig.database, anchors=anchors).findings] == [
        ("anchor", 3)
    ]


def test_the_key_is_needed_and_may_change(database: Database, sealed: list[list[UUID]]) -> None:
    ring = read_keyring("2026 0123456789abcdef0\n2027 0123456789abcdef1\n", "keys")
    assert ring.current == "2027"
    both = SealKeys("2027", {**KEYS.secrets, **ring.secrets})
    database.run(append_act(ANN, Act.here("pop")))
    database.run(seal_once(both))
    assert check(database, both).is_sound
    assert found(database) == {("seal_unverified", 4, None, None)}
    wrong = SealKeys("2027", {KEYS.current: b"another secret of this name", **ring.secrets})
    assert {(one.problem, one.seal) for one in check(database, wrong).findings} == {
        ("seal_changed", seal) for seal in (1, 2, 3)
    }


def test_without_a_key_a_trail_is_sealed_and_says_so(database: Database) -> None:
    database.run(append_act(ANN, Act.here("pop")))
    database.run(seal_all(NO_KEYS))
    result = check(database, NO_KEYS)
    assert (result.is_sound, result.seals, result.unkeyed_seals) == (True, 1, 1)


UNSEAL_FROM = """
WITH old AS (DELETE FROM strandline.audit_sealed WHERE seal >= %s RETURNING *),
    seals AS (DELETE FROM strandline.audit_seal WHERE number >= %s),
    chain AS (UPDATE strandline.audit_chain SET seals = %s, entries = 4 * %s)
INSERT INTO strandline.audit_entry (shard_key, entry_id, namespace, act, actor, subject, created_at)
SELECT gen_random_uuid(), entry_id, 'shop', act, 'eve', subject, created_at FROM old
"""


@pytest.mark.parametrize("first", [1, 3])
def test_a_chain_that_was_made_again_without_the_key_is_found_by_who_has_it(
    rig: Rig, sealed: list[list[UUID]], first: int
) -> None:
    tamper(rig.url, UNSEAL_FROM, first, first, first - 1, first - 1)
    for _seal in range(first, 4):
        rig.database.run(seal_once(NO_KEYS, limit=4))
    assert found(rig.database) == {("seal_unkeyed", first, None, None)}
    rig.database.run(append_act(ANN, Act.here("pop")))
    rig.database.run(seal_once(KEYS))
    assert found(rig.database) == {("seal_unkeyed", first, None, None)}, (
        "also with a seal of the key after it"
    )


def test_an_anchor_vouches_for_what_was_sealed_before_there_was_a_key(database: Database) -> None:
    anchors: list[Anchor] = []
    for keys in (NO_KEYS, NO_KEYS, KEYS, NO_KEYS):
        database.run(append_act(ANN, Act.here("pop")))
        anchors += database.run(seal_all(keys))
    assert found(database) == {("seal_unkeyed", seal, None, None) for seal in (1, 4)}
    assert [(one.problem, one.seal) for one in check(database, anchors=anchors[:1]).findings] == [
        ("seal_unkeyed", 2),
        ("seal_unkeyed", 4),
    ]
    assert [one.seal for one in check(database, anchors=anchors[1:2]).findings] == [4]
    other = replace(anchors[3], mac="00" * 32)
    assert {one.problem for one in check(database, anchors=[other]).findings} == {"anchor", "seal_unkeyed"}
    assert check(database, anchors=anchors[3:]).is_sound
    assert check(database, NO_KEYS).findings[0].problem == "seal_unverified"


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "name\n", "name short\n", "none 0123456789abcdef\n",
     "a 0123456789abcdef\na 0123456789abcdef\n", "a b 0123456789abcdef\n"],
)  # fmt: skip
def test_a_keyring_that_cannot_be_used_is_refused_without_a_secret(text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_keyring(text, "/etc/keys")
    assert "0123456789abcdef" not in str(refused.value)


@pytest.mark.parametrize("line", ["{", "[]", '{"namespace": "a"}', '{"seal": 1}', "[" * 10_000])
def test_what_is_not_an_anchor_is_refused(line: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^a\.jsonl, line 1"):
        read_anchors([line], "a.jsonl")


def test_pruning_takes_whole_seals_and_the_rest_is_verified(rig: Rig, sealed: list[list[UUID]]) -> None:
    pruned = rig.database.run(prune_trail("shop", LATER, Act.here("audit.prune", actor="ops")))
    assert (pruned.entries, pruned.through_seal) == (8, 2)
    assert [row[:2] for row in rows_of(rig.url, SEALED)] == [(3, n) for n in (1, 2, 3, 4)]
    rig.database.run(seal_once(KEYS))
    result = check(rig.database)
    assert (result.is_sound, result.pruned_seals, result.seals, result.entries) == (True, 2, 2, 5)
    assert rig.database.run(prune_trail("shop", LATER, Act.here("audit.prune"))).through_seal == 3
    assert [one.problem for one in check(rig.database).findings] == ["pruned_unrecorded"], (
        "its act is not sealed"
    )
    rig.database.run(seal_once(KEYS))
    assert check(rig.database).is_sound
    # The seal that was kept is what the next one follows.
    tamper(rig.url, "UPDATE strandline.audit_seal SET mac = sha256('x') WHERE number = 3")
    assert ("seal_changed", 4) in {(one.problem, one.seal) for one in check(rig.database).findings}
    tamper(rig.url, "DELETE FROM strandline.audit_seal WHERE number = 3")
    assert ("seal_removed", 3) in {(one.problem, one.seal) for one in check(rig.database).findings}


@pytest.mark.parametrize("level", ["changes", "off"])
def test_a_pruned_trail_is_sound_at_every_level(
    database: Database, sealed: list[list[UUID]], level: str
) -> None:
    database.run(set_level("shop", level, Act.here("audit.level")))
    database.run(seal_all(KEYS))
    database.run(prune_trail("shop", LATER, Act.here("audit.prune", actor="ops")))
    database.run(seal_all(KEYS))
    result = check(database)
    assert (result.findings, result.unsealed) == ([], 0)
    assert result.pruned_seals


@pytest.fixture
def pruned(database: Database, sealed: list[list[UUID]]) -> int:
    """The seal that pruning has kept without its entries."""
    through = database.run(prune_trail("shop", LATER, Act.here("audit.prune"))).through_seal
    database.run(seal_all(KEYS))
    assert check(database).is_sound
    return through


@pytest.mark.parametrize("before", [0, 1])
def test_an_entry_under_a_pruned_seal_is_named(rig: Rig, pruned: int, before: int) -> None:
    ((entry_id,),) = rows_of(rig.url, INSERT, pruned - before, 1)
    assert found(rig.database) == {("inserted", pruned - before, 1, entry_id)}


def test_entries_of_a_pruned_trail_are_checked_as_before(rig: Rig, pruned: int) -> None:
    ((entry_id,),) = rows_of(rig.url, INSERT, pruned + 1, 9)
    assert found(rig.database) == {("inserted", pruned + 1, 9, entry_id)}
    tamper(rig.url, "DELETE FROM strandline.audit_sealed WHERE place = 9")
    where = f"WHERE seal = {pruned + 1} AND place = 2"
    tamper(rig.url, f"UPDATE strandline.audit_sealed SET place = 7 {where}")
    assert [one[0] for one in found(rig.database)] == ["reordered"]
    tamper(rig.url, "DELETE FROM strandline.audit_sealed WHERE place = 7")
    assert [one[0] for one in found(rig.database)] == ["removed"]


FORGED = """
INSERT INTO strandline.audit_entry (shard_key, entry_id, namespace, act, detail, flags, created_at)
SELECT c.shard_key, gen_random_uuid(), c.namespace, 'audit.prune',
    json_build_object('through_seal', 2, 'mac', %s::text), '{}', now()
FROM strandline.audit_chain c RETURNING 1
"""


def test_a_beginning_that_was_cut_off_is_not_believed_to_an_act_that_no_seal_covers(
    rig: Rig, sealed: list[list[UUID]]
) -> None:
    ((mac, at),) = rows_of(rig.url, "SELECT mac, sealed_at FROM strandline.audit_seal WHERE number = 1")
    anchors = [Anchor("shop", 1, 4, mac.hex(), at)]
    tamper(rig.url, "DELETE FROM strandline.audit_sealed WHERE seal <= 2")
    tamper(rig.url, "DELETE FROM strandline.audit_seal WHERE number < 2")
    tamper(rig.url, "UPDATE strandline.audit_chain SET pruned_seals = 2")
    said = []
    ((kept,),) = rows_of(rig.url, "SELECT mac FROM strandline.audit_seal WHERE number = 2")
    for forged in (None, mac.hex(), kept.hex()):
        if forged is not None:
            rows_of(rig.url, FORGED, forged)
        (finding,) = check(rig.database).findings
        assert finding.problem == "pruned_unrecorded"
        said.append(finding.sentence)
    assert ["no act" in said[0], "another seal" in said[1], "not sealed yet" in said[2]] == [True] * 3
    result = check(rig.database, anchors=anchors)
    assert (result.anchors, result.pruned_anchors) == (0, 1)


def test_pruning_goes_in_steps_of_so_many_acts(
    database: Database, sealed: list[list[UUID]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And takes a seal at least, however many acts it has."""
    monkeypatch.setattr(upkeep, "ACTS_PER_STEP", 3)
    assert database.run(prune_trail("shop", LATER, Act.here("audit.prune"))).through_seal == 2
    prunings = database.run(list_acts("shop", ActFilter(kind="audit.prune"))).acts
    assert [act.count for act in prunings] == [4, 4]


def test_a_beginning_that_nobody_pruned_is_found(rig: Rig, sealed: list[list[UUID]]) -> None:
    tamper(rig.url, "DELETE FROM strandline.audit_sealed WHERE seal = 1")
    tamper(rig.url, "UPDATE strandline.audit_chain SET pruned_seals = 1")
    assert [one.problem for one in check(rig.database).findings] == ["pruned_unrecorded"]


def test_pruning_goes_by_the_time_of_the_seals(rig: Rig, sealed: list[list[UUID]]) -> None:
    ((second,),) = rows_of(rig.url, "SELECT sealed_at FROM strandline.audit_seal WHERE number = 2")
    act = Act.here("audit.prune")
    assert rig.database.run(prune_trail("shop", second - timedelta(hours=1), act)).entries == 0
    assert rig.database.run(prune_trail("shop", second, act)).through_seal == 1
    with pytest.raises(ConfigurationError, match="time zone"):
        rig.database.run(prune_trail("shop", second.replace(tzinfo=None), act))


def test_erasure_takes_the_user_out_and_leaves_the_chain(rig: Rig, sealed: list[list[UUID]]) -> None:
    rig.database.run(append_act(ANN, replace(Act.here("pop", actor="ann"), origin="192.0.2.7")))
    ann = identify_user("shop", "ann")
    asked = ActFilter(user_id="ann")
    assert len(rig.database.run(list_acts("shop", asked)).acts) == 13
    assert rig.database.run(forget_pseudonym("shop", ann.shard_key, 1)) == 13
    rig.database.run(seal_all(KEYS))
    assert check(rig.database).is_sound
    assert rig.database.run(list_acts("shop", asked)).acts == ()
    acts = rig.database.run(list_acts("shop", ActFilter())).acts
    assert len(acts) == 13
    assert len({act.subject for act in acts}) == 1
    assert {act.user_id for act in acts} == {None} == {act.origin for act in acts}
    tables = ("audit_entry", "audit_sealed", "audit_seal", "audit_chain", "audit_subject")
    stored = [str(rows_of(rig.url, f"SELECT t::text FROM strandline.{table} t")) for table in tables]
    for name in ("ann", "192.0.2.7", str(ann.shard_key), str(ANN.session_key)):
        hits = [
            table for table, text in zip(tables, stored, strict=True) if name in text.replace("'channel", "")
        ]
        assert hits == [], name
    # Nobody can give one an origin again.
    tamper(rig.url, "UPDATE strandline.audit_sealed SET origin = 'x' WHERE seal = 1 AND place = 1")
    assert [(one.problem, one.seal, one.place) for one in check(rig.database).findings] == [("changed", 1, 1)]


def pages(database: Database, asked: ActFilter, limit: int) -> Iterator[list[int | None]]:
    before = None
    while True:
        page = database.run(list_acts("shop", asked, limit=limit, before=before))
        yield [act.seq for act in page.acts]
        if page.next_before is None:
            return
        before = page.next_before


def test_a_list_is_paged_and_filtered(database: Database, sealed: list[list[UUID]]) -> None:
    database.run(append_act("shop", Act.here("limits", actor="ops", seq=12)))
    every = [seq for page in pages(database, ActFilter(), 5) for seq in page]
    assert every == [12, *range(11, -1, -1)]
    assert list(pages(database, ActFilter(actor="ops"), 5)) == [[12]]
    assert list(pages(database, ActFilter(kind="pop"), 12)) == [list(range(11, -1, -1))]
    assert list(pages(database, ActFilter(user_id="ann", entry_id=sealed[0][1]), 5)) == [[1]]
    assert list(pages(database, ActFilter(user_id="eve"), 5)) == [[]]
    newest = database.run(list_acts("shop", ActFilter(), limit=2)).acts
    assert (newest[0].seal, newest[1].seal, newest[1].place) == (None, 3, 4)
    assert list(pages(database, ActFilter(until=newest[1].at), 100)) == [list(range(11, -1, -1))]
    assert list(pages(database, ActFilter(since=newest[1].at), 100)) == [[12, 11]]
    for wrong in (ActFilter(kind="pops"), ActFilter(since=datetime(2026, 1, 1))):  # noqa: DTZ001
        with pytest.raises(ConfigurationError):
            wrong.check()


def test_a_change_of_level_is_recorded_at_every_level(database: Database) -> None:
    def level(name: str) -> bool:
        return database.run(set_level("shop", name, Act.here("audit.level", actor="ops")))

    assert [level(name) for name in ("all", "all", "off", "off", "changes", "changes")] == [
        True, False, True, False, True, False,
    ]  # fmt: skip
    acts = database.run(list_acts("shop", ActFilter(kind="audit.level"))).acts
    assert [(act.detail["from"], act.detail["to"]) for act in reversed(acts)] == [
        ("changes", "all"), ("all", "off"), ("off", "changes"),
    ]  # fmt: skip
    with pytest.raises(ConfigurationError, match="is not a level"):
        level("some")
