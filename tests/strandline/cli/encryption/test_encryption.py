"""``strandline encryption``: from the first key to the last that can be removed, and what it says."""

from __future__ import annotations

import json
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.entry import run
from tests.conftest import Rig, rows_of, wait_until
from tests.support.opened_rows import clear_only

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

Capture = pytest.CaptureFixture[str]

FIRST, SECOND, OTHER_FIRST = (
    f"{name} {b64encode(letter * 32).decode()}"
    for name, letter in (("first", b"1"), ("second", b"2"), ("first", b"3"))
)


@pytest.fixture
def command(database_url: str, capfd: Capture) -> Any:
    def call(*arguments: str, code: int = 0) -> str:
        assert run(["encryption", *arguments, "--database-url", database_url]) == code
        said = capfd.readouterr()
        return said.out if code == 0 else said.out + said.err

    return call


def test_from_the_first_key_to_the_last_one(rig: Rig, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no namespace is encrypted; `strandline encryption enable`" in command("status")
    rig.memory("s", user_id="u").put({"role": "user", "content": "said before"})
    said = command("enable", "default", "--vectors", "clear", code=1)
    assert "This process has no keyring. Set STRANDLINE_KEYRING_FILE" in said
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", FIRST)
    assert "Namespace 'default' is not encrypted" in command("reseal", "default", code=1)
    said = command("enable", "default", "--vectors", "clear")
    assert "default: is encrypted from now on" in said and "'first': wraps" in said
    assert "was encrypted already" in command("enable", "default", "--vectors", "clear")
    rows_of(
        rig.url,
        "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1",
    )
    assert "1 row sealed" in command("reseal", "default", "--wait")
    assert "all sealed" in command("status")
    assert "said before" not in str(rows_of(rig.url, "SELECT envelope::text FROM strandline.message"))

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
    memory = rig.memory("s", user_id="u")
    assert [message.text for message in memory.history()] == ["said before"]
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", FIRST)
    assert "which is NOT in this keyring" in command("status", code=1)


def test_another_key_of_the_same_id_is_named(
    rig: Rig, command: Any, monkeypatch: pytest.MonkeyPatch, capfd: Capture, tmp_path: Path
) -> None:
    file = tmp_path / "keyring"
    file.write_text(FIRST, encoding="utf-8")
    file.chmod(0o644)
    monkeypatch.setenv("STRANDLINE_KEYRING_FILE", str(file))
    rig.memory("s", user_id="u").put({"role": "user", "content": "said"})
    command("enable", "default", "--vectors", "off")
    doctor = ["doctor", "--no-model-call", "--database-url", rig.url]
    run(doctor)
    said = capfd.readouterr().out
    assert "each key opens the data keys that name it" in said
    assert "STRANDLINE_KEYRING_FILE names is open to every user (mode 0644)" in said

    file.write_text(f"{OTHER_FIRST}\n", encoding="utf-8")
    file.chmod(0o600)
    (namespace,) = json.loads(command("status", "--json", code=1))["namespaces"]
    (key,) = namespace["keys"]
    assert (key["key_id"], key["state"], key["is_in_keyring"]) == ("first", "wrong", False)
    assert "'default'" in key["problem"] and "not the one that wrapped" in key["problem"]
    assert "'first', which in this keyring is NOT the key that wrapped" in command("status", code=1)
    assert run(doctor) == 1
    said = capfd.readouterr().out
    assert "'default' is encrypted. The key 'first'" in said and "open to every user" not in said
    # As well where nobody has a data key yet: the probe alone tells.
    rows_of(rig.url, "DELETE FROM strandline.data_key RETURNING 1")
    assert "NOT the key that wrapped" in command("status", code=1)


def test_a_misspelt_namespace_is_not_encrypted(
    rig: Rig, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", FIRST)
    rig.memory("s", user_id="u", namespace="shop").put({"role": "user", "content": "said"})
    said = command("enable", "Shops", "--vectors", "off", code=1)
    assert "Namespace 'Shops' is unknown. Did you mean 'shop'?" in said
    assert "add --even-if-unknown" in said
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.encryption") == [(0,)]
    assert "is encrypted from now on" in command("enable", "to-come", "--vectors", "off", "--even-if-unknown")
    command("enable", "to-come", "--vectors", "off")  # what an operator has set is known
    command("enable", "shop", "--vectors", "off")


def test_waiting_for_running_processes_is_said(
    rig: Rig, command: Any, monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", FIRST)
    monkeypatch.setenv("STRANDLINE_KEY_CACHE_SECONDS", "60")
    rig.memory("s", user_id="u").put({"role": "user", "content": "said"})
    command("enable", "default", "--vectors", "off")
    arguments = ["encryption", "reseal", "default", "--wait", "--database-url", rig.url]
    with ThreadPoolExecutor(1) as pool:
        resealing = pool.submit(run, arguments)
        said: list[str] = []

        def says_why() -> bool:
            said.append(capfd.readouterr().err)
            return "until then running processes may write" in "".join(said)

        wait_until(says_why, timeout=30, what="the reason why it waits")
        assert "1 owner to be looked at once more in 1" in "".join(said)
        # What the time that is waited for brings.
        rows_of(
            rig.url,
            "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1",
        )
        assert resealing.result() == 0
    assert "may use former keys for 60 seconds more" in command("rotate", "default", "--data")
