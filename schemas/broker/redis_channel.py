"""A worker's channel to Redis: Kombu's own, without its republishing, and of each envelope only the body.

After a lost connection, Kombu would publish unacknowledged hints again; while Redis is away that fails, and
Kombu writes them to a file.  It also trusts envelopes: a malformed one ends the worker, and a forged one
chooses how its body is decoded, decompressed and answered.
"""

from __future__ import annotations

import base64
import json
from itertools import count
from typing import Any

from kombu.transport import redis

from strandline.schemas.broker.hints import MAX_HINT_BYTES
from strandline.schemas.broker.kept_client import KeptClient

# Around the body: Base64, and Kombu's properties, with names of queues in them.
MAX_ENVELOPE_BYTES = 4 * MAX_HINT_BYTES

_numbers = count(1)


class _BareEnvelopes(KeptClient):
    """One client; no hint is given back, since the sweep rings again."""

    do_restore = False

    def _create_client(self, asynchronous: bool = False) -> Any:
        client = super()._create_client(asynchronous)
        if asynchronous:
            client.set_response_callback("BRPOP", bare_envelope)
        return client


class _WorkerChannel(_BareEnvelopes, redis.Channel):
    pass


class _WorkerSentinelChannel(_BareEnvelopes, redis.SentinelChannel):
    pass


# By Kombu's transport.
WORKER_CHANNELS: dict[type, type] = {
    redis.Transport: _WorkerChannel,
    redis.SentinelTransport: _WorkerSentinelChannel,
}


def bare_envelope(answer: Any, **_options: Any) -> tuple[bytes, bytes] | None:
    """Redis's answer to BRPOP, the queue and one envelope, with only the body in the envelope."""
    if not answer:
        return None
    queue, envelope = answer
    properties = {"delivery_tag": str(next(_numbers)), "delivery_info": {}}
    return queue, json.dumps({"body": _body(envelope), "properties": properties, "headers": {}}).encode()


def _body(envelope: bytes) -> str:
    if len(envelope) > MAX_ENVELOPE_BYTES:
        return ""
    try:
        body = base64.b64decode(json.loads(envelope)["body"], validate=True)
        return body.decode("ascii")
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""
