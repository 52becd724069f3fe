"""One service on one database for each file of tests; tests keep apart by namespaces and names."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.wire.keys import NewKey
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService


@pytest.fixture(scope="module")
def running(stack: EmbeddedStack) -> Iterator[RunningService]:
    """The service."""
    with temporary_database(stack.database_url) as url, RunningService(url) as service:
        yield service


@pytest.fixture(scope="module")
def key(running: RunningService) -> NewKey:
    """A key of the namespace ``default``, of all scopes but that of operators."""
    return running.make_key()


@pytest.fixture(scope="module")
def client(running: RunningService, key: NewKey) -> Iterator[httpx2.Client]:
    """A client of the user ``ana``."""
    with running.client(key, user="ana") as client:
        yield client
