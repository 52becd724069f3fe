"""``strandline keys``: what a person may give for a key, and what is refused."""

from __future__ import annotations

import pytest

from strandline.cli.entry import run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def on(database_url: str) -> list[str]:
    return ["--database-url", database_url]


def make(on: list[str], capfd: Capture) -> str:
    assert run(["keys", "create", *on]) == 0
    return capfd.readouterr().out.strip()


def test_a_whole_key_names_itself(on: list[str], capfd: Capture) -> None:
    key = make(on, capfd)
    key_id = key.split("_")[1]
    assert run(["keys", "revoke", key, *on]) == 0
    assert capfd.readouterr().out == f"key {key_id} is revoked\n"


@pytest.mark.parametrize("command", ["revoke", "rotate"])
def test_a_secret_is_not_repeated_in_an_error(command: str, on: list[str], capfd: Capture) -> None:
    assert run(["keys", command, "sl_0123456789abcdef_5ec7e7", *on]) == 1
    said = capfd.readouterr().err
    assert "0123456789abcdef" in said
    assert "5ec7e7" not in said


def test_an_empty_namespace_is_none_and_makes_no_key(on: list[str], capfd: Capture) -> None:
    assert run(["keys", "create", "--namespace", "", *on]) == 1
    assert "namespace: is empty" in capfd.readouterr().err
    assert run(["keys", "list", *on]) == 0
    assert capfd.readouterr().out.startswith("no keys")
