"""Calls of tools: what a model asks for is done for its own user alone, and what it gets wrong is said."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from jsonschema import validate

from strandline import DatabaseUnavailableError, Memory, OwnerError, UnknownPipelineError
from strandline.cli.entry import run
from strandline.pipelines.inspect.verify import verify
from strandline.producers.audit.carrying_out import KnownLevels, Recorder
from strandline.producers.reading.request import ReadRequest
from strandline.producers.tokens import count_default
from strandline.producers.tools.calling import ToolScope, call_tool, read_arguments
from strandline.producers.tools.context_text import NOTHING
from strandline.producers.tools.definitions import MAX_HITS, TOOLS
from strandline.producers.tools.results import MAX_SHOWN_CHARACTERS, RESULTS
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.identity import identify_session
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.servers.model_server import ModelServer
from tests.support.servers.service_server import RunningService
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

Call = Callable[..., dict[str, Any]]

WRITING = {
    "add_memory": {"text": "Maren rows."},
    "update_memory": {"id": str(uuid4()), "text": "Maren sails."},
    "delete_memory": {"id": str(uuid4())},
}


@pytest.fixture
def memory(make_memory: MakeMemory) -> Memory:
    return make_memory("s", user_id="maren")


@pytest.fixture
def call(memory: Memory) -> Call:
    """Calls a tool, and holds its result against the tool's schema."""

    def checked(name: str, **arguments: Any) -> dict[str, Any]:
        result = memory.call_tool(name, arguments)
        if "error" not in result:
            validate(result, RESULTS[name].model_json_schema(mode="serialization"))
        assert json.loads(json.dumps(result)) == result
        return result

    return checked


def facts_of(memory: Memory) -> list[str]:
    return sorted(fact.text for fact in memory.facts.list())


def test_an_agent_adds_corrects_and_deletes_a_memory(call: Call, memory: Memory) -> None:
    added = call("add_memory", text=" Maren lives in Bergn. ", topics=["Home"])["memory"]
    assert (added["text"], added["topics"], added["sources"]) == ("Maren lives in Bergn.", ["home"], [])
    assert facts_of(memory) == ["Maren lives in Bergn."]
    changed = call("update_memory", id=added["id"], text="Maren lives in Bergen.")["memory"]
    assert (changed["id"], changed["text"], changed["topics"]) == (
        added["id"],
        "Maren lives in Bergen.",
        ["home"],
    )
    (fact,) = memory.facts.list()
    assert [(one.operation, one.actor) for one in fact.revisions] == [("add", "agent"), ("replace", "agent")]
    assert call("delete_memory", id=added["id"]) == {"id": added["id"], "deleted": True}
    assert facts_of(memory) == []


def test_every_change_of_an_agent_is_an_event_of_its_own(rig: Rig, call: Call) -> None:
    added = call("add_memory", text="Maren rows.")["memory"]["id"]
    call("update_memory", id=added, text="Maren sails.")
    call("delete_memory", id=added)
    events = rows_of(rig.url, "SELECT kind, actor FROM strandline.fact_event ORDER BY number")
    assert events == [("add", "agent"), ("replace", "agent"), ("delete", "agent")]
    assert verify(rig.database, deep=True).violations == ()


def test_adding_what_is_known_gives_the_fact_that_is_there(call: Call, memory: Memory) -> None:
    first, again = (call("add_memory", text=text)["memory"]["id"] for text in ("Maren rows.", "maren ROWS"))
    assert first == again and facts_of(memory) == ["Maren rows."]


def test_correcting_to_what_is_known_leaves_one(call: Call, memory: Memory) -> None:
    one, other = (call("add_memory", text=text)["memory"]["id"] for text in ("Maren rows.", "Maren sails."))
    assert call("update_memory", id=one, text="Maren sails.")["memory"]["id"] == other
    assert facts_of(memory) == ["Maren sails."]


def test_deleting_once_more_says_the_same_and_records_nothing(call: Call, database_url: str) -> None:
    added = call("add_memory", text="Maren rows.")["memory"]["id"]
    count = "SELECT count(*) FROM strandline.fact_event"
    first = call("delete_memory", id=added)
    events = rows_of(database_url, count)
    assert call("delete_memory", id=added) == call("delete_memory", id=added.upper()) == first
    assert rows_of(database_url, count) == events
    assert call("update_memory", id=added, text="Maren rows again.")["error"] == "not_found"


def test_another_users_memory_is_not_found(call: Call, memory: Memory, make_memory: MakeMemory) -> None:
    mine = call("add_memory", text="Maren rows.")["memory"]["id"]
    gone = call("add_memory", text="Maren sings.")["memory"]["id"]
    call("delete_memory", id=gone)
    strangers = [
        make_memory("t", user_id="tove"),
        make_memory("s", user_id="maren", namespace="elsewhere"),
        make_memory("alone"),
    ]
    for stranger in strangers:
        for fact_id in (mine, gone, str(uuid4())):
            assert stranger.call_tool("delete_memory", {"id": fact_id})["error"] == "not_found"
            taken = stranger.call_tool("update_memory", {"id": fact_id, "text": "Taken over."})
            assert taken["error"] == "not_found"
        assert stranger.call_tool("search_memories", {"query": "rows"}) == {"memories": [], "messages": []}
        assert "rows" not in json.dumps(stranger.call_tool("get_context", {"question": "Who rows?"}))
    assert facts_of(memory) == ["Maren rows."]


def test_users_in_parallel_never_see_each_other(make_memory: MakeMemory) -> None:
    users = ("maren", "tove", "inga", "sigrid")

    def live(user: str) -> str:
        memory = make_memory(f"of-{user}", user_id=user)
        results: list[Any] = []

        def call(name: str, **arguments: Any) -> dict[str, Any]:
            results.append(memory.call_tool(name, arguments))
            return dict(results[-1])

        for number in range(8):
            one = call("add_memory", text=f"The boat {number} is {user}'s.")["memory"]["id"]
            memory.put({"role": "user", "content": f"My boat {number} is of {user}."})
            found = call("search_memories", query="whose boat", limit=MAX_HITS)
            assert len(found["memories"]) == number - number // 2 + 1
            assert user in call("get_context", question="Whose is the boat?")["text"]
            if number % 2:
                call("update_memory", id=one, text=f"{user} sold boat {number}.")
                call("delete_memory", id=one)
        return json.dumps(results)

    with ThreadPoolExecutor(len(users)) as pool:
        for user, seen in zip(users, pool.map(live, users), strict=True):
            assert user in seen
            assert not any(other in seen for other in users if other != user)


async def test_both_ways_to_call_give_the_same(memory: Memory) -> None:
    added = await memory.acall_tool("add_memory", '{"text": "Maren rows."}')
    again = memory.call_tool("add_memory", {"text": "Maren rows."})
    assert added["memory"]["id"] == again["memory"]["id"]
    for name, arguments in (
        ("search_memories", {"query": "rows"}),
        ("get_context", {"question": "Who rows?"}),
        ("delete_memory", {"id": added["memory"]["id"]}),
        ("update_memory", {}),
    ):
        assert await memory.acall_tool(name, arguments) == memory.call_tool(name, json.dumps(arguments))
    await memory.aclose()


# What a search gives.


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A model that finds one fact in each line of a user."""
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url)


Drain = Callable[[], None]


@pytest.fixture
def drain(database: Database, database_url: str, settings: Settings) -> Drain:
    return lambda: drain_everything(database, database_url, settings)


def test_a_search_gives_facts_and_messages_with_where_they_are_from(
    call: Call, make_memory: MakeMemory, drain: Drain
) -> None:
    say(make_memory("earlier", user_id="maren"), "My sister Inga lives in Husum")
    drain()
    found = call("search_memories", query="Where does my sister live?")
    (fact,) = found["memories"]
    assert fact["text"] == "My sister Inga lives in Husum"
    assert fact["sources"] == [{"session_id": "earlier", "seqs": [1]}]
    (message,) = found["messages"]
    assert (message["session_id"], message["seq"], message["said_by"]) == ("earlier", 1, "user")
    assert (message["text"], message["is_cut"]) == (fact["text"], False)
    assert message["at"] is not None and message["id"] and fact["said_at"] == message["at"]
    assert call("update_memory", id=fact["id"], text="Inga moved to Kiel.")["memory"]["sources"] == [
        {"session_id": "earlier", "seqs": [1]}
    ]


def test_the_limit_of_a_search_holds_for_facts_and_for_messages(call: Call, memory: Memory) -> None:
    for number in range(5):
        call("add_memory", text=f"Boat number {number} lies in Bergen.")
        memory.put({"role": "user", "content": f"Boat number {number} is mine."})
    found = call("search_memories", query="boat", limit=3)
    assert (len(found["memories"]), len(found["messages"])) == (3, 3)
    for hits in found.values():
        assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)


def test_a_long_message_is_cut_in_a_search(call: Call, memory: Memory) -> None:
    text = "The anchor is on deck. " * 1_000
    memory.put({"role": "user", "content": text})
    (message,) = call("search_memories", query="anchor deck")["messages"]
    assert (message["text"], message["is_cut"]) == (text[:MAX_SHOWN_CHARACTERS], True)


def test_a_search_embeds_its_query_once(make_memory: MakeMemory, drain: Drain, database: Database) -> None:
    say(make_memory("s", user_id="maren"), "My sister Inga lives in Husum")
    drain()
    texts: list[str] = []

    def embed(text: str, _config: Mapping[str, Any]) -> None:
        texts.append(text)

    def read_nothing(_question: str, _token_limit: int) -> ReadRequest:
        raise NotImplementedError

    identity = identify_session("default", "s", "maren")
    scope = ToolScope(identity, embed, read_nothing, Recorder(identity, None, KnownLevels()))
    found = database.run(call_tool(scope, "search_memories", {"query": "sister"}, read_only=True)).as_json()
    assert found["memories"] and found["messages"]
    assert texts == ["sister"]


# What is given for a question.


def test_context_is_a_text_with_numbered_sources(call: Call, make_memory: MakeMemory, drain: Drain) -> None:
    memory = make_memory("s", user_id="maren")
    say(memory, "My sister Inga lives in Husum")
    drain()
    memory.put({"role": "user", "content": "Hello\n[9] again"})
    fact = call("add_memory", text="Inga is a pilot.")["memory"]["id"]
    given = call("get_context", question="Who is Inga?")
    by_number = {one["number"]: one for one in given["citations"]}
    assert list(by_number) == list(range(1, len(by_number) + 1))
    for number in by_number:
        assert given["text"].count(f"[{number}] ") == 1
    assert any(one["id"] == fact and one["kind"] == "fact" for one in given["citations"])
    sources = [source for one in given["citations"] if one["kind"] == "message" for source in one["sources"]]
    assert {"session_id": "s", "seqs": [2]} in sources, "the latest message"
    assert "\n  [9] again" in given["text"], "no message begins a line"


def test_nothing_known_is_said(call: Call) -> None:
    given = call("get_context", question="Who is Inga?")
    assert given == {"text": NOTHING, "citations": []}


def test_what_is_known_and_has_no_room_is_said(call: Call) -> None:
    call("add_memory", text="Inga is a pilot, " + "and sails, and rows, and sings, " * 30)
    given = call("get_context", question="Who is Inga?", token_limit=200)
    assert given == {"text": NOTHING, "citations": []}
    assert "Inga is a pilot" in call("get_context", question="Who is Inga?")["text"]


def test_the_pinned_head_is_not_given(call: Call, memory: Memory) -> None:
    memory.put({"role": "system", "content": "Never tell the word xylophone."})
    memory.put({"role": "user", "content": "Hello"})
    given = call("get_context", question="Which word?")
    assert "xylophone" not in json.dumps(given) and "Hello" in given["text"]


@pytest.mark.parametrize("token_limit", [200, 480, 490, 500, 510, 2_000, 6_000])
def test_the_limit_holds_for_the_whole_result(
    call: Call, make_memory: MakeMemory, drain: Drain, token_limit: int
) -> None:
    memory = make_memory("s", user_id="maren")
    say(memory, *(f'Boat {n} lies in "Bergen",\npier {n}, said Øystein "{n}".' for n in range(150)))
    drain()
    for number in range(150):
        # As random ids do, that of the last may cost the most tokens.
        name = "a1" * 16 if number == 149 else f"{number:032}"
        painted = f"Now boat {number} is painted red, as I wished it to be."
        memory.put({"role": "user", "content": painted, "id": name})
    given = call("get_context", question="Where does boat 17 lie?", token_limit=token_limit)
    assert count_default(json.dumps(given, ensure_ascii=False)) <= token_limit
    assert "Boat 17 lies" in given["text"], "what matches stays, although the window alone is larger"
    shown = [int(number) for number in re.findall(r"Now boat (\d+)", given["text"])]
    assert token_limit == 200 or shown == list(range(150 - len(shown), 150)) != [], (
        "and the latest, with no gap"
    )


def test_a_memorys_own_limit_is_not_exceeded(make_memory: MakeMemory) -> None:
    memory = make_memory("s", user_id="maren", token_limit=300, token_flush_size=100)
    for number in range(100):
        memory.put({"role": "user", "content": f"Boat {number} lies in Bergen."})
    given = memory.call_tool("get_context", {"question": "boat", "token_limit": 50_000})
    assert count_default(json.dumps(given, ensure_ascii=False)) <= 300


def test_the_limit_holds_for_any_tokenizer(make_memory: MakeMemory) -> None:
    """Of characters, what joins the pieces costs more than it does in tokens."""
    memory = make_memory("s", user_id="maren", token_limit=4_000, tokenizer_fn=len)
    for number in range(60):
        memory.call_tool("add_memory", {"text": f"Boat {number}"})
    for token_limit in range(200, 4_000, 190):
        given = memory.call_tool("get_context", {"question": "boat", "token_limit": token_limit})
        assert len(json.dumps(given, ensure_ascii=False)) <= token_limit


# What a model gets wrong.


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("drinks", ["drinks"]),
        ('["drinks", "wine"]', ["drinks", "wine"]),
        ('"drinks"', ["drinks"]),
        ("red [wine", ["red [wine"]),
        ("7", ["7"]),
        ("", None),
        ("null", None),
        ("[]", []),
    ],
)
def test_a_list_that_a_client_wrote_as_text_is_read(written: str, read: list[str] | None) -> None:
    assert read_arguments(TOOLS["add_memory"], {"text": "x", "topics": written})["topics"] == read


@pytest.mark.parametrize(("written", "read"), [("5", 5), (" 5.0 ", 5), ("", 10), ("null", 10)])
def test_a_number_that_a_client_wrote_as_text_is_read(written: str, read: int) -> None:
    assert read_arguments(TOOLS["search_memories"], {"query": "7", "limit": written}) == {
        "query": "7",
        "limit": read,
    }


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("add_memory", {}, "text: is missing"),
        ("add_memory", None, "text: is missing"),
        ("add_memory", "", "text: is missing"),
        ("add_memory", {"text": None}, "text: is missing"),
        ("add_memory", {"text": "  "}, "text: is empty"),
        ("add_memory", {"text": 7}, "text: must be a string"),
        ("add_memory", {"text": "x" * 1_001}, "at most 1,000 are possible"),
        ("add_memory", {"text": "a\x00b"}, "NUL"),
        ("add_memory", {"text": "\ud800"}, "surrogate"),
        ("add_memory", {"text": "x", "topics": {"a": 1}}, "topics: must be a list of at most"),
        ("add_memory", {"text": "x", "topics": "[1]"}, "topics: must be a string"),
        ("search_memories", {"query": "x", "limit": "five"}, "whole number from 1 to 50"),
        ("search_memories", {"query": "x", "limit": "true"}, "whole number from 1 to 50"),
        ("search_memories", {"query": "x", "limit": "51"}, "whole number from 1 to 50"),
        ("search_memories", {"query": "x", "limit": "9" * 5_000}, "whole number from 1 to 50"),
        ("add_memory", {"text": "x", "topics": ["a"] * 9}, "topics: must be a list of at most"),
        ("add_memory", {"text": "x", "topics": [1]}, "topics: must be a string"),
        ("add_memory", {"text": "x", "user_id": "tove"}, "no argument 'user_id'; it takes text, topics"),
        ("search_memories", {"query": "x", "limit": 0}, "whole number from 1 to 50"),
        ("search_memories", {"query": "x", "limit": 51}, "whole number from 1 to 50"),
        ("search_memories", {"query": "x", "limit": 2.5}, "whole number from 1 to 50"),
        ("search_memories", {"query": "x", "limit": True}, "whole number from 1 to 50"),
        ("search_memories", '{"query": "x", "limit": NaN}', "cannot be read as JSON"),
        ("search_memories", '{"query": "x", "limit": 1e999}', "cannot be read as JSON"),
        ("search_memories", '{"query": "x"', "cannot be read as JSON at character"),
        ("search_memories", "[" * 100_000, "cannot be read as JSON"),
        ("search_memories", '{"limit": ' + "9" * 5_000 + "}", "cannot be read as JSON"),
        ("search_memories", " " * 200_000 + "{}", "more than 200,000 characters"),
        ("search_memories", "[]", "must be a JSON object"),
        ("search_memories", "7", "must be a JSON object"),
        ("search_memories", 7, "must be a JSON object"),
        ("get_context", {"question": "x", "token_limit": 10}, "whole number from 200 to 100,000"),
        ("delete_memory", {"id": ["x"]}, "id: must be a string"),
    ],
)
def test_wrong_arguments_are_said(memory: Memory, name: str, arguments: Any, problem: str) -> None:
    result = memory.call_tool(name, arguments)
    assert result["error"] == "invalid_arguments"
    assert problem in result["message"]


def test_what_a_model_may_write_otherwise_is_taken(memory: Memory) -> None:
    added = memory.call_tool("add_memory", {"text": "Maren rows.", "topics": None})
    assert "error" not in added
    found = memory.call_tool("search_memories", '{"query": "rows", "limit": 5.0}')
    assert len(found["memories"]) == 1
    in_words = memory.call_tool("search_memories", {"query": "rows", "limit": None})
    assert in_words == found


@pytest.mark.parametrize("name", ["", "forget", "memory.search", "SEARCH_MEMORIES", None, 7, ["add_memory"]])
def test_an_unknown_tool_is_said_with_those_there_are(memory: Memory, name: Any) -> None:
    result = memory.call_tool(name, "{}")
    assert result["error"] == "unknown_tool"
    assert all(tool in result["message"] for tool in TOOLS)
    assert "add_memory" not in memory.call_tool("forget", {}, read_only=True)["message"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["id", "text", "topics", "query", "limit", "question"]), inner)
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=10,
)
NAMES = st.sampled_from(sorted(TOOLS)) | st.text(max_size=20)


@examples(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES, arguments=JSON | st.text(), as_text=st.booleans(), read_only=st.booleans())
def test_nothing_that_a_model_writes_raises(
    memory: Memory, name: str, arguments: Any, as_text: bool, read_only: bool
) -> None:
    result = memory.call_tool(name, json.dumps(arguments) if as_text else arguments, read_only=read_only)
    json.dumps(result)
    if "error" in result:
        assert set(result) == {"error", "message"}
        assert result["message"] and "\n" not in result["message"] and len(result["message"]) < 1_000
    else:
        validate(result, RESULTS[name].model_json_schema(mode="serialization"))


# What is forbidden, and what fails.


@pytest.mark.parametrize("name", WRITING)
def test_read_only_calls_change_nothing(memory: Memory, database_url: str, name: str) -> None:
    result = memory.call_tool(name, WRITING[name], read_only=True)
    assert result["error"] == "read_only"
    assert "search_memories and get_context can be used" in result["message"]
    assert rows_of(database_url, "SELECT count(*) FROM strandline.fact_event") == [(0,)]
    assert memory.call_tool("search_memories", {"query": "Maren"}, read_only=True)["memories"] == []


def test_a_namespace_forbids_writes_to_whoever_calls(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", rig.url)
    acme, other = (rig.memory("s", user_id="maren", namespace=name) for name in ("acme", "other"))
    known = acme.call_tool("add_memory", {"text": "Maren sings."})["memory"]["id"]
    assert run(["limits", "set", "acme", "--agents-read-only"]) == 0
    assert capfd.readouterr().out == "acme: agents may only read\n"
    for name, arguments in (WRITING | {"delete_memory": {"id": known}}).items():
        assert acme.call_tool(name, arguments)["error"] == "read_only"
        assert asyncio.run(_call_once(acme, name, arguments))["error"] == "read_only"
    assert facts_of(acme) == ["Maren sings."]
    assert len(acme.call_tool("search_memories", {"query": "Maren"})["memories"]) == 1
    assert "error" not in other.call_tool("add_memory", WRITING["add_memory"])
    assert acme.facts.add("Maren rows.", actor="maren").text == "Maren rows.", "people may"

    assert run(["limits", "list", "--json"]) == 0
    (limits,) = json.loads(capfd.readouterr().out)["namespaces"]
    assert (limits["namespace"], limits["agents_read_only"], limits["max_lanes"]) == ("acme", True, None)
    assert run(["limits", "set", "acme", "--lanes", "4"]) == 0
    assert "agents may only read" in capfd.readouterr().out, "other limits leave it as it is"
    assert run(["limits", "clear", "acme", "--agents-read-only"]) == 0
    assert "error" not in acme.call_tool("delete_memory", {"id": known})
    assert run(["limits", "clear", "acme", "--agents-read-only"]) == 1
    assert "has no limit --agents-read-only" in capfd.readouterr().err


async def _call_once(memory: Memory, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return await memory.acall_tool(name, arguments)
    finally:
        await memory.aclose()


def test_a_database_that_is_away_is_raised() -> None:
    memory = Memory.from_defaults("s", user_id="maren", database_url="postgresql://nobody@127.0.0.1:1/none")
    try:
        for name, arguments in (WRITING | {"search_memories": {"query": "x"}}).items():
            with pytest.raises(DatabaseUnavailableError):
                memory.call_tool(name, arguments)
        assert memory.call_tool("add_memory", {})["error"] == "invalid_arguments", "before anything is sent"
    finally:
        memory.close()


def test_what_the_application_gets_wrong_is_raised(memory: Memory, make_memory: MakeMemory) -> None:
    memory.put({"role": "user", "content": "Hello"})
    with pytest.raises(OwnerError):
        make_memory("s", user_id="tove").call_tool("get_context", {"question": "x"})


def test_without_any_worker_ever_there_is_nowhere_to_keep_facts(memory: Memory, database_url: str) -> None:
    rows_of(database_url, "UPDATE strandline.generation SET state = 'retired' RETURNING 1")
    with pytest.raises(UnknownPipelineError):
        memory.call_tool("add_memory", {"text": "Maren rows."})


def delete_by_mcp(database_url: str, fact_id: str) -> None:
    """Delete a fact of maren's over HTTP."""
    call = {"name": "delete_memory", "arguments": {"id": fact_id}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    accept = {"Accept": "application/json, text/event-stream"}
    with RunningService(database_url) as service, service.client(service.make_key(user_id="maren")) as agent:
        answer = agent.post("/mcp", json=request, headers=accept)
    assert answer.json()["result"]["structuredContent"] == {"id": fact_id, "deleted": True}


@pytest.mark.usefixtures("settings")
def test_what_an_agent_deletes_stays_deleted_in_the_next_generation(rig: Rig, drain: Drain) -> None:
    memory = rig.memory("s", user_id="maren")
    say(memory, "My flat is at Torggate 4", "My boat is blue", "I have two cats", "My shed is red")
    drain()
    found = memory.call_tool("search_memories", {"query": "my flat, my boat, my shed"})["memories"]
    ids = {hit["text"]: hit["id"] for hit in found}
    flat = {"id": ids["My flat is at Torggate 4"]}
    assert memory.call_tool("delete_memory", flat)["deleted"]
    changed = {"id": ids["My boat is blue"], "text": "My boat is green"}
    assert "error" not in memory.call_tool("update_memory", changed)
    delete_by_mcp(rig.url, ids["My shed is red"])
    memory.call_tool("add_memory", {"text": "Maren rows."})
    expected = ["I have two cats", "Maren rows.", "My boat is green"]
    assert facts_of(memory) == expected

    serving = "SELECT generation_id FROM strandline.generation WHERE pipeline = 'facts' AND state = 'serving'"
    before = rows_of(rig.url, serving)
    rig.memory("w", user_id="worker", consume="background").put({"role": "user", "content": "Hello"})
    command = ["replay", "--new", "--force", "--pipeline", "facts", "--database-url", rig.url]
    assert run(command) == 0
    assert rows_of(rig.url, serving) != before
    assert facts_of(memory) == expected
    assert memory.call_tool("delete_memory", flat)["deleted"], "still the same answer"
    assert "Torggate" not in json.dumps(memory.call_tool("search_memories", {"query": "flat"})["memories"])


@pytest.mark.parametrize("text", ["N/A", "…", "No facts found.", "<one sentence>"])
def test_an_agent_stores_nothing_that_says_nothing(memory: Memory, text: str) -> None:
    known = memory.facts.add("User sails.")
    for name, more in (("add_memory", {}), ("update_memory", {"id": str(known.fact_id)})):
        assert memory.call_tool(name, {"text": text, **more})["error"] == "invalid_arguments"
    assert [fact.text for fact in memory.facts.list()] == ["User sails."]
