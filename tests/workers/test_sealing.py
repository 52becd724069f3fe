"""Workers seal the audit trail, and hand its anchors over; what is not taken stays, and goes later."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from strandline.pipelines.audit.anchors import Anchor, read_anchors
from strandline.pipelines.audit.appending import Act, append_act
from strandline.pipelines.audit.keys import keys_of
from strandline.pipelines.audit.verifying import verify_trail
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.settings import load_settings
from strandline.wiring.assembly import background_runner
from strandline.workers.upkeep.sealing import Anchoring, Sealing, append_to
from tests.conftest import Rig, rows_of, wait_until

NOW = datetime(2026, 11, 25, tzinfo=UTC)
UNSEALED = "SELECT count(*) FROM strandline.audit_entry"


def anchor(seal: int, namespace: str = "shop") -> Anchor:
    return Anchor(namespace, seal, 4 * seal, "ab" * 32, NOW)


def test_a_worker_seals_what_is_there_and_appends_anchors(rig: Rig, tmp_path: Path) -> None:
    file = tmp_path / "anchors.jsonl"
    settings = load_settings(
        database_url=rig.url, audit_key="a secret of this test", audit_anchors_file=str(file)
    )
    runner = background_runner(rig.database, settings)
    runner.start()
    rig.database.run(append_act("shop", Act.here("limits", actor="ops")))
    wait_until(lambda: rows_of(rig.url, UNSEALED) == [(0,)], timeout=60, what="the seal")
    runner.stop()
    anchors = read_anchors(file.read_text(encoding="utf-8").splitlines(), str(file))
    assert [(one.namespace, one.seal, one.entries) for one in anchors] == [("shop", 1, 1)]
    result = rig.database.run(verify_trail("shop", keys_of(settings), anchors))
    assert (result.is_sound, result.anchors, result.unkeyed_seals) == (True, 1, 0)


def test_many_entries_are_sealed_in_one_tick(rig: Rig) -> None:
    with rig.database.transaction() as transaction:
        for _number in range(5_000):
            transaction.run(append_act("shop", Act.here("limits")))
    Sealing(rig.database, rig.settings).tick()
    assert rows_of(rig.url, UNSEALED) == [(0,)]
    assert rows_of(rig.url, "SELECT seals, entries FROM strandline.audit_chain") == [(2, 5_000)]


def test_anchors_go_together_and_each_chain_once() -> None:
    now: list[float] = [0.0]
    kept: list[Sequence[Anchor]] = []
    anchoring = Anchoring([("place", kept.append)], 60, clock=lambda: now[0])
    anchoring.add([anchor(1), anchor(1, "other")])
    anchoring.add([anchor(2)])
    anchoring.hand_over()
    assert kept == []
    now[0] = 61.0
    anchoring.hand_over()
    assert kept == [(anchor(2), anchor(1, "other"))]
    now[0] = 130.0
    anchoring.hand_over()
    assert len(kept) == 1, "nothing new"
    anchoring.add([anchor(3)])
    anchoring.hand_over(at_once=True)
    assert kept[1:] == [(anchor(3),)]


def test_what_is_not_taken_stays_and_the_others_get_theirs(caplog: pytest.LogCaptureFixture) -> None:
    kept: list[Sequence[Anchor]] = []
    is_away = [True]

    def export(anchors: Sequence[Anchor]) -> None:
        if is_away[0]:
            raise OSError("secret words")

    anchoring = Anchoring([("away", export), ("there", kept.append)], 0)
    anchoring.add([anchor(1)])
    with caplog.at_level(logging.ERROR):
        anchoring.hand_over()
    assert [record.__dict__["place"] for record in caplog.records] == ["away"]
    assert "secret words" not in caplog.text
    assert kept == [(anchor(1),)]
    is_away[0] = False
    anchoring.hand_over()
    assert len(kept) == 1


def test_a_file_is_appended_to(tmp_path: Path) -> None:
    export = append_to(tmp_path / "anchors")
    export([anchor(1)])
    export([anchor(2), anchor(3)])
    lines = (tmp_path / "anchors").read_text(encoding="utf-8").splitlines()
    assert read_anchors(lines, "anchors") == [anchor(1), anchor(2), anchor(3)]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"audit_key": "short"}, "STRANDLINE_AUDIT_KEY: the secret has fewer than 16 bytes"),
        ({"audit_key": "x" * 16, "audit_key_file": "keys"}, "are both set"),
        ({"audit_key_file": "/no/such/file"}, "cannot be read: FileNotFoundError"),
        (
            {"audit_anchors": "no.such:place"},
            "STRANDLINE_AUDIT_ANCHORS function no.such:place cannot be imported",
        ),
    ],
)
def test_keys_and_places_that_cannot_be_used_are_named(
    rig: Rig, options: dict[str, str], problem: str
) -> None:
    settings = load_settings(database_url=rig.url, **options)
    with pytest.raises(ConfigurationError, match=problem):
        Sealing(rig.database, settings)
