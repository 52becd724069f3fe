"""Searches by role, metadata and time find what the same history holds, delivered or not, sealed or not."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline import ConfigurationError, InvalidMessageError, Memory, VectorMemoryBlock
from strandline.pipelines.sealing.enabling import enable
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import VECTORS_STAGE
from tests.conftest import MakeMemory
from tests.support.opened_rows import clear_only
from tests.support.workers.draining import drain_everything

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

KEYS = f"first {b64encode(b'1' * 32).decode()}"
START = datetime(2026, 6, 1, 12, tzinfo=UTC)
PROJECTS = ("red", "blue", None, 7, True)
CASES: list[dict[str, Any]] = [
    {},
    {"roles": ["user"]},
    {"roles": ["assistant", "tool"]},
    {"roles": []},
    {"metadata": {"project": "red"}},
    {"metadata": {"project": 7}},
    {"metadata": {"project": True}},
    {"metadata": {"project": "red", "even": True}},
    {"metadata": {"project": "green"}},
    {"metadata": {}},
    {"since": START + timedelta(days=5)},
    {"until": START + timedelta(days=5)},
    {"since": START + timedelta(days=3), "until": START + timedelta(days=3)},
    {"roles": ["user"], "metadata": {"even": True}, "since": START + timedelta(days=2)},
]


def put_harbours(memory: Memory, first: int, last: int) -> None:
    for number in range(first, last):
        memory.put(
            {
                "role": ("user", "assistant")[number % 2],
                "content": f"The harbour of town {number} is deep.",
                "created_at": START + timedelta(days=number),
                "metadata": {"project": PROJECTS[number % 5], "even": number % 2 == 0},
            }
        )


def drain(database: Database, url: str) -> None:
    settings = load_settings(database_url=url, embedding_backend="local", text_backend="local")
    drain_everything(database, url, settings, [VECTORS_STAGE])


@pytest.fixture(params=["waiting", "delivered", "half", "sealed"])
def memory(
    request: pytest.FixtureRequest,
    make_memory: MakeMemory,
    database: Database,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Memory]:
    """A session of twelve messages that a query about harbours meets, none, all or half of them delivered."""
    if request.param == "sealed":
        monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)
        content = sealed_content(load_settings())
        database = Database.connect(ConnectionOptions.from_settings(database_url, load_settings()), content)
        enable(database, content, "default", "first", "clear")
    memory = make_memory("s", user_id="u", memory_blocks=[VectorMemoryBlock()])
    put_harbours(memory, 0, 12 if request.param == "delivered" else 6)
    if request.param != "waiting":
        memory.flush(all=True)
        drain(database, database_url)
    if request.param != "delivered":
        put_harbours(memory, 6, 12)
    yield memory
    if request.param == "sealed":
        database.close()


def texts(hits: Sequence[Any]) -> list[str]:
    return sorted(hit.text for hit in hits)


@pytest.mark.parametrize("scope", ["session", "owner"])
def test_a_search_finds_what_the_history_holds(memory: Memory, scope: Any) -> None:
    for filters in CASES:
        held = sorted(message.text for message in memory.history(**filters))
        assert texts(memory.search("deep harbour", limit=100, scope=scope, **filters)) == held, filters


def test_the_async_face_takes_the_same(memory: Memory) -> None:
    hits = asyncio.run(memory.asearch("deep harbour", limit=100, roles=["user"]))
    assert texts(hits) == texts(memory.search("deep harbour", limit=100, roles=["user"]))


def test_labels_of_one_session_are_led_over_to_the_others_of_its_owner(
    make_memory: MakeMemory, database: Database, database_url: str
) -> None:
    for name in ("a", "b", "c"):
        memory = make_memory(name, user_id="u", memory_blocks=[VectorMemoryBlock()])
        memory.put({"role": "user", "content": f"The harbour of {name}.", "metadata": {"in": name, "x": 1.0}})
        if name != "c":
            memory.flush(all=True)
    drain(database, database_url)
    asked = make_memory("d", user_id="u", memory_blocks=[])
    for name in ("a", "b", "c"):
        found = asked.search("harbour", scope="owner", metadata={"in": name, "x": 1})
        assert texts(found) == [f"The harbour of {name}."]
    stranger = make_memory("d", user_id="v", memory_blocks=[])
    assert stranger.search("harbour", scope="owner", metadata={"x": 1}) == []


def test_what_passes_is_found_behind_thousands_that_do_not(
    make_memory: MakeMemory, database: Database, database_url: str
) -> None:
    """Also where the scope is so big that only its likeliest pieces would be compared."""
    memory = make_memory("s", user_id="u", memory_blocks=[VectorMemoryBlock()])
    said = "The deep harbour of town"
    memory.import_messages(
        [
            {
                "role": "user",
                "content": f"{said} {number}",
                "metadata": {"rare": number % 600 == 5},
                "id": str(number),
            }
            for number in range(1_300)
        ]
    )
    memory.flush(all=True)
    drain(database, database_url)
    found = memory.search("harbour", limit=5, metadata={"rare": True}, include_window=False)
    assert texts(found) == [f"{said} 1205", f"{said} 5", f"{said} 605"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"roles": "user"},
        {"roles": ["robot"]},
        {"metadata": {"a": [1]}},
        {"metadata": "a"},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"until": "2026-01-01"},
        {"roles": ["user"], "kinds": ["fact"]},
        {"metadata": {"a": 1}, "kinds": ["message", "fact"]},
        {"since": START, "scope": "shared"},
    ],
)
def test_filters_that_cannot_be_applied_are_refused(make_memory: MakeMemory, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        make_memory(shared_scope="harbour").search("x", **wrong)


def test_a_filter_holds_no_text_that_no_message_holds(make_memory: MakeMemory) -> None:
    with pytest.raises(InvalidMessageError):
        make_memory().search("x", metadata={"a": "\0"})
