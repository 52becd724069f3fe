"""The compliance hook flags acts or refuses them before anything is stored; one that fails is bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline import ActRefusedError, AttemptedAct, Capture, ConfigurationError, Facts, Memory, acting
from strandline.schemas.values.acts.retention import Retention
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.messages import user
from tests.support.stored import stored_messages

ACTS = "SELECT act, flags FROM strandline.audit_entry ORDER BY created_at"
PLACE = f"{__name__}:hook"

asked: list[AttemptedAct] = []
release = threading.Event()


def hook(act: AttemptedAct) -> Any:
    """Does what the first word of the message says."""
    asked.append(act)
    words = [message.text for message in act.messages] or [act.text or ""]
    match words[0].partition(" ")[0]:
        case "flag":
            return ["pii", "health", "pii"]
        case "refuse":
            raise ActRefusedError("Such things are not to be stored.")
        case "raise":
            raise LookupError("secret words")
        case "hang":
            release.wait(60)
        case "text":
            return "pii"
        case "many":
            return map(str, range(1_000_000_000))
        case "numbers":
            return [1]
        case "long":
            return ["x" * 101]
    return None


@pytest.fixture(autouse=True)
def _hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STRANDLINE_COMPLIANCE", PLACE)
    monkeypatch.setenv("STRANDLINE_COMPLIANCE_TIMEOUT_SECONDS", "5")
    asked.clear()
    release.clear()
    yield
    release.set()


def stored(url: str) -> int:
    count = stored_messages(url)
    return int(count)


def test_it_is_shown_who_does_what_to_whom(make_memory: MakeMemory) -> None:
    memory = make_memory("chat", user_id="ann", namespace="shop", memory_blocks=[])
    with acting(actor="web", origin="192.0.2.7"):
        memory.put(user("hello"))
    (act,) = asked
    assert (act.kind, act.namespace, act.user_id, act.session_id) == ("put", "shop", "ann", "chat")
    assert (act.actor, act.origin, act.messages[0].text) == ("web", "192.0.2.7", "hello")
    memory.get()
    memory.replace(1, "other")
    memory.facts.add("Ann is here.")
    assert [(one.kind, one.text) for one in asked[1:]] == [
        ("read", None), ("replace", None), ("facts.add", "Ann is here."),
    ]  # fmt: skip
    assert asked[2].messages[0].text == "other"


@pytest.mark.parametrize("is_async", [False, True])
def test_an_act_with_flags_is_recorded_at_the_usual_level(rig: Rig, is_async: bool) -> None:
    memory = rig.memory("chat", user_id="ann", memory_blocks=[])

    async def put_all() -> None:
        for text in ("hello", "flag this", "again", "flag that", "flag alone"):
            await memory.aput(user(text))
        await memory.aput_messages([user("flag both"), user("flag of both")])
        await memory.aclose()

    if is_async:
        asyncio.run(put_all())
    else:
        for text in ("hello", "flag this", "again", "flag that", "flag alone"):
            memory.put(user(text))
        memory.put_messages([user("flag both"), user("flag of both")])
    assert rows_of(rig.url, ACTS) == [("put", ["pii", "health"])] * 4
    assert stored(rig.url) == 7


REFUSED: dict[str, Callable[[Memory], object]] = {
    "put": lambda memory: memory.put(user("refuse this")),
    "aput": lambda memory: asyncio.run(memory.aput(user("refuse this"))),
    "put_messages": lambda memory: memory.put_messages([user("refuse this"), user("fine")]),
    "import": lambda memory: memory.import_messages([user("refuse this")]),
    "set": lambda memory: memory.set([user("refuse this")]),
    "replace": lambda memory: memory.replace(1, "refuse this"),
    "add_run": lambda memory: memory.add_run("run", [user("refuse this")]),
    "facts": lambda memory: memory.facts.add("refuse this"),
    "source": lambda memory: memory.facts.create_from([user("refuse this")]),
    "instruct": lambda memory: memory.facts.instruct("refuse this"),
    "tool": lambda memory: memory.call_tool("add_memory", {"text": "refuse this"}),
}


@pytest.mark.parametrize("act", REFUSED)
def test_a_refused_act_stores_nothing(make_memory: MakeMemory, database_url: str, act: str) -> None:
    memory = make_memory("chat", user_id="ann", memory_blocks=[])
    memory.put(user("hello"))
    with pytest.raises(ActRefusedError, match=r"was refused: Such things .* Nothing was stored or changed\."):
        REFUSED[act](memory)
    assert [message.text for message in memory.get_all()] == ["hello"]
    assert len(memory.facts.list()) == 0
    assert rows_of(database_url, ACTS) == []
    assert stored(database_url) == 1


@pytest.mark.parametrize("failing", ["raise", "text", "many", "numbers", "long"])
def test_a_hook_that_fails_refuses_by_default_and_its_words_are_not_told(
    rig: Rig, failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = rig.memory("chat", memory_blocks=[])
    with pytest.raises(
        ActRefusedError, match=r"put was refused, since the compliance hook .* raised"
    ) as told:
        memory.put(user(f"{failing} it"))
    assert "secret words" not in str(told.value) + caplog.text
    assert stored(rig.url) == 0


def test_a_hook_that_fails_may_be_gone_without(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_COMPLIANCE_FAILURE", "allow")
    rig.memory("chat", memory_blocks=[]).put(user("raise it"))
    assert rows_of(rig.url, ACTS) == [("put", ["unchecked"])]


def test_a_hook_that_hangs_is_given_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_COMPLIANCE_TIMEOUT_SECONDS", "0.2")
    memory = rig.memory("chat", memory_blocks=[])
    with pytest.raises(ActRefusedError, match=r"did not answer within 0\.2 seconds"):
        memory.put(user("hang here"))
    assert stored(rig.url) == 0


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("no.such.module:f", "there is no module named"),
        (f"{__name__}:nothing", "cannot be imported"),
        (f"{__name__}:PLACE", "cannot be called"),
        ("nobody", "no installed package has an entry point"),
        (":f", "write package.module:name"),
    ],
)
def test_a_hook_that_is_not_there_is_named(
    make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch, place: str, problem: str
) -> None:
    monkeypatch.setenv("STRANDLINE_COMPLIANCE", place)
    with pytest.raises(ConfigurationError, match=f"STRANDLINE_COMPLIANCE.*{problem}"):
        make_memory("chat", memory_blocks=[]).put(user("hello"))


def test_facts_alone_are_checked_as_well(database_url: str) -> None:
    facts = Facts.for_owner(user_id="ann", database_url=database_url)
    assert facts.add("flag: Ann rows.").text == "flag: Ann rows."
    with pytest.raises(ActRefusedError):
        facts.add("refuse it")
    assert [fact.text for fact in facts.list()] == ["flag: Ann rows."]
    facts.close()


def refuse_all(act: AttemptedAct) -> None:
    asked.append(act)
    raise ActRefusedError("Nothing is to be done.")


def test_it_is_asked_about_every_kind_of_change_of_a_session(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_COMPLIANCE", f"{__name__}:{refuse_all.__name__}")
    memory = rig.memory("chat", user_id="ann", memory_blocks=[])
    changes: dict[str, Callable[[], object]] = {
        "put": lambda: memory.put(user("one")),
        "policy": lambda: memory.set_policy(idle_seconds=60),
        "retention": lambda: memory.set_retention(Retention(max_messages=10)),
        "pop": memory.pop,
        "rewind": lambda: memory.rewind(1),
        "fork": lambda: memory.fork("fork"),
        "reset": memory.reset,
        "forget": lambda: memory.reset(derived=True),
        "capture": lambda: memory.facts.set_capture(Capture(instructions="Keep boats.")),
        "facts.clear": memory.facts.clear,
    }
    for kind, change in changes.items():
        with pytest.raises(ActRefusedError, match=kind):
            change()
    assert [one.kind for one in asked] == list(changes)
    assert memory.retention_acts() == []
    with pytest.raises(ActRefusedError):
        asyncio.run(memory.aset_retention(Retention(max_messages=10)))
