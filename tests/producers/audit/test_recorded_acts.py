"""Each public method is recorded once, with who acts and from where, at the level that the documents say.

A method that is added is named here, with its acts, or among those that are no acts, with the reason.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from strandline import Audit, Capture, Facts, Memory, acting
from strandline.cli.entry import COMMANDS
from strandline.producers.facts.edit_operations import Wording
from strandline.producers.facts.importing import ImportedFact
from strandline.producers.namespace_facts import NamespaceFacts
from strandline.schemas.values.acts.kinds import ACTS
from strandline.schemas.values.acts.retention import Retention
from tests.conftest import rows_of
from tests.support.messages import user
from tests.support.servers.databases import temporary_database

PAGE = Path(__file__).parents[3] / "docs" / "architecture" / "audit.md"
ENTRIES = """
SELECT act, actor, origin FROM (
    SELECT act, actor, origin, created_at FROM strandline.audit_entry
    UNION ALL SELECT act, actor, origin, created_at FROM strandline.audit_sealed) AS a ORDER BY created_at
"""


@dataclass(slots=True)
class Faces:
    """What is called: the faces of one user, whose session holds a few messages, and one fact."""

    memory: Memory
    facts: Facts
    namespace: NamespaceFacts
    audit: Audit
    fact_id: str = ""
    optimization: Any = None


def source(number: int) -> ImportedFact:
    return ImportedFact(uuid4(), Wording.check(f"Fact number {number} of elsewhere."), "elsewhere")


def add_fact(faces: Faces) -> None:
    faces.fact_id = str(faces.facts.add("Ann likes tea.").fact_id)


def optimize(faces: Faces) -> None:
    faces.optimization = faces.facts.optimize()


Call = Callable[[Faces], object]
# In an order in which each finds what it needs.
CALLS: dict[str, tuple[Call, list[str]]] = {
    "Memory.put": (lambda f: f.memory.put(user("one")), ["put"]),
    "Memory.put_messages": (lambda f: f.memory.put_messages([user("two"), user("three")]), ["put"]),
    "Memory.import_messages": (lambda f: f.memory.import_messages([user("four")]), ["import"]),
    "Memory.add_run": (lambda f: f.memory.add_run("run", [user("five")]), ["put"]),
    "Memory.add_run again": (lambda f: f.memory.add_run("run", [user("5")]), ["rewind", "put"]),
    "Memory.get": (lambda f: f.memory.get(), ["read"]),
    "Memory.get_all": (lambda f: f.memory.get_all(), ["history"]),
    "Memory.iterate": (lambda f: list(f.memory.iterate(page_size=100)), ["history", "history"]),
    "Memory.history": (lambda f: f.memory.history(2), ["history"]),
    "Memory.context_window": (lambda f: f.memory.context_window(), ["history"]),
    "Memory.run_history": (lambda f: f.memory.run_history(), ["history"]),
    "Memory.search": (lambda f: f.memory.search("one"), ["search"]),
    "Memory.summarize": (lambda f: f.memory.summarize(), ["summary.read"]),
    "Memory.summarize_last": (lambda f: f.memory.summarize_last(2), ["summary.read"]),
    "Memory.set_policy": (lambda f: f.memory.set_policy(idle_seconds=60), ["policy"]),
    "Memory.set_policy again": (lambda f: f.memory.set_policy(idle_seconds=60), []),
    "Memory.set_retention": (
        lambda f: f.memory.set_retention(Retention(max_messages=1_000)),
        ["retention"],
    ),
    "Memory.replace": (lambda f: f.memory.replace(1, "1", idempotency_key="r"), ["replace"]),
    "Memory.replace again": (lambda f: f.memory.replace(1, "1", idempotency_key="r"), []),
    "Memory.pop": (lambda f: f.memory.pop(), ["pop"]),
    "Memory.rewind": (lambda f: f.memory.rewind(3), ["rewind"]),
    "Memory.fork": (lambda f: f.memory.fork("fork"), ["fork"]),
    "Memory.set": (lambda f: f.memory.set([user("anew"), user("again")]), ["set"]),
    "Memory.reset": (lambda f: f.memory.reset(), ["reset"]),
    "Memory.reset derived": (lambda f: f.memory.reset(derived=True), ["forget"]),
    "Memory.pop of nothing": (lambda f: f.memory.pop(), []),
    "Memory.call_tool": (
        lambda f: [
            f.memory.call_tool("add_memory", {"text": "Ann sails."}),
            f.memory.call_tool("search_memories", {"query": "sails"}),
            f.memory.call_tool("get_context", {"question": "who sails?"}),
            f.memory.call_tool("delete_memory", {"id": str(uuid4())}),
        ],
        ["facts.add", "search", "read"],
    ),
    "Facts.add": (add_fact, ["facts.add"]),
    "Facts.get": (lambda f: f.facts.get(f.fact_id), ["facts.read"]),
    "Facts.list": (lambda f: f.facts.list(), ["facts.read"]),
    "Facts.search": (lambda f: f.facts.search("tea"), ["facts.search"]),
    "Facts.choose": (lambda f: f.facts.choose("what?", limit=0), ["facts.search"]),
    "Facts.topics": (lambda f: f.facts.topics(), ["facts.read"]),
    "Facts.figures": (lambda f: f.facts.figures(), ["facts.read"]),
    "Facts.replace": (lambda f: f.facts.replace(f.fact_id, "Ann likes mate."), ["facts.replace"]),
    "Facts.feedback": (lambda f: f.facts.feedback(f.fact_id, "right"), ["facts.feedback"]),
    "Facts.settle": (
        lambda f: (
            [f.facts.add(f"Lives in {city}.") for city in ("Rome", "Bern")]
            and f.facts.settle(f.facts.list(doubtful=True)[0].fact_id, "new")
        ),
        ["facts.add", "facts.add", "facts.read", "facts.settle"],
    ),
    "Facts.settle of nothing": (lambda f: f.facts.settle(uuid4(), "new"), []),
    "Facts.delete": (lambda f: f.facts.delete(f.fact_id), ["facts.delete"]),
    "Facts.delete again": (lambda f: f.facts.delete(f.fact_id), []),
    "Facts.import_facts": (lambda f: f.facts.import_facts([source(1)]), ["facts.import"]),
    "Facts.create_from": (lambda f: f.facts.create_from([user("I row.")], key="k"), ["facts.source"]),
    "Facts.instruct": (lambda f: f.facts.instruct("Forget it.", key="i"), ["facts.instruct"]),
    "Facts.forget_source": (
        lambda f: f.facts.forget_source(f.facts.create_from([user("I row.")], key="k").source_id),
        ["forget"],
    ),
    "Facts.optimize": (optimize, ["facts.read"]),
    "Facts.apply_optimization": (
        lambda f: f.facts.apply_optimization(f.optimization),
        ["facts.optimize"],
    ),
    "Facts.set_capture": (lambda f: f.facts.set_capture(Capture(may_add=False)), ["capture"]),
    "Facts.clear": (lambda f: f.facts.clear(), ["facts.clear"]),
    "NamespaceFacts.users": (lambda f: f.namespace.users(), ["directory.read"]),
    "NamespaceFacts.set_capture": (
        lambda f: f.namespace.set_capture(Capture(may_delete=False)),
        ["capture"],
    ),
    "NamespaceFacts.clear_each": (
        lambda f: [f.facts.add("Ann is back."), list(f.namespace.clear_each())],
        ["facts.add", "facts.clear"],
    ),
    "Audit.acts": (lambda f: f.audit.acts(), ["audit.read"]),
    "Audit.act": (lambda f: f.audit.act(uuid4()), ["audit.read"]),
    "Audit.set_level": (lambda f: f.audit.set_level("changes"), ["audit.level"]),
}
NO_ACTS = {
    "is put together from others": {"Memory.get_scope", "NamespaceFacts.clear", "Audit.each"},
    "makes or closes an object": {
        f"{face}.{name}"
        for face in ("Memory", "Facts", "NamespaceFacts", "Audit")
        for name in ("close", "from_defaults", "for_owner", "of_namespace")
    },
    "delivers what was put, and changes nothing of it": {"Memory.flush", "Memory.deliver"},
    "lists what a model may call": {"Memory.tools"},
    "shows what operators have set": {
        f"{face}.{name}" for face in ("Facts", "NamespaceFacts") for name in ("get_capture", "capture_acts")
    }
    | {"Memory.get_retention", "Memory.retention_acts"},
    "counts": {"NamespaceFacts.to_clear", "Audit.plan_pruning"},
    "shows nothing of anybody": {"Audit.level", "Audit.verify", "Audit.anchor"},
    "has to be committed to be seen, in test_trail": {"Audit.prune"},
}


@pytest.fixture(scope="module")
def faces(stack: Any) -> Iterator[tuple[Faces, str]]:
    with temporary_database(stack.database_url) as url:
        made = Faces(
            Memory.from_defaults("chat", user_id="ann", namespace="shop", database_url=url),
            Facts.for_owner(user_id="ann", namespace="shop", database_url=url),
            Facts.of_namespace("shop", database_url=url),
            Audit.of_namespace("shop", database_url=url),
        )
        made.audit.set_level("all")
        yield made, url
        made.memory.close()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_recorded_once_with_who_and_where(faces: tuple[Faces, str], name: str) -> None:
    of_whom, url = faces
    call, acts = CALLS[name]
    before = len(rows_of(url, ENTRIES))
    with acting(actor="ops", origin="192.0.2.7"):
        call(of_whom)
    rows = rows_of(url, ENTRIES)[before:]
    who = "agent" if name == "Memory.call_tool" else "ops"
    assert rows == [(act, who, "192.0.2.7") for act in acts]
    assert set(acts) <= set(ACTS)


def test_every_public_method_is_named() -> None:
    twins = {
        f"{face.__name__}.{name}"
        for face in (Memory, Facts, NamespaceFacts, Audit)
        for name, _function in inspect.getmembers(face, callable)
        if not name.startswith("_")
    }
    methods = {name for name in twins if not _is_twin(name, twins)}
    named = {name.split()[0] for name in CALLS} | set().union(*NO_ACTS.values())
    assert methods - named == set()
    assert named - twins <= set().union(*NO_ACTS.values())


def _is_twin(name: str, names: set[str]) -> bool:
    face, _, method = name.partition(".")
    return method.startswith("a") and f"{face}.{method[1:]}" in names


# What each command does beside the methods above, or why it is in no trail.
COMMAND_ACTS = {
    "up": "runs servers",
    "demo": "by Memory",
    "worker": "derives; by an instruction it does facts.obey, and its doubts are facts.doubt",
    "status": "counts",
    "exporter": "counts",
    "top": "counts",
    "sessions": "by Memory, and directory.read",
    "get": "by Memory",
    "ask": "by Memory",
    "search": "by Memory",
    "eval": "prints shares of what it reads, and ids and words that were given to it",
    "mcp": "by Memory",
    "flush": "delivers",
    "import": "by Memory and Facts",
    "verify": "counts",
    "explain": "explain",
    "facts": "by Facts, and explain",
    "limits": "limits",
    "encryption": "encryption",
    "erasures": "erasure, readmit",
    "export": "export",
    "keys": "key.create, key.revoke",
    "serve": "by Memory, Facts and Audit, each with the key and the client's address",
    "retention": "retention, expire, restore, reveal",
    "audit": "audit.level, audit.prune, audit.read",
    "replay": "replay.start, replay.resume, replay.stop",
    "generations": "generations.serve, generations.rollback, generations.prune",
    "dead-letters": "dead_letters.retry, dead_letters.drop",
    "migrate": "makes the tables of the trail",
    "doctor": "looks at servers",
    "models": "asks models, with a made-up message",
    "prompts": "shows what the package asks models",
}


def test_every_command_is_named() -> None:
    assert set(COMMANDS) <= set(COMMAND_ACTS)


def test_the_documents_list_every_kind_with_its_level() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    listed = {
        cells[1].strip("` "): cells[2].strip("` ")
        for line in lines
        if line.startswith("| `") and len(cells := line.split("|")) == 5
    }
    assert listed == {kind: act.level for kind, act in ACTS.items()}


async def test_async_methods_are_recorded_with_the_context_of_their_task(
    make_memory: Callable[..., Memory],
) -> None:
    """Also where puts of several tasks go together: each has its own actor."""
    memories = [make_memory(f"s{n}", user_id=f"u{n}", namespace="many", memory_blocks=[]) for n in range(8)]
    url = memories[0]._resources.settings.database_url
    assert url is not None

    async def speak(number: int) -> None:
        with acting(actor=f"actor-{number}", origin=f"192.0.2.{number}"):
            for turn in range(6):
                await memories[number].aput(user(f"turn {turn}"))

    await Audit.of_namespace("many", database_url=url.get_secret_value()).aset_level("all")
    await asyncio.gather(*map(speak, range(8)))
    await memories[0].aclose()
    rows = rows_of(
        url.get_secret_value(),
        "SELECT e.actor, e.origin, a.user_id, count(*), array_agg(e.seq ORDER BY e.seq)"
        " FROM strandline.audit_entry e JOIN strandline.audit_subject a ON a.subject = e.subject"
        " WHERE e.act = 'put' GROUP BY 1, 2, 3 ORDER BY 1",
    )
    assert rows == [(f"actor-{n}", f"192.0.2.{n}", f"u{n}", 6, [1, 2, 3, 4, 5, 6]) for n in range(8)]
