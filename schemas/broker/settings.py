"""The broker's settings, shared by the doorbell and the workers, with the reason for each.

Postgres owns the work; a broker message is a hint.  So nothing here tries to make the broker reliable:
the settings keep it from blocking, and from holding hints back for long.  Which of them hold is decided by
the URL's scheme: Redis or RabbitMQ.
"""

from __future__ import annotations

import re
from typing import Any, Literal
from urllib.parse import urlsplit

from strandline.schemas.broker.hints import EXPIRY_SECONDS
from strandline.schemas.display.url_schemes import url_options
from strandline.schemas.values.lanes import queue_name

BrokerKind = Literal["redis", "rabbitmq"]

_KINDS: dict[str, BrokerKind] = {
    "redis": "redis",
    "redis+socket": "redis",
    "rediss": "redis",
    "sentinel": "redis",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "pyamqp": "rabbitmq",
}

CONNECT_SECONDS = 3

# The longest wait for an answer of RabbitMQ to who publishes.
ANSWER_SECONDS = 3.0

_RABBITMQ_TRANSPORT: dict[str, Any] = {"max_retries": 0}

# RabbitMQ and workers declare a connection dead after twice this silence.  The doorbell's connection is too
# short-lived to send heartbeats, but RabbitMQ drops it by them.
HEARTBEAT_SECONDS = 30


def broker_kind(broker_url: str) -> BrokerKind:
    """The kind of broker that a URL names; of several URLs, separated by ``;``, the first one counts."""
    # Settings refuse other kinds; a doorbell without them finds its broker away.
    return _KINDS.get(broker_url.partition("://")[0].lower(), "redis")


def celery_settings(broker_url: str) -> dict[str, Any]:
    of_kind = {"redis": _redis_settings, "rabbitmq": _rabbitmq_settings}
    return of_kind[broker_kind(broker_url)](broker_url) | {
        "broker_connection_retry_on_startup": True,
        "broker_connection_timeout": CONNECT_SECONDS,
        # However long the broker is away: workers are not restarted for it.
        "broker_connection_max_retries": None,
        # Else a channel that the broker closes ends the worker.  RabbitMQ does so where a hint has been held
        # for longer than its ``consumer_timeout`` (30 min), as while one lane gets ever more work.
        "broker_channel_error_retry": True,
        # Nothing can end the threads that are at work; Celery would log for each of them that it could not.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # A worker holds no more hints than threads; RabbitMQ redelivers those it had not begun when killed.
        "task_acks_late": True,
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        # A hint prefetched by a busy worker is invisible to an idle one.
        "worker_prefetch_multiplier": 1,
        # Celery must not take the host application's logging away from it.
        "worker_hijack_root_logger": False,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_create_missing_queues": True,
        "task_default_queue": queue_name("default"),
        # The broker's own, which leads to each queue by its name, and needs neither declaring nor binding.
        "task_default_exchange": "",
        "event_queue_prefix": "strandline.celeryev",
        "worker_send_task_events": False,
        "worker_enable_remote_control": False,
    }


def client_url(broker_url: str) -> str:
    """The broker's URL as Celery and Kombu take it.

    Those of Sentinels lose their query, and all get the user, password and database of their one master.
    """
    if not _is_sentinel(broker_url):
        # Kombu reads a blank for a plus sign.
        return re.sub(r"\?[^;]*", lambda query: query[0].replace("+", "%2B"), broker_url)
    urls = [urlsplit(url) for url in broker_url.split(";")]
    userinfos = (url.netloc.rpartition("@")[:2] for url in urls)
    user, at = next(filter(all, userinfos), ("", ""))
    path = next((url.path for url in urls if url.path.strip("/")), "")
    hosts = (url.netloc.rpartition("@")[2] for url in urls)
    return ";".join(f"sentinel://{user}{at}{host}{path}" for host in hosts)


def sentinel_options(broker_url: str) -> dict[str, Any]:
    """Kombu's options for Sentinels, from the query of their URLs; none for other brokers.

    ``?master_name=`` names the master that they watch, ``&sentinel_password=`` their own password.
    """
    if not _is_sentinel(broker_url):
        return {}
    named = {name: text for url in broker_url.split(";") for name, text in url_options(url).items()}
    own: dict[str, Any] = {"socket_timeout": ANSWER_SECONDS, "socket_connect_timeout": CONNECT_SECONDS}
    if password := named.get("sentinel_password"):
        own["password"] = password
    return {"master_name": named.get("master_name"), "sentinel_kwargs": own}


def _is_sentinel(broker_url: str) -> bool:
    return broker_url.lower().startswith("sentinel://")


def confirming_settings(broker_url: str) -> dict[str, Any]:
    """Further settings under which Celery waits, within bounds, for the confirm of each hint."""
    if broker_kind(broker_url) != "rabbitmq":
        return {}
    options = {"confirm_publish": True, "read_timeout": ANSWER_SECONDS, "write_timeout": ANSWER_SECONDS}
    return {"broker_transport_options": _RABBITMQ_TRANSPORT | options}


def queue_arguments(broker_url: str) -> dict[str, Any]:
    """The arguments with which a worker declares its queues; those of an existing queue cannot be changed.

    A quorum queue, since a classic one lives on a single node of a cluster: with that node down it could be
    neither declared nor consumed.  All else (lengths, delivery limit) is left to the broker's policies.
    """
    return {"x-queue-type": "quorum"} if broker_kind(broker_url) == "rabbitmq" else {}


def hint_properties(broker_url: str) -> dict[str, Any]:
    """Message properties of a hint: RabbitMQ, as workers do, drops hints that were not taken in time."""
    return {"expiration": EXPIRY_SECONDS} if broker_kind(broker_url) == "rabbitmq" else {}


def tls_options(broker_url: str) -> dict[str, Any] | None:
    """TLS options that check the name in RabbitMQ's certificate, which is known if the URL has one host."""
    if not broker_url.lower().startswith("amqps://") or ";" in broker_url:
        return None
    return {"server_hostname": urlsplit(broker_url).hostname}


def _redis_settings(broker_url: str) -> dict[str, Any]:
    """``worker_disable_prefetch`` would add nothing: late acknowledgement holds as many hints as threads."""
    return {
        "broker_transport_options": {
            # Kombu would log each taken hint in Redis for redelivery, a tenth of a busy worker's time; the
            # sweep notifies sooner.
            "ack_emulation": False,
            "socket_timeout": 10,
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_keepalive": True,
            "health_check_interval": 25,
            # Kombu's own retries would hold a thread for six seconds where a broker refuses the connection.
            "max_retries": 0,
            **sentinel_options(broker_url),
        },
    }


def _rabbitmq_settings(broker_url: str) -> dict[str, Any]:
    """The doorbell confirms: Celery's ``confirm_publish`` would wait for each hint by itself."""
    return {
        "broker_use_ssl": tls_options(broker_url),
        "broker_heartbeat": HEARTBEAT_SECONDS,
        "broker_transport_options": _RABBITMQ_TRANSPORT,
        # Quorum queues refuse a limit shared by all consumers of a channel; with this each has its own.
        "worker_detect_quorum_queues": True,
    }
