"""Lanes that no hint brings are drained on threads that no error takes away."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest

from strandline.schemas.values.lanes import Lane
from strandline.workers.orphaned_lanes import TakeOver
from tests.conftest import wait_until


def some_lanes(count: int) -> list[Lane]:
    return [Lane(uuid4(), uuid4(), 1, "summary") for _ in range(count)]


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_errors_take_no_thread_away(error: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    drained: list[Lane] = []

    def drain(lane: Lane) -> None:
        drained.append(lane)
        raise error("with content of a message")

    take_over = TakeOver(drain, most_threads=2)
    lanes = some_lanes(9)
    for lane in lanes:
        take_over([lane])
        wait_until(lambda: drained[-1:] == [lane], timeout=5, what="the lane")  # noqa: B023
    assert drained == lanes
    wait_until(lambda: len(caplog.records) == len(lanes), timeout=5, what="a line for each")
    assert "content of a message" not in caplog.text


def test_lanes_wait_for_a_thread_that_the_system_did_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    drained: list[Lane] = []
    take_over = TakeOver(drained.append, most_threads=1)
    lanes = some_lanes(2)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        take_over(lanes[:1])
        take_over(lanes[:1])
    take_over(lanes[1:])
    wait_until(lambda: drained == lanes, timeout=5, what="both")
