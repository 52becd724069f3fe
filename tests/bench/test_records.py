"""A run names the figures that are worse than those recorded last, and records its own when told to."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.figures import Figure, Goal, of_values
from bench.records import FILE, Record, compare, read_records, write_records

RECORDED = Record("get", "get, p50", "SELECT, p50", 2.0, "2026-11-24", "cfae2eec")


def figure(ratio: float, **options: object) -> Figure:
    return of_values("get", "get, p50", "SELECT, p50", "ms", [(ratio, 1.0)], **options)  # type: ignore[arg-type]


def is_named(one: Figure) -> bool:
    return any(line.startswith("worse by") for line in compare([one], {RECORDED.key: RECORDED}))


@pytest.mark.parametrize(
    ("ratio", "less_is_named", "more_is_named"),
    [
        (2.0, False, False),
        (2.06, False, False),
        (2.07, True, False),
        (1.94, False, False),
        (1.93, False, True),
    ],
)
def test_a_ratio_is_named_that_is_worse_by_more_than_three_per_cent(
    ratio: float, less_is_named: bool, more_is_named: bool
) -> None:
    assert is_named(figure(ratio)) == is_named(figure(ratio, goal=Goal(9))) == less_is_named
    assert is_named(figure(ratio, goal=Goal(1, at_least=True))) == more_is_named
    assert is_named(figure(ratio, more_is_better=True)) == more_is_named


def test_the_line_has_both_ratios_and_where_the_recorded_one_is_from() -> None:
    assert compare([figure(2.5)], {RECORDED.key: RECORDED}) == [
        "worse by 25 %: get: get, p50 / SELECT, p50: 2.5 (2.5-2.5), recorded 2 on 2026-11-24 (cfae2eec)"
    ]


def test_a_figure_without_a_record_is_said_to_have_none() -> None:
    assert compare([figure(2.5)], {}) == ["not recorded yet (--record does): figures of get"]
    nothing = Record(*RECORDED.key, ratio=0.0, date="", commit="")
    assert compare([figure(2.5)], {RECORDED.key: nothing}) == []


def test_what_a_run_has_not_measured_stays_recorded(tmp_path: Path) -> None:
    file = tmp_path / "recorded.json"
    file.write_text("[]", encoding="utf-8")
    other = of_values("put", "put → all", "INSERT", "ms", [(1.3, 1.0)])
    write_records([other, figure(2.0)], "2026-11-24", "cfae2eec", file)
    write_records([figure(1.5)], "2026-11-28", "0123abcd", file)
    assert list(read_records(file).values()) == [
        Record("put", "put → all", "INSERT", 1.3, "2026-11-24", "cfae2eec"),
        Record("get", "get, p50", "SELECT, p50", 1.5, "2026-11-28", "0123abcd"),
    ]
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4


def test_the_records_of_the_project_can_be_read() -> None:
    records = read_records()
    assert all(one.ratio > 0 and one.date and one.commit for one in records.values())
    assert len(records) + 2 == len(FILE.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("option", ["--quick", "--file=chat.jsonl"])
def test_a_run_that_cannot_be_compared_is_not_recorded(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--record", option])
    assert "--record takes the sample's messages" in capsys.readouterr().err
