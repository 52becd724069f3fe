"""Messages of an encrypted namespace: sealed in their rows, and otherwise as they were put."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from strandline import Memory
from strandline.pipelines.sealing.enabling import change_key, enable, prepare_owners
from strandline.pipelines.sealing.resealing import Pace, Progress, reseal_namespace, retire_old_keys
from strandline.pipelines.sealing.rotating import renew_data_keys, rewrap_keys
from strandline.schemas.errors import (
    ConfigurationError,
    ConflictError,
    KeyUnavailableError,
    SealedContentError,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.sealing.codec import Unknown
from strandline.schemas.settings import load_settings
from strandline.schemas.values.identity import identify_session
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.opened_rows import clear_only

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

KEYS = f"first {b64encode(b'1' * 32).decode()};second {b64encode(b'2' * 32).decode()}"
OTHER_KEYS = f"first {b64encode(b'3' * 32).decode()}"
AGED = "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1"
CALL = {"id": "call-zyx", "type": "function", "function": {"name": "find", "arguments": "{}"}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "The canary is xylophone", "name": "Ottilie", "id": "m1"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "metadata": {"mood": "marzipan"}},
    {"role": "tool", "content": "found", "tool_call_id": "call-zyx"},
]
SHOWN = [
    {"content": None, **{key: value for key, value in message.items() if key not in ("id", "metadata")}}
    for message in MESSAGES
]
WORDS = ("xylophone", "Ottilie", "marzipan", "call-zyx", "found", "mood")


@pytest.fixture(autouse=True)
def _keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)


@pytest.fixture
def content() -> SealedContent:
    return sealed_content(load_settings())


@pytest.fixture
def opened(database_url: str, content: SealedContent) -> Any:
    database = Database.connect(ConnectionOptions.from_settings(database_url, load_settings()), content)
    yield database
    database.close()


@pytest.fixture
def memory(opened: Database, content: SealedContent, make_memory: MakeMemory) -> Memory:
    assert enable(opened, content, "default", "first", "clear")
    return make_memory("s", user_id="u")


def stored(url: str) -> str:
    return str(rows_of(url, "SELECT m::text FROM strandline.message m"))


def seal_all(database: Database, content: SealedContent) -> Progress:
    for _keys in prepare_owners(database, content, "default"):
        pass
    passes = list(reseal_namespace(database, content, "default", cache_seconds=300, pace=Pace()))
    return passes[-1] if passes else Progress()


def test_the_rows_hold_no_content_and_reads_give_it_all(memory: Memory, database_url: str) -> None:
    memory.put(MESSAGES[0])
    memory.put_messages(MESSAGES[1:])
    assert [word for word in WORDS if word in stored(database_url)] == []
    assert [m.to_openai() for m in memory.get()] == SHOWN
    assert [m.to_openai() for m in memory.history()] == SHOWN
    assert [m.metadata for m in memory.history(metadata={"mood": "marzipan"})] == [{"mood": "marzipan"}]
    assert memory.history(metadata={"mood": "other"}) == []


def test_a_put_is_repeatable_and_a_conflict_is_one(memory: Memory) -> None:
    first = memory.put({"role": "user", "content": "once", "id": "a"})
    assert memory.put({"role": "user", "content": "once", "id": "a"}) == first
    with pytest.raises(ConflictError):
        memory.put({"role": "user", "content": "twice", "id": "a"})


def test_a_process_asks_once_whether_a_namespace_is_encrypted_and_only_with_a_keyring(
    rig: Rig, opened: Database, content: SealedContent
) -> None:
    memory = rig.memory("s", user_id="u")
    codec = memory._resources.database().content
    owner = identify_session("default", "s", "u").shard_key
    assert isinstance(codec, SealedContent) and codec.known_keys("default", owner) is Unknown.UNKNOWN
    memory.put({"role": "user", "content": "in clear"})
    assert codec.known_keys("default", owner) is None, "and the next put asks nothing"
    assert codec.known_keys("another", owner) is Unknown.UNKNOWN
    # A session that it does not know yet, of a namespace that was encrypted since.
    assert enable(opened, content, "default", "first", "clear")
    rig.memory("new", user_id="v").put({"role": "user", "content": "zucchini"})
    assert "zucchini" not in stored(rig.url)
    without = sealed_content(load_settings().model_copy(update={"keyring_keys": None}))
    assert without.known_keys("default", owner) is None


def test_a_namespace_with_data_is_sealed_and_stays_as_it_was(
    rig: Rig, opened: Database, content: SealedContent
) -> None:
    memory = rig.memory("s", user_id="u")
    memory.put_messages(MESSAGES)
    before = memory.history()
    assert enable(opened, content, "default", "first", "clear")
    assert not enable(opened, content, "default", "first", "clear")
    with pytest.raises(ConfigurationError, match="encrypted already"):
        enable(opened, content, "default", "second", "clear")
    for _keys in prepare_owners(opened, content, "default"):
        pass
    # Half-way: what is there is in clear, and what comes is not, from a process that knew nothing.
    assert memory.put(MESSAGES[0]) == 1, "the same put as before"
    with pytest.raises(ConflictError):
        memory.put(MESSAGES[0] | {"content": "other"})
    memory.put({"role": "user", "content": "later zucchini", "metadata": {"mood": "marzipan"}, "id": "m4"})
    assert "zucchini" not in stored(rig.url) and "xylophone" in stored(rig.url)
    assert [m.seq for m in memory.history(metadata={"mood": "marzipan"})] == [2, 4]
    assert seal_all(opened, content).rows == 0, "each process has a few seconds to learn of the keys"
    rows_of(rig.url, AGED)
    progress = seal_all(opened, content)
    assert progress.rows == 3 and progress.waiting == 1
    assert [word for word in WORDS if word in stored(rig.url)] == []
    assert seal_all(opened, content).settled > 0
    assert memory.history()[:3] == before == rig.memory("s", user_id="u").history()[:3]
    assert [m.seq for m in memory.history(metadata={"mood": "marzipan"})] == [2, 4]
    assert memory.put(MESSAGES[0]) == 1


def test_both_keys_are_rotated_and_nothing_is_lost(
    rig: Rig, memory: Memory, opened: Database, content: SealedContent
) -> None:
    memory.put_messages(MESSAGES)
    before = memory.history(), memory.history(metadata={"mood": "marzipan"})
    change_key(opened, content, "default", "second")
    assert sum(rewrap_keys(opened, content, "default")) == 1
    assert sum(rewrap_keys(opened, content, "default")) == 0
    assert sum(renew_data_keys(opened, content, "default")) == 1
    assert sum(renew_data_keys(opened, content, "default")) == 0, "the one under way goes on"
    memory.put({"role": "user", "content": "under the key that this process has kept"})
    seal_all(opened, content)
    assert "sealed:1:1:" not in stored(rig.url)
    memory.put({"role": "user", "content": "and once more"})
    rows_of(rig.url, AGED)
    assert seal_all(opened, content).settled == 0, "something was found"
    assert seal_all(opened, content).settled > 0
    assert retire_old_keys(opened, content, "default", pace=Pace(), after_seconds=-1) == 1
    reader = rig.memory("s", user_id="u")
    assert (reader.history()[:3], reader.history(metadata={"mood": "marzipan"})) == before


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (None, "no keyring"),
        (OTHER_KEYS, "not the one that wrapped"),
        (KEYS.partition(";")[2], "holds 'second'"),
    ],
)
def test_without_the_right_key_nothing_is_read_and_nothing_is_stored(
    memory: Memory, database_url: str, keys: str | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.put_messages(MESSAGES)
    before = stored(database_url)
    memory.close()
    monkeypatch.delenv("STRANDLINE_KEYRING_KEYS")
    if keys is not None:
        monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", keys)
    other = Memory.from_defaults("s", user_id="u", database_url=database_url)
    for attempt in (other.get, other.history, other.get_all, lambda: other.put(MESSAGES[0] | {"id": "m9"})):
        with pytest.raises(KeyUnavailableError, match=r"'default' is encrypted.*'first'") as raised:
            attempt()
        assert problem in str(raised.value)
    fresh = Memory.from_defaults("s2", user_id="u2", database_url=database_url)
    with pytest.raises(KeyUnavailableError, match=r"'default' is encrypted.*'first'"):
        fresh.put(MESSAGES[0])
    assert stored(database_url) == before
    other.close()
    fresh.close()


def test_what_was_moved_or_changed_does_not_open(memory: Memory, database_url: str) -> None:
    memory.put_messages([{"role": "user", "content": f"number {n}", "id": f"m{n}"} for n in (1, 2)])
    rows_of(
        database_url,
        "UPDATE strandline.message SET envelope = (SELECT envelope FROM strandline.message WHERE seq = 1)"
        " WHERE seq = 2 RETURNING 1",
    )
    with pytest.raises(SealedContentError, match="changed, or moved"):
        memory.history()


DIGESTS = "SELECT DISTINCT octet_length(d) FROM strandline.session_run r, unnest(r.digests) AS given (d)"


def test_a_run_holds_what_a_person_corrected_before_and_after_its_session_was_sealed(
    rig: Rig, opened: Database, content: SealedContent
) -> None:
    """What a run was given is recorded by keyed digests, too."""
    given = [{"role": "user", "content": "my card is 4111"}, {"role": "assistant", "content": "secret"}]
    memory = rig.memory("s", user_id="u", memory_blocks=[])
    memory.add_run("r1", given)
    memory.replace(1, "[redacted]")
    memory.pop()
    assert enable(opened, content, "default", "first", "clear")
    seal_all(opened, content)  # gives the owner keys, which each process has a few seconds to learn of
    rows_of(rig.url, AGED)
    assert seal_all(opened, content).rows == 3, "a message, a correction and a run"
    assert rows_of(rig.url, DIGESTS) == [(17,)]
    memory.add_run("r1", [*given, {"role": "assistant", "content": "more"}])
    assert [message.text for message in memory.history()] == ["[redacted]", "more"]
    memory.add_run("r2", given)
    memory.replace(memory.history()[-2].seq or 0, "[redacted too]")
    memory.add_run("r2", given)
    assert [message.text for message in memory.history()][-2:] == ["[redacted too]", "secret"]
    assert rows_of(rig.url, DIGESTS) == [(17,)]


def test_what_an_import_finds_with_other_content_is_named_where_it_is_sealed(memory: Memory) -> None:
    lines = [{"role": "user", "content": text, "id": text} for text in ("one", "two")]
    assert memory.import_messages(lines).added == 2
    assert memory.import_messages(lines).differing == ()
    assert memory.import_messages([lines[0], {**lines[1], "content": "three"}]).differing == ("two",)
