"""The client of the HTTP service: ``RemoteMemory`` has the methods of ``Memory``, and needs no database.

from strandline.client import RemoteMemory, RemoteService

service = RemoteService("https://memory.example.com", key)
memory = RemoteMemory.from_defaults("chat-17", user_id="ana", service=service)
"""

from strandline.client.admin import AsyncRemoteAdmin, RemoteAdmin
from strandline.client.events import ServiceEvent
from strandline.client.facts import AsyncRemoteFacts, RemoteFacts
from strandline.client.memory import AsyncRemoteMemory, RemoteMemory
from strandline.client.operations import WITHOUT_USER
from strandline.client.retrying import Retries, Timeouts
from strandline.client.service import RemoteService
from strandline.client.upkeep.exports import ExportedFile
from strandline.schemas.errors import (
    ServiceError,
    ServiceKeyError,
    ServiceTimeoutError,
    ServiceUnavailableError,
)

__all__ = [
    "WITHOUT_USER",
    "AsyncRemoteAdmin",
    "AsyncRemoteFacts",
    "AsyncRemoteMemory",
    "ExportedFile",
    "RemoteAdmin",
    "RemoteFacts",
    "RemoteMemory",
    "RemoteService",
    "Retries",
    "ServiceError",
    "ServiceEvent",
    "ServiceKeyError",
    "ServiceTimeoutError",
    "ServiceUnavailableError",
    "Timeouts",
]
