"""Messages put into a broker's queue as any client that can write to it could put them there."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol
from uuid import uuid4

import amqp
import redis
from kombu import Connection

from strandline.schemas.broker.hints import Hint, write_hint
from strandline.schemas.broker.settings import broker_kind
from strandline.schemas.values.lanes import SUMMARY_STAGE, VECTORS_STAGE, Lane, queue_name

# A stage that no worker serves, whose queue messages try to have something published to.
STOLEN = "stolen"

Message = dict[str, Any]


class RawSender(Protocol):
    """Puts messages into queues as they are."""

    def send(self, queue: str, body: bytes, **envelope: Any) -> None:
        """``envelope``: ``content_type``, ``content_encoding``, ``headers`` and ``properties``."""
        ...

    def close(self) -> None: ...


def raw_sender(url: str) -> RawSender:
    """One for the broker of a URL."""
    return _RabbitSender(url) if broker_kind(url) == "rabbitmq" else RedisSender(url)


class RedisSender:
    """Writes Kombu's envelope, or anything else."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)

    def send(self, queue: str, body: bytes, **envelope: Any) -> None:
        properties = {
            "body_encoding": "base64",
            "delivery_tag": uuid4().hex,
            "delivery_info": {"exchange": "", "routing_key": queue},
        }
        message = {
            "body": base64.b64encode(body).decode(),
            "content-type": envelope.get("content_type", "application/json"),
            "content-encoding": envelope.get("content_encoding", "utf-8"),
            "headers": envelope.get("headers", {}),
            "properties": properties | envelope.get("properties", {}),
        }
        self.send_raw(queue, json.dumps(message).encode())

    def send_raw(self, queue: str, item: bytes) -> None:
        self._client.lpush(queue, item)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> RedisSender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _RabbitSender:
    def __init__(self, url: str) -> None:
        # A quorum queue may lose what is not confirmed yet when the connection is closed.
        self._connection = Connection(url, connect_timeout=60, transport_options={"confirm_publish": True})

    def send(self, queue: str, body: bytes, **envelope: Any) -> None:
        message = amqp.Message(
            body,
            content_type=envelope.get("content_type", "application/json"),
            content_encoding=envelope.get("content_encoding", "utf-8"),
            application_headers=envelope.get("headers", {}),
            **envelope.get("properties", {}),
        )
        self._connection.default_channel.basic_publish(message, exchange="", routing_key=queue)

    def close(self) -> None:
        self._connection.release()


def hostile_messages() -> Iterator[Message]:
    """Everything that a worker must survive, and do nothing about, with ``body`` and envelope."""
    yield from _bodies_that_are_no_hints()
    yield from _envelopes_that_lead_elsewhere()
    yield from _celerys_own_tasks()


def _bodies_that_are_no_hints() -> Iterator[Message]:
    good = write_hint(Hint(_lane(), 1))
    values, named, embedded = json.loads(good)
    yield {"body": b"not JSON"}
    yield {"body": b""}
    yield {"body": good[:40]}
    yield {"body": b"\xff\xfe\x00"}
    yield {"body": json.dumps("\ud800").encode()}
    yield {"body": b"\xed\xa0\x80"}
    yield {"body": b"[" * 900}
    yield {"body": b" " * 10_000_000}
    yield {"body": json.dumps({"task": "celery.ping", "id": "1", "args": [], "kwargs": {}}).encode()}
    for place, wrong in ((0, "x" * 36), (1, None), (1, {}), (2, 10**12), (2, True), (3, "nowhere"), (4, "1")):
        wrong_values = [*values[:place], wrong, *values[place + 1 :]]
        yield {"body": json.dumps([wrong_values, named, embedded]).encode()}
    yield {"body": json.dumps(values).encode()}
    yield {"body": json.dumps([values, {"a": 1}, embedded]).encode()}
    yield {"body": json.dumps([values, named, {"callbacks": []}]).encode()}
    yield {"body": json.dumps([values[:4], named, embedded]).encode()}
    # Of a stage that other workers serve.
    yield {"body": write_hint(Hint(_lane(VECTORS_STAGE), 1))}


def _envelopes_that_lead_elsewhere() -> Iterator[Message]:
    for size in (64_000_000, 400_000):
        bomb = gzip.compress(b" " * size)
        yield {"body": bomb, "headers": {"compression": "application/x-gzip"}}
        yield {"body": bomb, "content_encoding": "gzip"}
    yield {"body": pickle.dumps([1]), "content_type": "application/x-python-serialize"}
    yield {"body": b"!!python/object/apply:os.getpid []", "content_type": "application/x-yaml"}
    args = [*_lane().to_args(), 1]
    signature: Message = {
        "task": "strandline.stolen",
        "args": [],
        "kwargs": {},
        "options": {"queue": queue_name(STOLEN)},
        "subtask_type": None,
        "immutable": True,
    }
    for embedded in (
        {"callbacks": [signature]},
        {"errbacks": [signature]},
        {"chain": [signature]},
        {"chord": signature},
    ):
        yield _task(queue_name(SUMMARY_STAGE), json.dumps([args, {}, embedded]).encode())
    # One argument too few; as a hint they would be taken up, whatever their headers say.
    body = json.dumps([args[:4], {}, {}]).encode()
    yield _task(queue_name(SUMMARY_STAGE), body, eta="2099-01-01T00:00:00+00:00")
    yield _task(queue_name(SUMMARY_STAGE), body, expires={"a": 1}, timelimit=["x"], retries="many")
    yield {"body": b"x", "properties": {"reply_to": queue_name(STOLEN), "correlation_id": "\ud800"}}


def _celerys_own_tasks() -> Iterator[Message]:
    for name in ("backend_cleanup", "chord_unlock", "accumulate", "group", "chain", "map", "starmap"):
        yield _task(f"celery.{name}", json.dumps([[], {}, {}]).encode())
    yield _task("no.such.task", json.dumps([[], {}, {}]).encode())


def _task(name: str, body: bytes, **headers: Any) -> Message:
    return {"body": body, "headers": {"lang": "py", "task": name, "id": uuid4().hex} | headers}


def _lane(stage: str = SUMMARY_STAGE) -> Lane:
    return Lane(uuid4(), uuid4(), 1, stage)
