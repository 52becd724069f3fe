"""Publishing hints: a connection to the broker, on which every wait is bounded.

Waiting for RabbitMQ's confirms tells whether the broker takes hints at all: a broker that is blocked by an
alarm, or hangs, reads nothing and says nothing.  The wait is per batch, not per hint: one round trip, and one
write to the broker's disk, for many.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

from kombu import Connection, Producer
from kombu.transport import redis

from strandline.schemas.broker.hints import Hint, task_headers, write_hint
from strandline.schemas.broker.kept_client import KeptClient
from strandline.schemas.broker.own_celery import OwnCelery
from strandline.schemas.broker.settings import (
    ANSWER_SECONDS,
    HEARTBEAT_SECONDS,
    broker_kind,
    celery_settings,
    confirming_settings,
    hint_properties,
)
from strandline.schemas.broker.troubles import BlockedError
from strandline.schemas.forking import undivided
from strandline.schemas.values.lanes import Lane, queue_name

# So many hints may be on their way, not yet confirmed.
MAX_UNCONFIRMED_HINTS = 500


class _RedisChannel(KeptClient, redis.Channel):
    """Kombu's channel to Redis with one client."""


class _SentinelChannel(KeptClient, redis.SentinelChannel):
    """The same to the master that Sentinels name."""


_CHANNELS: dict[type, type] = {redis.Transport: _RedisChannel, redis.SentinelTransport: _SentinelChannel}


class HintPublisher:
    """Publishes for one thread, on a connection that is opened with the first hint.

    ``connection`` is None while none is open.

    ``public_apis_only``: have RabbitMQ confirm each hint by itself, and Kombu make a client for each command.

    On RabbitMQ, a hint for a queue that no worker has declared yet is lost; the sweep of the worker that
    declares it rings again.
    """

    def __init__(self, broker_url: str, *, public_apis_only: bool = False) -> None:
        # Celery imports as it is set up: a concurrently forked child would find modules half made.
        with undivided:
            self._app = OwnCelery("strandline-doorbell", broker_url)
            self._app.conf.update(celery_settings(broker_url))
            if public_apis_only:
                self._app.conf.update(confirming_settings(broker_url))
        self._properties = hint_properties(broker_url)
        self._public_apis_only = public_apis_only
        self._confirmed = broker_kind(broker_url) == "rabbitmq" and not public_apis_only
        self._hosts = len(broker_url.split(";"))
        self.connection: Connection | None = None
        self._confirms: _Confirms | None = None

    def publish(self, lanes: Iterable[Lane]) -> None:
        """Publish one hint per lane, and wait until the broker has them.

        A reused connection may have ended: hints are tried once more on a new one.

        Raises:
            Exception: any error of the transport; some hints may have passed, and the connection is closed.
        """
        lanes = list(lanes)
        was_connected = self.connection is not None
        try:
            self._publish(lanes)
        except Exception:
            if not was_connected:
                raise
            self._publish(lanes)

    def _publish(self, lanes: Iterable[Lane]) -> None:
        try:
            connection = self.connection or self._connect()
            waiting = iter(lanes)
            while batch := list(islice(waiting, MAX_UNCONFIRMED_HINTS)):
                self._send(connection, batch)
                if self._confirms is not None:
                    self._confirms.wait(connection)
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        """Close the connection in order, if the broker answers; the next hint opens another one."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(Exception):
                connection.release()

    def _connect(self) -> Connection:
        # A connection of the thread's own: Celery's pools are kept by URL, also across a fork.
        with undivided:
            connection: Connection = self._app.connection_for_write(heartbeat=HEARTBEAT_SECONDS)
            self.connection = connection
            channel = _CHANNELS.get(type(connection.transport))
            if channel is not None and not self._public_apis_only:
                connection.transport.Channel = channel
        # Each host of the URL once.
        connection.ensure_connection(max_retries=self._hosts - 1)
        if self._confirmed:
            # Only some of the library's waits can be bounded one by one.
            connection.connection.sock.settimeout(ANSWER_SECONDS)
            connection.connection.on_blocked = _refuse
            self._confirms = _Confirms(connection.default_channel)
        return connection

    def _abandon(self) -> None:
        """Drop a connection that may be broken, without a closing handshake: a hung broker never answers."""
        connection, self.connection = self.connection, None
        self._confirms = None
        if connection is not None:
            with suppress(Exception):
                connection.collect()

    def _send(self, connection: Connection, lanes: Iterable[Lane]) -> None:
        producer = Producer(connection.default_channel)
        for lane in lanes:
            headers = task_headers(lane)
            producer.publish(
                write_hint(Hint(lane, int(time.time()))),
                headers=headers,
                correlation_id=headers["id"],
                routing_key=queue_name(lane.stage),
                content_type="application/json",
                content_encoding="utf-8",
                delivery_mode="transient",
                **self._properties,
            )
            if self._confirms is not None:
                self._confirms.expect()


def _refuse(_reason: str) -> None:
    """RabbitMQ says at the first hint that an alarm is on; it would not confirm it."""
    raise BlockedError


class _Confirms:
    """The messages of a channel that the broker has not confirmed yet, by number."""

    def __init__(self, channel: Any) -> None:
        self._sent = 0
        self._open: set[int] = set()
        channel.events["basic_ack"].add(self._settle)
        # Refused, as by a queue at its limit: as good as lost, and the sweep rings again.
        channel.events["basic_nack"].add(self._settle)
        channel.confirm_select()

    def expect(self) -> None:
        self._sent += 1
        self._open.add(self._sent)

    def wait(self, connection: Connection) -> None:
        """Wait until every message is confirmed; raises TimeoutError if the broker did not answer in time."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while self._open:
            connection.drain_events(timeout=max(0.0, deadline - time.monotonic()))

    def _settle(self, number: int, multiple: bool) -> None:
        if multiple:
            self._open = {sent for sent in self._open if sent > number}
        else:
            self._open.discard(number)
