"""Why a broker cannot be used: a predicate for what its client raised, with no word of the client's own.

Clients quote URLs, names of users and keys; of their sentences at most Redis's code of an error is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_CLUSTER = "belongs to a Redis Cluster, which spreads queues over nodes; use a single Redis"
_NO_RIGHT = "does not give this user the right to write or to take hints"
# By the clients' exception names, since not all clients are installed, and by Redis's error codes.
_TROUBLES = {
    "AccessRefused": "refuses the user or the password",
    "AuthenticationError": "refuses the user or the password",
    "CLUSTERDOWN": _CLUSTER,
    "CROSSSLOT": _CLUSTER,
    "ClusterCrossSlotError": _CLUSTER,
    "ClusterDownError": _CLUSTER,
    "MOVED": _CLUSTER,
    "MovedError": _CLUSTER,
    "BlockedError": "takes no hints: its alarm for memory or disk is on",
    "ConnectionRefusedError": "refuses connections: nothing listens there",
    "MasterNotFoundError": "has no master: the Sentinels know none of this name that is up",
    "ExecAbortError": _NO_RIGHT,
    "NoPermissionError": _NO_RIGHT,
    "NotAllowed": "does not have the virtual host, or does not let this user access it",
    "OutOfMemoryError": "takes no hints: its memory is full",
    "ReadOnlyError": "takes no hints: it is a read-only replica",
    "SSLCertVerificationError": "has a certificate that cannot be verified",
    "TimeoutError": "does not answer in time",
    "UNBLOCKED": "takes no hints: it has become a read-only replica",
    "gaierror": "cannot be found: its host has no address",
}
_CHECK = "check that it runs and that STRANDLINE_BROKER_URL is right"
_ADVICE = {
    "NoPermissionError": "give it the rights that docs/operations.md names under The broker",
    "AccessRefused": "correct them in STRANDLINE_BROKER_URL",
    "OutOfMemoryError": "raise its maxmemory, or free some",
    "BlockedError": "free memory or disk on its node",
    "ReadOnlyError": "name the master in STRANDLINE_BROKER_URL",
    "UNBLOCKED": "name the master in STRANDLINE_BROKER_URL",
    "SSLCertVerificationError": "name your own authority by ssl_ca_certs=FILE in STRANDLINE_BROKER_URL",
}
_ADVICE_BY_TROUBLE = {_TROUBLES[name]: advice for name, advice in _ADVICE.items()}
_CODE = re.compile(r"[A-Z]{4,20}(?= )")
# Of AMQP, from these classes of methods on a refusal is about a queue or an exchange, not about the user.
_CHANNEL_CLASSES = 40


class BlockedError(ConnectionError):
    """RabbitMQ reads nothing of what this connection publishes, because of an alarm."""


def describe_trouble(error: BaseException) -> str | None:
    """The broker's trouble as a predicate: "refuses the user or the password"; None if unknown."""
    for cause in _causes(error):
        name = type(cause).__name__
        if name == "AccessRefused" and (getattr(cause, "method_sig", None) or (0,))[0] >= _CHANNEL_CLASSES:
            return _TROUBLES["NoPermissionError"]
        if name in _TROUBLES:
            return _TROUBLES[name]
        if name == "ResponseError" and (code := _CODE.match(str(cause))):
            return _TROUBLES.get(code[0], f"refuses commands ({code[0]})")
    return None


def advice_for(trouble: str | None) -> str:
    """The advice for a trouble that ``describe_trouble`` gives."""
    return _ADVICE_BY_TROUBLE.get(trouble or "", _CHECK)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
