"""``strandline encryption``: from the first key to the last that can be removed, and what it says."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from strandline.cli.entry import run
from tests.conftest import MakeMemory, rows_of
from tests.support.opened_rows import clear_only

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

Capture = pytest.CaptureFixture[str]

FIRST, SECOND = (
    f"{name} {b64encode(letter * 32).decode()}" for name, letter in (("first", b"1"), ("second", b"2"))
)


@pytest.fixture
def command(database_url: str, capfd: Capture) -> Any:
    def call(*arguments: str, code: int = 0) -> str:
        assert run(["encryption", *arguments, "--database-url", database_url]) == code
        said = capfd.readouterr()
        return said.out if code == 0 else said.out + said.err

    return call


def test_from_the_first_key_to_the_last_one(
    command: Any, make_memory: MakeMemory, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no namespace is encrypted; `strandline encryption enable`" in command("status")
    make_memory("s", user_id="u").put({"role": "user", "content": "said before"})
    said = command("enable", "default", "--vectors", "clear", code=1)
    assert "This process has no keyring. Set STRANDLINE_KEYRING_FILE" in said
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", FIRST)
    assert "Namespace 'default' is not encrypted" in command("reseal", "default", code=1)
    said = command("enable", "default", "--vectors", "clear")
    assert "default: is encrypted from now on" in said and "'first': wraps" in said
    assert "was encrypted already" in command("enable", "default", "--vectors", "clear")
    rows_of(
        database_url,
        "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1",
    )
    assert "1 row sealed" in command("reseal", "default", "--wait")
    assert "all sealed" in command("status")
    assert "said before" not in str(rows_of(database_url, "SELECT envelope::text FROM strandline.message"))

    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", f"{FIRST};{SECOND}")
    assert "Say what to rotate" in command("rotate", "default", code=2)
    assert "'third' is not in" in command("rotate", "default", "--key", "third", code=1)
    assert "'first' must stay in the keyring" in command("retire", "first", code=1)
    assert "wrapped again, by 'second'" in command("rotate", "default", "--key", "second", "--data")
    assert "'first' wraps nothing in this database" in command("retire", "first")
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", SECOND)
    report = json.loads(command("status", "--json"))
    (namespace,) = report["namespaces"]
    assert report["keyring"] == ["second"]
    assert namespace["state"] == "sealing" and namespace["old_data_keys"] > 0
    assert [key["key_id"] for key in namespace["keys"]] == ["second"]
    assert "row sealed" in command("reseal", "default")
    memory = make_memory("s", user_id="u")
    assert [message.text for message in memory.history()] == ["said before"]
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", FIRST)
    assert "which is NOT in this keyring" in command("status")
