"""``strandline mcp`` as a real process: official clients list and call its tools, and it ends in order."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

pytest.importorskip("mcp.client.client", reason="needs the extra mcp")

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from strandline.deploy.embedded.stack import running_stack
from strandline.producers.tools.definitions import TOOLS
from tests.conftest import MakeMemory, rows_of
from tests.support.processes.forking import READ_AT_START, Popen

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture(autouse=True)
def configured(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", database_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    monkeypatch.setenv("STRANDLINE_TEXT_BACKEND", "local")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers that the SDKs start are forked like other commands."""
    monkeypatch.setattr(subprocess, "Popen", Popen)


def environment() -> dict[str, str]:
    """An SDK's client hands on only what it is told to."""
    return {
        name: value for name, value in os.environ.items() if name.startswith(("STRANDLINE_", *READ_AT_START))
    }


def parameters(*options: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": ["-m", "strandline", "mcp", *options], "env": environment()}


@asynccontextmanager
async def connected(log: TextIO, *options: str) -> AsyncIterator[Client]:
    """The official SDK's client, on a server process of its own."""
    async with Client(stdio_client(StdioServerParameters(**parameters(*options)), errlog=log)) as client:
        yield client


Use = Callable[[Client], Any]
Connect = Callable[..., None]


@pytest.fixture
def connect(tmp_path: Path, forked: None) -> Iterator[Connect]:
    """Runs a coroutine function on a connection; the server is to say nothing on stderr."""

    def run(use: Use, *options: str) -> None:
        async def whole() -> None:
            async with connected(log, *options) as client:
                await use(client)

        asyncio.run(whole())

    with (tmp_path / "stderr").open("w+") as log:
        yield run
        log.seek(0)
        assert log.read() == ""


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of a call that went well; its text says the same."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result
    (text,) = result.content
    assert text.type == "text"
    assert json.loads(text.text) == result.structured_content
    return dict(result.structured_content)


def problem_of(result: Any) -> dict[str, Any]:
    """What an error says; clients would hold structured content against the schema of good results."""
    assert result.is_error and result.structured_content is None
    return dict(json.loads(result.content[0].text))


def test_a_client_lists_the_tools_with_their_annotations(connect: Connect) -> None:
    async def use(client: Client) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(listed) == list(TOOLS)
        for name, tool in listed.items():
            definition = TOOLS[name]
            assert (tool.title, tool.description) == (definition.title, definition.description)
            assert tool.input_schema == definition.parameters
            assert tool.output_schema is not None and tool.output_schema["type"] == "object"
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is (name in ("search_memories", "get_context"))
            assert tool.annotations.destructive_hint is (name in ("update_memory", "delete_memory"))
            assert (tool.annotations.idempotent_hint, tool.annotations.open_world_hint) == (True, False)

    connect(use, "--user", "maren")


def test_a_client_calls_all_five_tools(connect: Connect, database_url: str) -> None:
    async def use(client: Client) -> None:
        stored = await call(client, "add_memory", text="Maren lives in Bergn.", topics=["home"])
        added = stored["memory"]
        assert stored["may_contradict"] is None
        found = await call(client, "search_memories", query="Where does Maren live?")
        assert [one["id"] for one in found["memories"]] == [added["id"]]
        await call(client, "update_memory", id=added["id"], text="Maren lives in Bergen.")
        given = await call(client, "get_context", question="Where does Maren live?", token_limit=500)
        assert "Maren lives in Bergen." in given["text"]
        assert [one["id"] for one in given["citations"]] == [added["id"]]
        for _ in range(2):
            assert await call(client, "delete_memory", id=added["id"]) == {"id": added["id"], "deleted": True}
        assert (await call(client, "search_memories", query="Maren"))["memories"] == []

    connect(use, "--user", "maren")
    kinds = rows_of(database_url, "SELECT kind, actor FROM strandline.fact_event ORDER BY number")
    assert kinds == [("add", "agent"), ("replace", "agent"), ("delete", "agent")]


def test_a_client_is_told_what_an_added_fact_may_contradict(connect: Connect) -> None:
    async def use(client: Client) -> None:
        known = (await call(client, "add_memory", text="User lives in Porto."))["memory"]
        stored = await call(client, "add_memory", text="User lives in Lisbon.")
        assert stored["may_contradict"] == {"id": known["id"], "text": "User lives in Porto."}

    connect(use, "--user", "maren")


def test_what_a_model_gets_wrong_is_an_error_of_the_tool(connect: Connect) -> None:
    async def use(client: Client) -> None:
        for name, arguments, problem in (
            ("forget", {}, "unknown_tool"),
            ("add_memory", {}, "invalid_arguments"),
            ("add_memory", {"text": "x", "user_id": "tove"}, "invalid_arguments"),
            ("delete_memory", {"id": "none"}, "not_found"),
        ):
            result = await client.call_tool(name, arguments)
            assert problem_of(result)["error"] == problem
            assert problem_of(result)["message"]
        assert "memory" in await call(client, "add_memory", text="It goes on.")

    connect(use, "--user", "maren")


def test_a_read_only_server_offers_and_does_nothing_that_writes(connect: Connect) -> None:
    async def use(client: Client) -> None:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == ["search_memories", "get_context"]
        refused = await client.call_tool("add_memory", {"text": "Maren rows."})
        assert problem_of(refused)["error"] == "read_only"
        assert await call(client, "search_memories", query="Maren") == {"memories": [], "messages": []}

    connect(use, "--user", "maren", "--read-only")


def test_servers_of_two_users_at_once_never_see_the_others(tmp_path: Path, forked: None) -> None:
    async def live(client: Client, user: str) -> str:
        seen = []
        for number in range(8):
            seen.append(await call(client, "add_memory", text=f"Boat {number} is {user}'s."))
            seen.append(await call(client, "search_memories", query="Whose is the boat?", limit=50))
            seen.append(await call(client, "get_context", question="Whose is the boat?"))
        assert len(seen[-2]["memories"]) == 8
        return json.dumps(seen)

    async def both() -> None:
        with (tmp_path / "stderr").open("w") as log:
            async with (
                connected(log, "--user", "maren") as maren,
                connected(log, "--user", "tove") as tove,
                connected(log, "--user", "maren", "--namespace", "inga") as inga,
            ):
                users = {"maren": maren, "tove": tove, "inga": inga}
                seen = await asyncio.gather(*(live(client, user) for user, client in users.items()))
        for user, text in zip(users, seen, strict=True):
            assert user in text and not any(other in text for other in users if other != user)

    asyncio.run(both())


def test_a_session_shows_its_latest_messages_as_well(connect: Connect, make_memory: MakeMemory) -> None:
    make_memory("s", user_id="maren", token_limit=2_000).put({"role": "user", "content": "I am at sea."})
    make_memory("t", user_id="maren").put({"role": "user", "content": "My boat leaks."})

    async def use(client: Client) -> None:
        given = await call(client, "get_context", question="How are you?")
        assert "I am at sea." in given["text"] and "leaks" not in given["text"]
        found = await call(client, "search_memories", query="boat")
        assert [one["session_id"] for one in found["messages"]] == ["t"], "all sessions are searched"

    connect(use, "--user", "maren", "--session", "s")


async def test_the_agents_sdk_uses_the_tools(forked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    agents = pytest.importorskip("agents", reason="needs the extra agents")
    testing = pytest.importorskip("agents.testing")
    # Of the moment when the client was imported, which may be that of an earlier test and closed by now.
    monkeypatch.setattr(inspect.unwrap(stdio_client), "__defaults__", (sys.__stderr__,))

    model = testing.ScriptedModel(
        [
            [testing.function_call("add_memory", {"text": "Maren rows on Tuesdays."}, call_id="c1")],
            [testing.function_call("search_memories", {"query": "rows"}, call_id="c2")],
            [testing.assistant_message("I will remember.")],
        ]
    )
    # The SDK's own time limit would be one on how busy this machine may be.
    server = agents.mcp.MCPServerStdio(
        params=parameters("--user", "maren"),
        client_session_timeout_seconds=None,
    )
    async with server:
        assert [tool.name for tool in await server.list_tools()] == list(TOOLS)
        agent = agents.Agent(name="Coach", model=model, mcp_servers=[server])
        untraced = agents.RunConfig(tracing_disabled=True)
        done = await agents.Runner.run(agent, "I row on Tuesdays.", run_config=untraced)
    assert done.final_output == "I will remember."
    assert model.last_call is not None
    outputs = [one for one in model.last_call.input if one.get("type") == "function_call_output"]
    assert all("Maren rows on Tuesdays." in json.dumps(one["output"]) for one in outputs)
    assert len(outputs) == 2


# How it starts and ends.


@contextmanager
def started(*options: str, **streams: Any) -> Iterator[subprocess.Popen[str]]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
    command = [sys.executable, "-m", "strandline", "mcp", *options]
    process: subprocess.Popen[str] = Popen(command, text=True, **pipes)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def send(process: subprocess.Popen[str], *messages: object) -> None:
    assert process.stdin is not None
    for message in messages:
        process.stdin.write(message if isinstance(message, str) else json.dumps(message) + "\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def begin(process: subprocess.Popen[str]) -> None:
    send(process, INITIALIZE)
    assert answer(process)["id"] == 1
    send(process, INITIALIZED)


def requests(name: str, arguments: object, number: int = 2) -> dict[str, Any]:
    call = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}


def test_it_ends_when_the_client_closes_its_end() -> None:
    with started("--user", "maren") as process:
        begin(process)
        send(process, requests("add_memory", {"text": "Maren rows."}))
        assert answer(process)["result"]["structuredContent"]["memory"]["text"] == "Maren rows."
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out, err) == (0, "", "")


def test_what_was_asked_before_the_end_is_done_and_answered() -> None:
    calls = [requests("add_memory", {"text": f"Maren has {n} boats."}, n) for n in range(2, 6)]
    with started("--user", "maren") as process:
        sent = "".join(json.dumps(one) + "\n" for one in (INITIALIZE, INITIALIZED, *calls))
        out, err = process.communicate(sent.rstrip("\n"), timeout=600)
        assert (process.returncode, err) == (0, "")
        answers = {one["id"]: one for one in map(json.loads, out.splitlines())}
    assert sorted(answers) == [1, 2, 3, 4, 5]
    assert all("memory" in answers[n]["result"]["structuredContent"] for n in range(2, 6))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_in_order_at_a_signal_although_the_client_is_silent(
    number: signal.Signals, hung_up: None
) -> None:
    with started("--user", "maren") as process:
        begin(process)
        process.send_signal(number)
        assert process.wait(600) == 0
        assert process.stdout is not None and process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == ("", "")


def test_it_ends_at_a_signal_although_the_client_reads_nothing(make_memory: MakeMemory) -> None:
    memory = make_memory("s", user_id="maren")
    for number in range(50):
        memory.put({"role": "user", "content": f"Boat {number}. " + "It is blue. " * 200})
    with started("--user", "maren") as process:
        begin(process)
        for number in range(2, 12):
            send(process, requests("search_memories", {"query": "boat", "limit": 50}, number))
        answer(process)  # the others do not fit into the pipe
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0


def test_a_client_that_went_away_is_no_error() -> None:
    with started("--user", "maren") as process:
        begin(process)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        send(process, requests("search_memories", {"query": "x"}))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(600) == 0
        assert process.stderr.read() == ""
        process.stdout = process.stdin = None


def test_lines_that_are_no_requests_end_nothing() -> None:
    with started("--user", "maren") as process:
        begin(process)
        send(process, "\n", "hello\n", "[]\n", "\x00\ud7ff\n", "[" * 5_000 + "\n", '{"jsonrpc": "2.0"}\n')
        send(process, requests("search_memories", {"query": "x"}, 77))
        answers = iter(lambda: answer(process), None)
        assert any(one.get("id") == 77 and "result" in one for one in answers)


def test_a_database_that_is_away_is_said_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    with started("--user", "maren") as process:
        begin(process)
        send(process, requests("search_memories", {"query": "x"}))
        result = answer(process)["result"]
        assert result["isError"] and "127.0.0.1" in result["content"][0]["text"]
        _out, err = process.communicate(timeout=600)
        assert process.returncode == 0
        assert "action=tool_failed" in err and "reason=DatabaseUnavailableError" in err


def test_another_users_session_is_refused(make_memory: MakeMemory) -> None:
    make_memory("s", user_id="tove").put({"role": "user", "content": "Hello"})
    assert_refused(["--user", "maren", "--session", "s"], "belongs to another owner")


def test_a_name_that_cannot_be_one_is_refused() -> None:
    assert_refused(["--user", ""], "user_id: is empty")


def assert_refused(options: Sequence[str], sentence: str) -> None:
    with started(*options) as process:
        out, err = process.communicate(timeout=600)
        assert (process.returncode, out) == (1, "")
        assert err.startswith("strandline: ") and sentence in err and err.count("\n") == 1


@pytest.mark.parametrize("missing", ["mcp", "mcp_types"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; from strandline.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "mcp", "--user", "maren"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "strandline: strandline mcp needs the MCP SDK, version 2.3 or newer: pip install 'mcp<3,>=2.3'.\n"
    )


def test_it_works_on_an_embedded_home_that_was_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRANDLINE_DATABASE_URL", "STRANDLINE_EMBEDDED"):
        monkeypatch.delenv(name)
    for expected in (1, 2):
        with started("--user", "maren") as process:
            begin(process)
            send(process, requests("add_memory", {"text": f"Maren has {expected} boats."}))
            assert "result" in answer(process)
            send(process, requests("search_memories", {"query": "boats"}, 3))
            found = answer(process)["result"]["structuredContent"]["memories"]
            assert len(found) == expected
            out, err = process.communicate(timeout=600)
            assert (process.returncode, out) == (0, ""), err
    assert running_stack(Path(os.environ["STRANDLINE_HOME"])) is None, "it left a server running"
