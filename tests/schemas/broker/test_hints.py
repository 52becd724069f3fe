"""Hints: written and read as they are, and nothing but a small body is read of what a broker delivers."""

from __future__ import annotations

import base64
import json
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from amqp.method_framing import frame_handler
from hypothesis import given
from hypothesis import strategies as st

from strandline.schemas.broker.hints import (
    EXPIRY_SECONDS,
    MAX_HINT_BYTES,
    Hint,
    UnreadableHintError,
    read_hint,
    write_hint,
)
from strandline.schemas.broker.settings import BrokerKind, broker_kind, tls_options
from strandline.schemas.values.lanes import STAGES, Lane
from strandline.workers.celery_app.broker_connection import MAX_ENVELOPE_BYTES, bare_envelope, bare_frames

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


def test_a_hint_names_its_lane_by_keys_alone() -> None:
    lane = Lane(UUID(int=1), UUID(int=2), 3, "summary")
    arguments = [str(lane.shard_key), str(lane.scope_key), 3, "summary", 4]
    assert json.loads(write_hint(Hint(lane, 4))) == [arguments, {}, {}]


# The settings of a broker: its kind, and the name that its certificate is checked for.


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://127.0.0.1/0", "redis"),
        ("rediss://:secret@cache:6380/1", "redis"),
        ("redis+socket:///run/redis.sock", "redis"),
        ("amqp://guest@127.0.0.1//", "rabbitmq"),
        ("AMQPS://one/live;amqps://two/live", "rabbitmq"),
    ],
)
def test_the_scheme_says_what_kind_of_broker_it_is(url: str, kind: BrokerKind) -> None:
    assert broker_kind(url) == kind


def test_a_certificate_is_checked_for_the_name_of_an_only_host() -> None:
    assert tls_options("amqps://user:secret@Broker.example:5671//") == {"server_hostname": "broker.example"}
    assert tls_options("amqps://one;amqps://two") is None
    assert tls_options("amqp://broker.example//") is None
