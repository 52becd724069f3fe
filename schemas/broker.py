"""The broker's settings, shared by the doorbell and the workers, with the reason for each.

Postgres owns the work; a broker message is a hint.  So nothing here tries to make the broker reliable:
the settings keep it from blocking, and from holding hints back for long.
"""

from __future__ import annotations

from typing import Any

from strandline.schemas.lanes import queue_name
from strandline.schemas.settings import Settings

# A hint that a dead worker held comes back after this; the sweep is faster, so it only tidies up.
VISIBILITY_SECONDS = 900

# Hints older than this are worth nothing: the sweep has rung again long before.
EXPIRY_SECONDS = 300


def celery_settings(settings: Settings) -> dict[str, Any]:
    """Celery configuration for a broker URL; what is Redis's alone is ignored by other transports."""
    return {
        "broker_connection_retry_on_startup": True,
        "broker_transport_options": {
            "visibility_timeout": VISIBILITY_SECONDS,
            # Celery's defaults (10 loops, 300 s mutex) left 1,284 expired messages blocked after a kill.
            "unacked_restore_limit": 100,
            "unacked_mutex_expire": 15,
            "socket_timeout": 10,
            "socket_connect_timeout": 3,
            "socket_keepalive": True,
            "health_check_interval": 25,
            # Kombu's own retries would hold a thread for six seconds where a broker refuses the connection.
            "max_retries": 0,
            # Above its limit late acknowledgements fail and tasks run twice.
            "max_connections": 2 * settings.worker_concurrency + 10,
        },
        "task_acks_late": True,
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "worker_prefetch_multiplier": 1,
        # Celery must not take the host application's logging away from it.
        "worker_hijack_root_logger": False,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_create_missing_queues": True,
        "task_default_queue": queue_name("default"),
        "event_queue_prefix": "strandline.celeryev",
        "worker_send_task_events": False,
        "worker_enable_remote_control": False,
    }
