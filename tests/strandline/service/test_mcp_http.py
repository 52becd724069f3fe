"""``/mcp``: official clients use the five tools with a key of the service, and reach nothing of another's."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Literal
from uuid import uuid4

import httpx2
import pytest

pytest.importorskip("mcp.client.client", reason="needs the extra mcp")

from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from strandline import Facts
from strandline.producers.tokens import count_default
from strandline.producers.tools.definitions import TOOLS
from strandline.schemas.settings import load_settings
from strandline.schemas.wire.keys import NewKey
from strandline.service.gate.problems import ProblemError
from strandline.service.routes.mcp import check_asker
from tests.support.servers.service_server import NO_AUTHORITIES, RunningService

# The wire of 2026-07-28, and the one before it with its handshake.
Mode = Literal["auto", "legacy"]
MODES: tuple[Mode, ...] = ("auto", "legacy")
Use = Callable[[Client], Awaitable[None]]


@asynccontextmanager
async def connected(
    running: RunningService, key: NewKey, *, user: str | None = None, mode: Mode = "auto"
) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key.key}"} | ({} if user is None else {"Strandline-User": user})
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, verify=NO_AUTHORITIES) as http,
        Client(streamable_http_client(f"{running.url}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def use_tools(
    running: RunningService, key: NewKey, use: Use, *, user: str | None = None, mode: Mode = "auto"
) -> None:
    async def whole() -> None:
        async with connected(running, key, user=user, mode=mode) as client:
            await use(client)

    asyncio.run(whole())


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    return dict(result.structured_content)


def problem_of(result: Any) -> dict[str, Any]:
    """What an error says, which is text alone."""
    assert result.is_error
    return dict(json.loads(result.content[0].text))


@pytest.fixture
def user() -> str:
    return f"user-{uuid4().hex}"


@pytest.mark.parametrize("mode", MODES)
def test_a_client_lists_and_calls_all_five_tools(
    running: RunningService, key: NewKey, user: str, mode: Mode
) -> None:
    async def use(client: Client) -> None:
        tools = (await client.list_tools()).tools
        sent = json.dumps([tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools])
        assert count_default(sent) <= 1_000
        listed = {tool.name: tool for tool in tools}
        assert list(listed) == list(TOOLS)
        for name, tool in listed.items():
            assert (tool.description, tool.input_schema) == (TOOLS[name].description, TOOLS[name].parameters)
        added = (await call(client, "add_memory", text="Maren lives in Bergn."))["memory"]
        found = await call(client, "search_memories", query="Where does Maren live?")
        assert [one["id"] for one in found["memories"]] == [added["id"]]
        await call(client, "update_memory", id=added["id"], text="Maren lives in Bergen.")
        given = await call(client, "get_context", question="Where does Maren live?", token_limit=500)
        assert "Maren lives in Bergen." in given["text"]
        for _ in range(2):
            assert await call(client, "delete_memory", id=added["id"]) == {"id": added["id"], "deleted": True}
        wrong = await client.call_tool("add_memory", {"text": "x", "user_id": "tove"})
        assert problem_of(wrong)["error"] == "invalid_arguments"

    use_tools(running, key, use, user=user, mode=mode)


def test_messages_of_all_sessions_are_searched_and_nothing_is_put(
    running: RunningService, client: httpx2.Client, key: NewKey
) -> None:
    body = {"messages": [{"role": "user", "content": "My boat leaks."}]}
    assert client.post("/v1/sessions/boats/messages", json=body).status_code == 201

    async def use(agent: Client) -> None:
        found = await call(agent, "search_memories", query="boat")
        assert [one["session_id"] for one in found["messages"]] == ["boats"]

    use_tools(running, key, use, user="ana")
    assert [one["session_id"] for one in client.get("/v1/sessions").json()["items"]] == ["boats"]


def test_keys_of_many_users_at_once_never_see_the_others(running: RunningService) -> None:
    names = [f"user-{uuid4().hex}" for _ in range(3)]
    keys = {
        **{(user, "default"): running.make_key(user_id=user) for user in names},
        (names[0], "acme"): running.make_key("acme", user_id=names[0]),
    }

    async def live(place: tuple[str, str], key: NewKey) -> str:
        mark = "-in-".join(place)
        seen = []
        async with connected(running, key) as client:
            for number in range(4):
                seen.append(await call(client, "add_memory", text=f"Boat {number} is {mark}'s."))
                seen.append(await call(client, "search_memories", query="Whose is the boat?", limit=50))
                seen.append(await call(client, "get_context", question="Whose is the boat?"))
        return json.dumps(seen)

    async def whole() -> list[str]:
        return list(await asyncio.gather(*(live(place, key) for place, key in keys.items())))

    marks = ["-in-".join(place) for place in keys]
    for mark, seen in zip(marks, asyncio.run(whole()), strict=True):
        assert mark in seen
        assert not any(other in seen for other in marks if other != mark)


def test_a_key_that_may_not_write_facts_is_offered_what_only_reads(
    running: RunningService, user: str
) -> None:
    async def use(client: Client) -> None:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["search_memories", "get_context"]
        refused = await client.call_tool("add_memory", {"text": "Maren rows."})
        assert problem_of(refused)["error"] == "read_only"

    use_tools(running, running.make_key(user_id=user, scopes=("read",)), use)


def test_what_an_agent_does_is_recorded_as_the_agents(
    running: RunningService, key: NewKey, user: str
) -> None:
    async def use(client: Client) -> None:
        await call(client, "add_memory", text="Maren rows.")

    use_tools(running, key, use, user=user)
    facts = Facts.for_owner(user_id=user, database_url=running.database_url)
    (fact,) = facts.list()
    assert [revision.actor for revision in fact.revisions] == ["agent"]
    facts.close()


REQUEST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "search_memories", "arguments": {"query": "boat"}},
}
ACCEPT = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}


def ask(client: httpx2.Client, **headers: str) -> httpx2.Response:
    return client.post("/mcp", json=REQUEST, headers={**ACCEPT, **headers})


def test_a_request_stands_alone_and_no_session_is_another_keys(
    running: RunningService, client: httpx2.Client
) -> None:
    answer = ask(client)
    assert answer.json()["result"]["structuredContent"]["memories"] == []
    assert "mcp-session-id" not in answer.headers
    # An id that somebody made up, or saw, opens nothing: what counts is the key.
    assert ask(client, **{"Mcp-Session-Id": "someone-elses"}).json()["result"] == answer.json()["result"]
    assert [client.get("/mcp", headers=ACCEPT).status_code, client.delete("/mcp").status_code] == [405, 405]


def test_without_a_key_or_with_another_users_nothing_is_answered(
    running: RunningService, key: NewKey
) -> None:
    with running.client(None) as nobody:
        assert ask(nobody).status_code == 401
    with running.client(running.make_key(user_id="tove"), user="maren") as stranger:
        assert ask(stranger).status_code == 404
    with running.client(key) as unnamed:
        refused = ask(unnamed)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (
            422,
            "/header/Strandline-User",
        )
    with running.client(running.make_key(None, scopes=("operate",)), user="maren") as operator:
        assert ask(operator).status_code == 403


def test_web_pages_and_other_names_are_refused(client: httpx2.Client) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}):
        answer = ask(client, **headers)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:strandline:problem:refused")
    assert ask(client, Host="localhost:8420").status_code == 200


@pytest.mark.parametrize(
    ("host", "origin", "listens_on", "hosts", "origins", "passes"),
    [
        ("127.0.0.1:8420", None, "127.0.0.1", "", "", True),
        ("[::1]:8420", None, "::1", "", "", True),
        ("127.0.0.1.evil.example", None, "127.0.0.1", "", "", False),
        ("evil.example:8420", None, "localhost", "", "", False),
        (None, None, "127.0.0.1", "", "", False),
        ("memory.example", None, "0.0.0.0", "", "", True),  # noqa: S104
        ("memory.example", None, "0.0.0.0", "memory.example, other.example", "", True),  # noqa: S104
        ("Memory.Example:443", None, "0.0.0.0", "memory.example", "", True),  # noqa: S104
        ("evil.example", None, "0.0.0.0", "memory.example", "", False),  # noqa: S104
        ("localhost", "https://chat.example", "127.0.0.1", "", "https://chat.example", True),
        ("localhost", "https://chat.example.evil", "127.0.0.1", "", "https://chat.example", False),
        ("localhost", "http://chat.example", "127.0.0.1", "", "https://chat.example", False),
    ],
)
def test_who_may_ask_follows_from_host_and_origin(
    host: str | None, origin: str | None, listens_on: str, hosts: str, origins: str, passes: bool
) -> None:
    settings = load_settings(
        database_url="postgresql://nobody@127.0.0.1/none",
        service_host=listens_on,
        service_mcp_hosts=hosts,
        service_mcp_origins=origins,
    )
    headers = {name: value for name, value in (("host", host), ("origin", origin)) if value is not None}
    with nullcontext() if passes else pytest.raises(ProblemError):
        check_asker(headers, settings)


def test_what_is_sent_is_bounded(client: httpx2.Client) -> None:
    large = {**REQUEST, "params": {"name": "add_memory", "arguments": {"text": "x" * 1_100_000}}}
    assert client.post("/mcp", json=large, headers=ACCEPT).status_code == 413
    assert client.post("/mcp", content=b"{", headers=ACCEPT).status_code == 400
    batch = client.post("/mcp", json=[REQUEST] * 100, headers=ACCEPT)
    assert batch.status_code == 400


async def test_the_agents_sdk_uses_the_tools_over_http(running: RunningService, user: str) -> None:
    agents = pytest.importorskip("agents", reason="needs the extra agents")
    testing = pytest.importorskip("agents.testing")
    key = running.make_key(user_id=user)

    model = testing.ScriptedModel(
        [
            [testing.function_call("add_memory", {"text": "Maren rows on Tuesdays."}, call_id="c1")],
            [testing.function_call("search_memories", {"query": "rows"}, call_id="c2")],
            [testing.assistant_message("I will remember.")],
        ]
    )
    server = agents.mcp.MCPServerStreamableHttp(
        params={
            "url": f"{running.url}/mcp",
            "headers": {"Authorization": f"Bearer {key.key}"},
            "timeout": 60,
        },
        client_session_timeout_seconds=None,
    )
    async with server:
        assert [tool.name for tool in await server.list_tools()] == list(TOOLS)
        for name in ("update_memory", "delete_memory", "get_context"):
            arguments = {"get_context": {"question": "rows"}}.get(name, {"id": "none", "text": "x"})
            assert (await server.call_tool(name, arguments)).content
        agent = agents.Agent(name="Coach", model=model, mcp_servers=[server])
        untraced = agents.RunConfig(tracing_disabled=True)
        done = await agents.Runner.run(agent, "I row on Tuesdays.", run_config=untraced)
    assert done.final_output == "I will remember."
    outputs = [one for one in model.last_call.input if one.get("type") == "function_call_output"]
    assert len(outputs) == 2
    assert all("Maren rows on Tuesdays." in json.dumps(one["output"]) for one in outputs)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"jsonrpc":"2.0","id":1,"method":"MARKER/x"}', -32601),
        ('[{"jsonrpc":"2.0","id":1,"method":"MARKER"}]', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["MARKER"]}}', -32602),
        ("MARKER", -32700),
    ],
)
def test_an_error_of_the_protocol_does_not_quote(
    running: RunningService, key: NewKey, user: str, body: str, code: int
) -> None:
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    with running.client(key, user=user) as client:
        answer = client.post("/mcp", content=body, headers=headers)
    assert answer.json()["error"]["code"] == code
    assert answer.json()["error"]["message"].endswith(".")
    assert "MARKER" not in answer.text
