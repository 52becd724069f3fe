"""``strandline top`` shows the numbers of ``status``: once in a pipe, live on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import sys
import time
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.administration import status
from strandline.cli.top import HEADERS
from strandline.schemas.postgres.query import Query
from strandline.schemas.queries.inspection.status import StatusTotals
from tests.conftest import Rig
from tests.support.messages import user
from tests.support.processes import forking
from tests.support.processes.commands import run_here
from tests.support.workers.draining import drain_everything


def without_ages(report: dict[str, Any]) -> str:
    return re.sub(r'"(lag_seconds|unchained_seconds)": [\d.]+', "", json.dumps(report))


def test_in_a_pipe_it_is_a_snapshot_of_status(rig: Rig) -> None:
    memory = rig.memory("s", user_id="u", memory_blocks=["facts", "summary"])
    memory.put(user("I sail."))
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings, ["summary"])
    report = run_here("status", "--json", on=rig.url).json
    assert without_ages(run_here("top", "--json", on=rig.url).json) == without_ages(report)
    printed = run_here("top", on=rig.url)
    assert printed.code == 0, printed.err
    table = [re.split(r"\s{2,}", line.strip()) for line in printed.out.split("\n\n")[0].splitlines()]
    assert table[0] == list(HEADERS)
    shown = {(cells[0], cells[1]): list(map(int, cells[2:5])) for cells in table[1:]}
    assert shown == {
        (pipeline["name"], stage["name"]): [stage["due"], stage["leased"], stage["dead"]]
        for pipeline in report["pipelines"]
        for stage in pipeline["stages"]
    }
    assert shown["facts", "extract"] == [1, 0, 0]
    done = {cells[1]: cells[6] for cells in table[1:]}
    assert done["summary"] == "0.2"
    notes = run_here("status", on=rig.url).out.splitlines()[len(report["pipelines"]) :]
    assert printed.out.split("\n\n")[1].splitlines() == notes


def test_watching_counts_tables_a_twentieth_of_the_time(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, counted = count(100), list[float]()
    monkeypatch.setattr(status, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    real = rig.database.fetch

    def fetch(query: Query[Any]) -> list[Any]:
        if isinstance(query, StatusTotals):
            counted.append(next(seconds))
        return real(query)

    monkeypatch.setattr(rig.database, "fetch", fetch)
    watch = status.StatusReader(rig.database, rig.settings)
    begun, reads = next(seconds), 0
    while next(seconds) < begun + 100:
        assert watch.read().sessions == 0
        reads += 1
    spent = 2 * len(counted)  # by this clock, from before a count to after it
    assert reads > 20
    assert len(counted) > 1
    assert spent <= (next(seconds) - begun) / 20 + 2


def read_until(number: int, words: str) -> str:
    """What the terminal shows, up to these words."""
    shown, deadline = "", time.monotonic() + 300
    while words not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([number], [], [], 0.1)[0]:
            shown += os.read(number, 65_536).decode(errors="replace")
    return shown


def test_on_a_terminal_it_is_live_until_a_key_ends_it(rig: Rig) -> None:
    ours, theirs = pty.openpty()
    with forking.Popen(
        [sys.executable, "-m", "strandline", "top", "--database-url", rig.url],
        env={"PATH": "/usr/bin:/bin", "TERM": "xterm", "COLUMNS": "160", "LINES": "50"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        assert "extract" in read_until(ours, "p: pause")
        os.write(ours, b"p")
        read_until(ours, "paused")
        os.write(ours, b"p")
        read_until(ours, "p: pause")
        os.write(ours, b"q")
        assert process.wait(60) == 0
    os.close(ours)
