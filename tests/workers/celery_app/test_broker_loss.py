"""The broker goes away while a worker's hands are full, and comes back: the worker goes on."""

from __future__ import annotations

from strandline import Memory
from tests.conftest import Rig, rows_of, wait_until
from tests.support.servers.broker_proxy import BrokerProxy


def test_a_worker_whose_hands_are_full_as_the_broker_goes_away_goes_on(rig: Rig) -> None:
    """One thread, so one hint is all that the worker may have in hand: it has to make room by itself."""
    rig.model.behave(latency=1.5)
    with BrokerProxy(rig.broker_url) as broker:
        worker = rig.start_worker(
            "--concurrency=1",
            "--queues=extract",
            STRANDLINE_BROKER_URL=broker.url,
            OPENAI_BASE_URL=rig.model.base_url,
            STRANDLINE_EMBEDDING_BACKEND="local",
        )
        memory = rig.memory(broker_url=rig.broker_url)
        _say(memory, "I sail in spring.")
        wait_until(lambda: rig.model.requests, timeout=20, what="the model to be asked")
        broker.down()
        wait_until(lambda: _applied(rig.url) == 1, timeout=20, what="the work to be done all the same")
        # Before the broker is back: the worker does not see a loss that is over when it looks again.
        wait_until(lambda: "broker away" in "".join(worker.output), timeout=20, what="the loss to be told")
        broker.up()
        _say(memory, "I moor in autumn.")
        wait_until(lambda: _applied(rig.url) == 2, timeout=25, what="the worker to go on")
    said = "".join(worker.output).upper()
    assert "UNABLE TO RESTORE" not in said
    assert "EMERGENCY" not in said, "no file is left behind"


def _say(memory: Memory, text: str) -> None:
    memory.put({"role": "user", "content": text})
    memory.flush(all=True)


def _applied(url: str) -> int:
    sql = "SELECT count(*) FROM strandline.receipt WHERE stage = 'extract' AND outcome = 'applied'"
    count: int = rows_of(url, sql)[0][0]
    return count
