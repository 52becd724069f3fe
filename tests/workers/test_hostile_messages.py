"""Workers ignore messages that are not hints, whoever put them into their queues."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from amqp.method_framing import frame_handler
from hypothesis import given
from hypothesis import strategies as st

from strandline import Memory
from strandline.schemas.broker.hints import (
    EXPIRY_SECONDS,
    MAX_HINT_BYTES,
    Hint,
    UnreadableHintError,
    read_hint,
    write_hint,
)
from strandline.schemas.broker.rabbit_connection import bare_frames
from strandline.schemas.broker.redis_channel import MAX_ENVELOPE_BYTES, bare_envelope
from strandline.schemas.values.lanes import STAGES, SUMMARY_STAGE, Lane, queue_name
from strandline.workers.condition import LOG_SECONDS, Condition
from tests.conftest import StartWorker, needs_internals, rows_of, wait_until
from tests.support.raw_messages import STOLEN, RedisSender, hostile_messages, raw_sender
from tests.support.servers.broker_queues import BrokerQueues
from tests.support.servers.model_server import ModelServer
from tests.support.workers.busy_workers import environment

MakeMemory = Callable[..., Memory]

HINTS = st.builds(
    Hint,
    st.builds(Lane, st.uuids(), st.uuids(), st.integers(1, 2**31 - 1), st.sampled_from(STAGES)),
    st.integers(0, 2**40),
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = st.binary(max_size=200) | JSON_VALUES.map(lambda value: json.dumps(value).encode())

DROPPED = "SELECT coalesce(sum((condition ->> 'dropped_hints')::int), 0) FROM strandline.worker"
SUMMARIES = "SELECT count(*) FROM strandline.receipt WHERE stage = 'summary' AND outcome = 'applied'"


@needs_internals
def test_a_worker_drops_and_counts_what_is_no_hint_and_goes_on(
    make_memory: MakeMemory,
    start_worker: StartWorker,
    model_server: ModelServer,
    database_url: str,
    broker_url: str,
) -> None:
    """Without a sweep, so that only a hint can lead it to the work."""
    with BrokerQueues(broker_url, [*STAGES, STOLEN]) as queues:
        worker = start_worker("--no-sweep", "--queues", SUMMARY_STAGE, **environment(model_server))
        sent = 0
        sender = raw_sender(broker_url)
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
            lambda: worker.process.poll() is not None or rows_of(database_url, DROPPED) >= [(sent,)],
            timeout=60,
            what=f"{sent} messages to be dropped and counted",
        )
        memory = make_memory("s", broker_url=broker_url)
        memory.put({"role": "user", "content": "the harbour is open"})
        memory.flush(all=True)
        wait_until(
            lambda: worker.process.poll() is not None or rows_of(database_url, SUMMARIES) == [(1,)],
            timeout=60,
            what="a real hint to be taken up",
        )
        assert worker.process.poll() is None, "".join(worker.output)
        assert queues.waiting(SUMMARY_STAGE) == 0
        assert queues.waiting(STOLEN) == 0, "a message had something published"
        assert worker.stop() == 0, "nothing that was dropped is waited for"
    said = [line for line in worker.output if "hint_dropped" in line or "is not a readable hint" in line]
    assert len(said) == 1, "one line a minute, however many there are"


@given(HINTS)
def test_a_hint_is_read_as_it_was_written(hint: Hint) -> None:
    written = write_hint(hint)
    assert len(written) < MAX_HINT_BYTES / 4
    assert read_hint(written, STAGES) == hint
    assert not hint.is_stale(hint.rung_at + EXPIRY_SECONDS)
    assert hint.is_stale(hint.rung_at + EXPIRY_SECONDS + 1)


@given(BODIES)
def test_a_body_is_a_hint_or_refused_by_one_error(body: bytes) -> None:
    try:
        hint = read_hint(body, STAGES)
    except UnreadableHintError:
        return
    assert json.loads(write_hint(hint)) == json.loads(body)


@pytest.mark.parametrize("body", [None, "[]", b" " * (MAX_HINT_BYTES + 1), b"[" * MAX_HINT_BYTES])
def test_a_body_that_is_too_large_or_deep_is_refused(body: object) -> None:
    with pytest.raises(UnreadableHintError):
        read_hint(body, STAGES)


@given(st.binary(max_size=300) | BODIES)
def test_of_an_envelope_of_redis_nothing_but_the_body_is_passed_on(item: bytes) -> None:
    answer = bare_envelope([b"queue", item])
    assert answer is not None
    passed = json.loads(answer[1])
    assert set(passed) == {"body", "properties", "headers"}
    assert isinstance(passed["body"], str) and passed["headers"] == {}
    assert set(passed["properties"]) == {"delivery_tag", "delivery_info"}


@given(HINTS, JSON_VALUES, JSON_VALUES)
def test_a_hint_passes_whatever_else_its_envelope_says(
    hint: Hint, headers: object, properties: object
) -> None:
    body = base64.b64encode(write_hint(hint)).decode()
    item = json.dumps({"body": body, "headers": headers, "properties": properties}).encode()
    answer = bare_envelope([b"queue", item])
    assert answer is not None
    expected = "" if len(item) > MAX_ENVELOPE_BYTES else write_hint(hint).decode()
    assert json.loads(answer[1])["body"] == expected
    assert bare_envelope(None) is None


def _received(frames: list[tuple[int, int, bytes]]) -> list[tuple[bytes | str, dict[str, Any]]]:
    """What reading the frames of RabbitMQ delivers: bodies and properties."""
    delivered: list[tuple[bytes | str, dict[str, Any]]] = []

    class Counts:
        bytes_recv = 0

    def deliver(_channel: int, _method: object, _arguments: object, message: Any) -> None:
        delivered.append((message.body, message.properties))

    read = bare_frames(frame_handler, Counts(), deliver)
    for frame in frames:
        read(frame)
    return delivered


def _frames(body: bytes, properties: bytes, piece: int) -> list[tuple[int, int, bytes]]:
    """A delivery (60, 60) on channel 1: method, header, body in pieces."""
    header = pack(">HxxQ", 60, len(body)) + properties
    pieces = [body[start : start + piece] for start in range(0, len(body), piece)]
    return [(1, 1, pack(">HH", 60, 60)), (2, 1, header), *((3, 1, part) for part in pieces)]


@given(
    st.lists(
        st.tuples(st.binary(max_size=3 * MAX_HINT_BYTES), st.binary(min_size=2, max_size=60)), max_size=5
    ),
    st.integers(1, 700),
)
def test_of_a_message_of_rabbitmq_only_a_small_body_is_read(
    messages: list[tuple[bytes, bytes]], piece: int
) -> None:
    frames = [frame for body, properties in messages for frame in _frames(body, properties, piece)]
    expected = [body if 0 < len(body) <= MAX_HINT_BYTES else "" for body, _properties in messages]
    assert _received(frames) == [(body, {}) for body in expected]


def test_what_is_dropped_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    condition = Condition(clock=lambda: now[0])
    for moment in (0.0, 1.0, LOG_SECONDS - 1, LOG_SECONDS, LOG_SECONDS + 1):
        now[0] = moment
        condition.drop_hint("a key is not a UUID")
    counts = [vars(record)["dropped_in_all"] for record in caplog.records]
    assert counts == [1, 4]
    assert json.loads(condition.as_json({}, 0))["dropped_hints"] == 5


def test_a_hint_names_its_lane_by_keys_alone() -> None:
    lane = Lane(UUID(int=1), UUID(int=2), 3, "summary")
    arguments = [str(lane.shard_key), str(lane.scope_key), 3, "summary", 4]
    assert json.loads(write_hint(Hint(lane, 4))) == [arguments, {}, {}]
