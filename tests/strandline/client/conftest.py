"""One service on one database for each file of tests; tests keep apart by the names of sessions and users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from strandline import Memory
from strandline.client import RemoteMemory, RemoteService
from strandline.deploy.embedded.stack import EmbeddedStack
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService


@pytest.fixture(scope="module")
def running(stack: EmbeddedStack) -> Iterator[RunningService]:
    with temporary_database(stack.database_url) as url, RunningService(url) as service:
        yield service


@pytest.fixture(scope="module")
def remote(running: RunningService) -> Iterator[RemoteService]:
    """The service as a client has it, with a key of the namespace ``default``."""
    with RemoteService(running.url, running.make_key().key) as service:
        yield service


@pytest.fixture
def user() -> str:
    return f"user-{uuid4().hex}"


Both = tuple[Memory, RemoteMemory]


@pytest.fixture
def make_both(running: RunningService, remote: RemoteService, user: str) -> Iterator[Callable[..., Both]]:
    """Makes the memory of one session twice: in this process, and behind the service."""
    made: list[Memory] = []

    def make(session_id: str | None = None, **options: object) -> Both:
        name = session_id or uuid4().hex
        near = Memory.from_defaults(
            name,
            user_id=user,
            database_url=running.database_url,
            **options,  # type: ignore[arg-type]
        )
        made.append(near)
        far = RemoteMemory.from_defaults(
            name,
            user_id=user,
            service=remote,
            **options,  # type: ignore[arg-type]
        )
        return near, far

    yield make
    for memory in made:
        memory.close()
