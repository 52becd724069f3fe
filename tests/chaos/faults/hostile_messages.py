"""Messages that no hint is: whoever reaches the broker may send them to the queues of the workers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import redis
from kombu import Connection, Producer

from strandline.schemas.values.lanes import STAGES, queue_name

Message = tuple[bytes, dict[str, Any]]

BOMB_BYTES = 20_000_000


def send_hostile_messages(broker_url: str) -> int:
    """Send some of each form to each queue; returns how many."""
    sent = 0
    with Connection(broker_url, connect_timeout=5.0) as connection, connection.channel() as channel:
        producer = Producer(channel)
        for stage in STAGES:
            for body, properties in _forms(stage):
                producer.publish(body, exchange="", routing_key=queue_name(stage), **properties)
                sent += 1
    return sent + (_send_raw(broker_url) if broker_url.startswith("redis") else 0)


def _send_raw(broker_url: str) -> int:
    """Send values that are not even Kombu messages: in Redis a queue is a list, which takes anything."""
    raw = (b"\xff not JSON", b"{}", b"[]", b'{"body": 1}', b"null", b"x" * 1_000_000)
    with redis.Redis.from_url(broker_url, socket_timeout=5.0) as client:
        for stage in STAGES:
            client.lpush(queue_name(stage), *raw)
    return len(raw) * len(STAGES)


def _forms(stage: str) -> Iterator[Message]:
    plain = {"content_type": "application/json", "content_encoding": "utf-8"}
    yield _message(b"\xff\xfe not JSON", plain)
    yield _message(b"[" * 100_000, plain)
    bomb = gzip.compress(b" " * BOMB_BYTES)
    yield _message(bomb, plain, headers={"compression": "application/x-gzip"})
    yield _message(b"cos\nsystem\n(S'true'\ntR.", {"content_type": "application/x-python-serialize"})
    for task in ("zyzzyva", "celery.backend_cleanup", "celery.chord_unlock"):
        yield _task(task, stage, {})
    yield _task(queue_name(stage), stage, {"eta": "2999-01-01T00:00:00+00:00"})
    yield _task(queue_name(stage), stage, {"expires": "zyzzyva", "retries": 10**9})


def _task(name: str, stage: str, headers: dict[str, Any]) -> Message:
    """As Celery's own clients would call a task, with a callback to another queue."""
    callback = {"task": name, "args": [], "options": {"queue": "zyzzyva"}}
    arguments = [str(uuid4()), str(uuid4()), 1, stage]
    body = json.dumps([arguments, {}, {"callbacks": [callback], "errbacks": [callback]}]).encode()
    known = {"lang": "py", "task": name, "id": uuid4().hex}
    return _message(
        body, {"content_type": "application/json", "content_encoding": "utf-8"}, headers=known | headers
    )


def _message(body: bytes, properties: dict[str, Any], *, headers: dict[str, Any] | None = None) -> Message:
    return body, {"headers": headers or {}, **properties}
