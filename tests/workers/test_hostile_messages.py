"""Workers ignore messages that are not hints, whoever put them into their queues."""

from __future__ import annotations

import json

import pytest

from strandline.schemas.values.lanes import STAGES, SUMMARY_STAGE, queue_name
from strandline.workers.condition import LATELY_SECONDS, LOG_SECONDS, MANY_DROPPED, Condition
from tests.conftest import Rig, needs_internals, rows_of, wait_until
from tests.support.raw_messages import STOLEN, RedisSender, hostile_messages, raw_sender
from tests.support.servers.broker_queues import BrokerQueues
from tests.support.workers.busy_workers import environment

DROPPED = "SELECT coalesce(sum((condition ->> 'dropped_hints')::int), 0) FROM strandline.worker"
SUMMARIES = "SELECT count(*) FROM strandline.receipt WHERE stage = 'summary' AND outcome = 'applied'"


@needs_internals
def test_a_worker_drops_and_counts_what_is_no_hint_and_goes_on(rig: Rig) -> None:
    """Without a sweep, so that only a hint can lead it to the work."""
    with BrokerQueues(rig.broker_url, [*STAGES, STOLEN]) as queues:
        worker = rig.start_worker("--no-sweep", "--queues", SUMMARY_STAGE, **environment(rig.model))
        sent = 0
        sender = raw_sender(rig.broker_url)
        for message in hostile_messages():
            sender.send(queue_name(SUMMARY_STAGE), **message)
            sent += 1
        if isinstance(sender, RedisSender):
            for item in (
                b"not JSON",
                b"{",
                b"[]",
                b'{"body": {}}',
                b'{"body": "=", "properties": []}',
                b"\xff",
            ):
                sender.send_raw(queue_name(SUMMARY_STAGE), item)
                sent += 1
        sender.close()
        # RabbitMQ delivers again what it heard no acknowledgement of, so that one may be counted twice.
        wait_until(
            lambda: worker.process.poll() is not None or rows_of(rig.url, DROPPED) >= [(sent,)],
            timeout=60,
            what=f"{sent} messages to be dropped and counted",
        )
        memory = rig.memory("s", broker_url=rig.broker_url)
        memory.put({"role": "user", "content": "the harbour is open"})
        memory.flush(all=True)
        wait_until(
            lambda: worker.process.poll() is not None or rows_of(rig.url, SUMMARIES) == [(1,)],
            timeout=60,
            what="a real hint to be taken up",
        )
        assert worker.process.poll() is None, "".join(worker.output)
        assert queues.waiting(SUMMARY_STAGE) == 0
        assert queues.waiting(STOLEN) == 0, "a message had something published"
        assert worker.stop() == 0, "nothing that was dropped is waited for"
    said = [line for line in worker.output if "hint_dropped" in line or "is not a readable hint" in line]
    assert 1 <= len(said) < sent, "how often is tested below, by a clock of the test's own"


def test_some_dropped_hints_within_minutes_are_many() -> None:
    """A few in weeks are not: a hint may name a lane that has just been erased."""
    now = [0.0]
    condition = Condition(clock=lambda: now[0])

    def are_many() -> bool:
        return "drops_hints" in json.loads(condition.as_json({}, 0))

    for _ in range(MANY_DROPPED):
        assert not are_many()
        condition.drop_hint("it names a lane that this database does not have")
        now[0] += LATELY_SECONDS / MANY_DROPPED - 1
    assert are_many()
    now[0] += MANY_DROPPED + 1
    assert not are_many()


def test_dropped_hints_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    condition = Condition(clock=lambda: now[0])
    for moment in (0.0, 1.0, LOG_SECONDS - 1, LOG_SECONDS, LOG_SECONDS + 1):
        now[0] = moment
        condition.drop_hint("a key is not a UUID")
    counts = [vars(record)["dropped_in_all"] for record in caplog.records]
    assert counts == [1, 4]
    assert json.loads(condition.as_json({}, 0))["dropped_hints"] == 5
