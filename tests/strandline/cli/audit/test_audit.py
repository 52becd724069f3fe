"""``strandline audit``: what people see, and what ``--json`` prints."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from strandline import Memory, acting
from strandline.cli.entry import run
from strandline.pipelines.audit.keys import keys_of
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import load_settings
from tests.conftest import rows_of, wait_until
from tests.support.messages import user
from tests.support.sealed_trail import seal_all
from tests.support.servers.databases import temporary_database

Capture = pytest.CaptureFixture[str]
SECRET = "a secret of this test"


@pytest.fixture(scope="module")
def filled(stack: Any) -> Iterator[str]:
    """A namespace with a few acts, sealed."""
    with temporary_database(stack.database_url) as url:
        memory = Memory.from_defaults(
            "chat", user_id="ann", namespace="shop", memory_blocks=[], database_url=url
        )
        with acting(actor="support:ben", origin="192.0.2.7"):
            memory.put_messages([user("one"), user("two"), user("three")])
            memory.replace(2, "2")
            memory.pop()
        memory.close()
        seal(url)
        yield url


@pytest.fixture
def url(stack: Any, filled: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("STRANDLINE_AUDIT_KEY", SECRET)
    with temporary_database(filled, filled.rpartition("/")[2].partition("?")[0]) as copy:
        monkeypatch.setenv("STRANDLINE_DATABASE_URL", copy)
        yield copy


def seal(url: str) -> None:
    settings = load_settings(database_url=url, audit_key=SECRET)
    database = Database.connect(ConnectionOptions.from_settings(url, settings, pool_size=1))
    database.run(seal_all(keys_of(settings)))
    database.close()


def printed(capfd: Capture, *arguments: str) -> Any:
    assert run(["audit", *arguments, "--json"]) == 0
    return json.loads(capfd.readouterr().out)


def test_acts_are_listed_with_names(url: str, capfd: Capture) -> None:
    assert run(["audit", "list", "--namespace", "shop", "--user", "ann"]) == 0
    pop, replace = capfd.readouterr().out.splitlines()
    assert pop.split("  ")[1:] == ["pop", "by support:ben", "from 192.0.2.7", "of ann", "1 message from 3"]
    assert replace.split("  ")[1] == "replace"
    page = printed(capfd, "list", "--namespace", "shop", "--kind", "replace", "--limit", "1")
    (act,) = page["acts"]
    assert (act["seq"], act["seal"], act["place"], act["user_id"]) == (2, 1, 1, "ann")
    assert run(["audit", "show", act["entry_id"], "--namespace", "shop"]) == 0
    assert "act      replace: a message was given other content" in capfd.readouterr().out


def test_looking_at_a_namespace_that_does_not_exist_begins_no_trail(url: str, capfd: Capture) -> None:
    count = "SELECT count(*), max(namespace) FROM strandline.audit_entry"
    before = rows_of(url, count)
    commands = (
        ["list"], ["export"], ["level"], ["anchors"], ["verify"], ["show", str(uuid4())],
        ["level", "all"], ["prune", "--before", "2020-01-01"], ["prune", "--before", "2020-01-01", "--yes"],
    )  # fmt: skip
    for command in commands:
        assert run(["audit", *command, "--namespace", "shoq"]) == 1, command
        assert "Namespace 'shoq' is unknown. Did you mean 'shop'?" in capfd.readouterr().err
    for retention in (["show"], ["plan"], ["run"], ["status"], ["set", "--max-age", "30d"]):
        assert run(["retention", *retention, "--namespace", "shoq"]) == 1, retention
        assert "Did you mean 'shop'?" in capfd.readouterr().err
    assert rows_of(url, count) == before
    assert rows_of(url, "SELECT count(*) FROM strandline.audit_level") == [(0,)]
    assert run(["audit", "level", "all", "--namespace", "shoq", "--even-if-unknown"]) == 0
    assert run(["audit", "list", "--namespace", "shoq"]) == 0


def test_pages_follow_one_another(url: str, capfd: Capture) -> None:
    assert run(["audit", "list", "--namespace", "shop", "--limit", "1", "--actor", "support:ben"]) == 0
    pop, more = capfd.readouterr().out.splitlines()
    assert "  pop  " in pop
    following = ["audit", "list", "--namespace", "shop", "--actor", "support:ben", *more.split()[1:]]
    assert run(following) == 0
    assert [line.split("  ")[1] for line in capfd.readouterr().out.splitlines()] == ["replace"]


def test_commands_act_as_the_user_of_the_machine(url: str, capfd: Capture) -> None:
    assert run(["audit", "level", "all", "--namespace", "shop"]) == 0
    assert capfd.readouterr().out == "shop: all\n"
    assert run(["audit", "level", "all", "--namespace", "shop"]) == 0
    assert capfd.readouterr().out == "shop: all already\n"
    assert run(["limits", "set", "shop", "--lanes", "3", "--database-url", url]) == 0
    capfd.readouterr()
    acts = printed(capfd, "list", "--namespace", "shop", "--actor", f"cli:{getpass.getuser()}")["acts"]
    assert [(act["kind"], act["origin"]) for act in acts][-2:] == [
        ("limits", socket.gethostname()),
        ("audit.level", socket.gethostname()),
    ]
    assert acts[-2]["detail"] == {"set": ["max_lanes"]}
    assert acts[-1]["detail"] == {"from": "changes", "to": "all"}


def test_a_sound_trail_and_one_that_was_changed(url: str, capfd: Capture, tmp_path: Path) -> None:
    assert run(["audit", "anchors", "--json"]) == 0
    anchors = tmp_path / "anchors.jsonl"
    anchors.write_text(capfd.readouterr().out, encoding="utf-8")
    assert run(["audit", "verify", "--anchors", str(anchors)]) == 0
    assert capfd.readouterr().out == "shop: sound; 2 entries in 1 seal, 1 anchor held\n"
    assert run(["audit", "verify"]) == 0
    assert "no anchors were compared" in capfd.readouterr().err
    ((entry_id,),) = rows_of(
        url, "UPDATE strandline.audit_sealed SET actor = 'eve' WHERE place = 2 RETURNING entry_id"
    )
    assert run(["audit", "verify", "--namespace", "shop"]) == 1
    told = capfd.readouterr().out.splitlines()
    assert told == [
        "shop: 1 finding; 2 entries in 1 seal",
        f"  seal 1, place 2: Entry {entry_id} was changed.",
    ]
    assert run(["audit", "verify", "--json"]) == 1
    (finding,) = json.loads(capfd.readouterr().out)["trails"][0]["findings"]
    assert (finding["problem"], finding["entry_id"]) == ("changed", str(entry_id))


def test_a_key_that_is_not_there_is_named(url: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STRANDLINE_AUDIT_KEY")
    assert run(["audit", "verify"]) == 1
    said = capfd.readouterr().out
    assert "was made with the key" in said and "no key is set here: set STRANDLINE_AUDIT_KEY" in said
    monkeypatch.setenv("STRANDLINE_AUDIT_KEY", "another secret of this test")
    assert run(["audit", "verify"]) == 1
    assert "the keys here are '" in capfd.readouterr().out


def test_pruning_says_what_it_does_before_it_does_it(url: str, capfd: Capture) -> None:
    command = ["audit", "prune", "--namespace", "shop", "--before"]
    assert run([*command, "2200-01-01"]) == 1
    assert "is yet to come" in capfd.readouterr().err
    # The newest seal is never pruned, and what was pruned is an act in the next one.
    assert run([*command, str(datetime.now(UTC))[:19]]) == 0
    assert "nothing that can be pruned was sealed before" in capfd.readouterr().out
    assert run(["limits", "set", "shop", "--lanes", "3"]) == 0
    seal(url)
    (newest,) = rows_of(url, "SELECT max(sealed_at) FROM strandline.audit_seal")[0]
    # Times of options are whole seconds.
    wait_until(lambda: datetime.now(UTC).replace(microsecond=0) > newest, timeout=5, what="the next second")
    command.append(str(datetime.now(UTC))[:19])
    capfd.readouterr()
    assert run(command) == 0
    assert capfd.readouterr().out == "shop: would delete 2 entries, up to seal 1; add --yes to do it\n"
    assert run([*command, "--yes"]) == 0
    assert capfd.readouterr().out == "shop: deleted 2 entries, up to seal 1\n"
    seal(url)
    assert run(["audit", "verify"]) == 0
    assert capfd.readouterr().out == "shop: sound; 2 entries in 2 seals, 1 seal pruned before\n"


def test_an_export_has_a_line_for_each_act(url: str, capfd: Capture) -> None:
    assert run(["audit", "export", "--namespace", "shop"]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines] == ["pop", "replace"]
    assert set(lines[0]) == set(printed(capfd, "list", "--namespace", "shop")["acts"][0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["list", "--kind", "gets"], "No act is of this kind"),
        (["list", "--before", "x"], "is not what a page gave as next_before"),
        (["show", "x"], "'x' is not the id of an act"),
        (["show", "0" * 32], "has no act"),
        (["verify", "--anchors", "/no/such/file"], "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said(url: str, capfd: Capture, arguments: list[str], sentence: str) -> None:
    assert run(["audit", *arguments]) == 1
    assert sentence in capfd.readouterr().err


@pytest.mark.parametrize("command", ["list", "show x", "level", "verify", "anchors"])
def test_each_report_has_a_schema(capfd: Capture, command: str) -> None:
    assert run(["audit", *command.split(), "--json-schema"]) == 0
    assert json.loads(capfd.readouterr().out)["type"] == "object"
