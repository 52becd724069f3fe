"""Long commands tell share, rate and time left, in a pipe in lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cli.terminal import progress
from strandline.cli.terminal.progress import describe_pace
from tests.conftest import Rig
from tests.support.messages import user
from tests.support.processes.commands import run_here

PACE = re.compile(
    r"(?:(?P<share>\d+) %, )?(?P<rate>[\d,]+) (?P<unit>\w+)s a second(?:, about (?P<left>[\d,]+) s left)?"
)


@given(done=st.integers(0, 10**9), total=st.integers(0, 10**9), seconds=st.floats(0, 10**6))
def test_a_pace_is_a_share_a_rate_and_a_time(done: int, total: int, seconds: float) -> None:
    words = PACE.fullmatch(describe_pace(done, total, "row", seconds))
    assert words is not None
    assert (words["share"] is None) == (total == 0)
    assert total == 0 or 0 <= int(words["share"]) <= 100
    assert words["left"] is None or done < total or words["left"] == "0"


def test_the_time_left_follows_from_the_rate() -> None:
    assert describe_pace(25, 100, "row", 5.0) == "25 %, 5 rows a second, about 15 s left"
    assert describe_pace(25, 0, "row", 5.0) == "5 rows a second"


COMMANDS = {
    "export": (("export", "--user", "ana", "--out", "{folder}/ana.jsonl"), "exporting: "),
    "import": (("import", "{folder}/chats.jsonl", "--session", "i", "--user", "ana"), "importing: "),
    "clear": (("facts", "clear", "--namespace", "default", "--yes"), "clearing: "),
    "erase": (("erasures", "erase", "--user", "ana", "--yes"), "erasing: "),
    "retain": (("retention", "run", "--namespace", "default"), "removing: "),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_long_command_says_how_far_it_is(
    name: str, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", -1.0)
    memory = rig.memory("s", user_id="ana", memory_blocks=[])
    for number in range(3):
        memory.put(user(f"I sail, {number}."))
        memory.flush(all=True)
    memory.facts.add("I sail.")
    if name == "retain":
        kept = run_here("retention", "set", "--namespace", "default", "--max-messages", "1", on=rig.url)
        assert kept.code == 0, kept.err
    (tmp_path / "chats.jsonl").write_text('{"role": "user", "content": "I row."}\n')
    arguments, begins = COMMANDS[name]
    ended = run_here(*(one.format(folder=tmp_path) for one in arguments), on=rig.url)
    assert ended.code == 0, ended.err
    lines = [line for line in ended.err.splitlines() if line.startswith(begins)]
    assert lines, ended.err
    assert all(PACE.fullmatch(line.rpartition("; ")[2]) for line in lines)
