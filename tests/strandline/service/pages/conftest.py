"""The service with its page on one database for each file of tests, and visitors without a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.wire.keys import NewKey
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

SECRET = "a secret of the tests, and of nothing else"
_TOKEN = re.compile(r'name="token" value="([0-9a-f]+)"')


@pytest.fixture(scope="module")
def running(stack: EmbeddedStack) -> Iterator[RunningService]:
    """The service, with the page."""
    with (
        temporary_database(stack.database_url) as url,
        RunningService(url, service_page_secret=SECRET) as service,
    ):
        yield service


class Visitor:
    """A browser without script: follows links, and sends forms with their token."""

    def __init__(self, running: RunningService, *keys: NewKey) -> None:
        self.client = running.client(None)
        self.client.follow_redirects = True
        self.token = ""
        if keys:
            self.send("/page/login", key=" ".join(key.key for key in keys))

    def __enter__(self) -> Visitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def get(self, path: str) -> httpx2.Response:
        """A page."""
        return self._seen(self.client.get(path))

    def send(self, path: str, **fields: Any) -> httpx2.Response:
        """The page that follows a form."""
        return self._seen(self.client.post(path, data={"token": self.token, **fields}))

    def _seen(self, response: httpx2.Response) -> httpx2.Response:
        if match := _TOKEN.search(response.text):
            self.token = match[1]
        return response


@pytest.fixture
def operator(running: RunningService) -> Iterator[Visitor]:
    """A visitor with a key of the installation, and one of all scopes of the namespace ``default``."""
    of_all = running.make_key(None, scopes=["operate"])
    of_default = running.make_key(scopes=["read", "write", "facts", "erase", "operate"])
    with Visitor(running, of_all, of_default) as visitor:
        yield visitor
