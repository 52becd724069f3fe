"""The benchmarks run, and their figures have the form that docs/performance.md and the charts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import charts
from bench.figures import Goal, Pair, as_json, as_table, of_times, of_values
from bench.suite import CASES, Case, measure
from tests.support.processes import forking

ROOT = Path(__file__).parent.parent.parent
SECONDS = 550.0


def test_a_ratio_is_the_median_over_repetitions_and_not_of_medians() -> None:
    pairs = [Pair([0.002], [0.001]), Pair([0.009], [0.003]), Pair([0.010], [0.001])]
    figure = of_times("put", "put", "bare INSERT", pairs, goal=Goal(2.5))
    assert (figure.ratio, figure.lowest, figure.highest) == (3.0, 2.0, 10.0)
    assert (figure.here, figure.against_here, figure.unit) == (9.0, 1.0, "ms")
    assert "3      2-10            <= 2.5 NOT met" in as_table([figure], {})
    assert of_values("a", "b", "c", "MB", [(3, 1)], goal=Goal(3, at_least=True)).goal == Goal(
        3, at_least=True
    )


def test_a_case_that_would_not_end_in_time_is_not_begun(capfd: pytest.CaptureFixture[str]) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    slow = Case("slow", never, 60)  # type: ignore[arg-type]
    given = measure(None, None, [slow], seconds=30)  # type: ignore[arg-type]
    assert given.skipped == {"slow": "it takes about 60 s, and 30 s are left"}
    assert "skipped" in capfd.readouterr().err


def test_every_case_gives_its_figures(tmp_path: Path) -> None:
    """With a few calls of each: that they run and say what they are to say, not what it is."""
    file, chat = tmp_path / "figures.json", tmp_path / "chat.jsonl"
    said = [
        {"role": "user", "content": f"The boat number {at} has a mast of {at} metres."} for at in range(60)
    ]
    chat.write_text("\n".join(map(json.dumps, said)), encoding="utf-8")
    command = [sys.executable, "-m", "bench", "--quick", "--file", str(chat), "--json", str(file)]
    printed = run(command)
    written = json.loads(file.read_text(encoding="utf-8"))
    measured = {one["case"] for one in written["figures"]} | set(written["skipped"])
    assert measured == {case.name for case in CASES}
    assert set(written["skipped"]) <= {"peers"}, written["skipped"]
    for one in written["figures"]:
        assert 0 <= one["lowest"] <= one["ratio"] <= one["highest"]
        assert one["name"] in printed
    draws_what_was_written(file, tmp_path)


def run(command: list[str]) -> str:
    """The command's output; one that takes too long is told to end, so that it ends its own processes."""
    with forking.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            printed, said = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.terminate()
            printed, said = process.communicate()
    assert process.returncode == 0, said
    return printed


def draws_what_was_written(file: Path, folder: Path) -> None:
    pytest.importorskip("matplotlib", reason="the charts are drawn with matplotlib (extra 'bench')")
    assert charts.main([str(file), str(folder)]) == 0
    for name in (charts.RATIOS, charts.FLAT):
        assert (folder / name).read_text(encoding="utf-8").startswith("<?xml")


def test_figures_are_written_with_their_goal() -> None:
    figure = of_values("put", "put", "INSERT", "ms", [(1.0, 1.0)], goal=Goal(1.8))
    (written,) = json.loads(as_json([figure], {"processors": 2}))["figures"]
    assert written["goal"] == {"is": "<= 1.8", "met": True}
