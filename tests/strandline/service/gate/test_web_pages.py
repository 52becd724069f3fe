"""Web pages, HEAD and slashes: what browsers, probes and MCP clients send."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest

from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.schemas.wire.keys import NewKey
from tests.support.servers.databases import temporary_database
from tests.support.servers.service_server import RunningService

PAGE = "https://chat.example"
MESSAGES = "/v1/sessions/pages/messages"
ASKED = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}


@pytest.fixture(scope="module")
def open_client(stack: EmbeddedStack) -> Iterator[httpx2.Client]:
    """A client of a service that a page may ask."""
    pages = f"{PAGE.upper()}/, https://other.example"
    with (
        temporary_database(stack.database_url) as url,
        RunningService(url, service_web_origins=pages) as service,
        service.client(service.make_key(), user="ana") as client,
    ):
        yield client


@pytest.fixture(scope="module")
def any_client(stack: EmbeddedStack) -> Iterator[httpx2.Client]:
    with (
        temporary_database(stack.database_url) as url,
        RunningService(url, service_web_origins="*") as service,
        service.client(service.make_key(), user="ana") as client,
    ):
        yield client


def test_a_page_is_told_what_it_may_send_without_a_key(open_client: httpx2.Client) -> None:
    asked = httpx2.options(open_client.base_url.join(MESSAGES), headers=ASKED)
    assert asked.status_code == 204
    assert asked.headers["access-control-allow-origin"] == PAGE
    assert {"GET", "POST", "HEAD"} <= set(asked.headers["access-control-allow-methods"].split(", "))
    allowed = asked.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in ("authorization", "content-type", "strandline-user", "prefer"))
    assert "origin" in asked.headers["vary"].lower()
    assert open_client.options("/v1/nothing", headers=ASKED).status_code == 404


@pytest.mark.parametrize("path", [MESSAGES, "/v1/nothing", "/healthz/ready"])
def test_every_answer_tells_the_browser_its_page(open_client: httpx2.Client, path: str) -> None:
    answer = open_client.get(path, headers={"Origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "etag" in answer.headers["access-control-expose-headers"].lower()
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "https://chat.example.evil", "null", ""])
def test_other_pages_are_told_nothing(open_client: httpx2.Client, origin: str) -> None:
    answer = open_client.get("/healthz/ready", headers={"Origin": origin})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert open_client.options(MESSAGES, headers={**ASKED, "Origin": origin}).status_code == 405


def test_any_page_is_a_choice_and_never_with_credentials(any_client: httpx2.Client) -> None:
    answer = any_client.get("/healthz/ready", headers={"Origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers
    # The tools of agents are open to named pages alone.
    assert any_client.post("/mcp", headers={"Origin": PAGE}, json={}).status_code == 403
    assert any_client.options("/mcp", headers=ASKED).status_code == 405


def test_no_page_may_ask_by_default(client: httpx2.Client) -> None:
    answer = client.get("/healthz/ready", headers={"Origin": PAGE})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.options(MESSAGES, headers=ASKED).status_code == 405


@pytest.mark.parametrize("path", ["/healthz/live", "/healthz/ready", "/openapi.json", "/v1/sessions"])
def test_head_is_get_without_the_body(client: httpx2.Client, path: str) -> None:
    told, given = client.head(path), client.get(path)
    assert (told.status_code, told.content) == (given.status_code, b"")
    assert told.headers["content-length"] == str(len(given.content))


def test_head_has_the_refusals_of_get_and_no_stream(running: RunningService, client: httpx2.Client) -> None:
    assert httpx2.head(f"{running.url}/v1/sessions").status_code == 401
    assert client.head("/v1/nothing").status_code == 404
    assert client.head("/v1/events").status_code == 405
    assert "HEAD" in client.delete("/healthz/live").headers["allow"]
    assert client.head("/mcp").status_code == 405


def test_the_tools_answer_with_a_slash_too(running: RunningService, key: NewKey) -> None:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accepted = {"Accept": "application/json, text/event-stream"}
    with running.client(key, user="ana") as client:
        with_slash, without = (client.post(path, json=asked, headers=accepted) for path in ("/mcp/", "/mcp"))
    assert (with_slash.status_code, with_slash.json()) == (200, without.json())
