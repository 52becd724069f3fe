"""What people deleted, cleared or reworded stays away, whatever is done to sessions, derivations and keys."""

from __future__ import annotations

import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from strandline import Memory, retention
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import Erasures, make_receipt_key
from strandline.pipelines.generations.registry import Generation, kept_generations
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import Progress, begin_generation, derive_generation
from strandline.pipelines.replay.records import Selection, claim_replay, replays
from strandline.pipelines.replay.switching import prune, roll_back, serve_everybody, switch_owner
from strandline.pipelines.sealing.enabling import change_key, enable, prepare_owners
from strandline.pipelines.sealing.resealing import Pace, reseal_namespace
from strandline.pipelines.sealing.rotating import renew_data_keys, rewrap_keys
from strandline.producers.facts import edits as fact_edits
from strandline.producers.facts import listing
from strandline.producers.owner_facts import OwnerFacts
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.sealed.content import SealedContent
from strandline.schemas.sealed.opening import sealed_content
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.acts.retention import Retention
from strandline.schemas.values.identity import identify_user
from strandline.schemas.values.lanes import FACTS
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, lock_is_awaited, rows_of, wait_until
from tests.support.aging import DAY, age_messages
from tests.support.opened_rows import clear_only
from tests.support.servers.databases import temporary_database
from tests.support.workers.draining import due_lanes
from tests.support.workers.hand_worker import FixedStages, HandWorker, say
from tests.support.workers.scripted_stages import ScriptedStages

pytestmark = clear_only("encrypts by itself, with a keyring of its own")

USER = "maren"
OWNER = identify_user("default", USER).shard_key
KEYS = ";".join(f"{name} {b64encode(name.encode() * 8).decode()}" for name in ("from", "into"))
AGED = "UPDATE strandline.data_key SET created_at = created_at - interval '1 day' RETURNING 1"
TOKEN = re.compile(r"\bk\d+\b")
LIMITS: dict[str, Any] = {"memory_blocks": ["facts"], "token_limit": 40, "token_flush_size": 10}
SAID = {
    "a": ("my boat is blue k1", "my cat is old k2", "my tea is loud k3"),
    "b": ("my boat is blue k1", "my flat is small k4", "my tea is mine k5", "my cat is small k6"),
}


@pytest.fixture(autouse=True)
def keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", KEYS)


@pytest.fixture
def settings(database_url: str) -> Settings:
    return load_settings(database_url=database_url, text_backend="local", embedding_backend="local")


@dataclass
class World:
    """One user's sessions, and what was done to their facts: ``gone`` are the tokens that may not show."""

    url: str
    database: Database
    settings: Settings
    memories: dict[str, Memory]
    facts: OwnerFacts
    key: str = "from"
    gone: set[str] = field(default_factory=set)

    def drain(self) -> None:
        worker = HandWorker(self.database, FixedStages(ScriptedStages()), budget=60)
        while lanes := due_lanes(self.url):
            assert "drained" in [worker.drain(lane) for lane in lanes]

    def check(self) -> None:
        """Nothing that is gone is in a list or a search, in any derivation that is kept."""
        self.drain()
        shown = " ".join(fact.text for fact in self.facts.list(limit=1_000))
        shown += " ".join(
            hit.fact.text for hit in self.facts.search(" ".join(["boat cat tea", *self.gone]), limit=50)
        )
        assert not self.gone.intersection(TOKEN.findall(shown)), shown
        assert verify(self.database, deep=True).violations == ()


def generations(world: World) -> list[Generation]:
    return [one for one in kept_generations(world.database) if one.pipeline == FACTS]


def fill(world: World) -> Any:
    """Begin a generation, and make all there is due in it; it is not derived yet."""
    for one in replays(world.database, unfinished=True):
        world.drain()
        derive_generation(world.database, claim_replay(world.database, one.replay_id))
    replay = begin_generation(world.database, FACTS, world.settings, force=True, hold=True)
    filled = threading.Event()

    def look(progress: Progress) -> None:
        if progress.phase not in ("waiting", "filling"):
            filled.set()

    derive_generation(world.database, replay, on_progress=look, stop=filled)
    return replay


def derive(world: World) -> Any:
    replay = fill(world)
    world.drain()
    return derive_generation(world.database, claim_replay(world.database, replay.replay_id))


def promote(world: World) -> None:
    derive(world)
    serve_everybody(world.database, generations(world)[-1])


def switch(world: World) -> None:
    derive(world)
    assert switch_owner(world.database, generations(world)[-1], OWNER)


def go_back(world: World) -> None:
    promote(world)
    roll_back(world.database, FACTS)


def prune_others(world: World) -> None:
    promote(world)
    for one in generations(world):
        if one.state != "serving":
            prune(world.database, one.generation_id)


def replay(world: World) -> None:
    replay_in_place(world.database, begin_in_place(world.database, FACTS, Selection()), world.settings)


def encrypt(world: World) -> None:
    assert isinstance(world.database.content, SealedContent)
    enable(world.database, world.database.content, "default", world.key, "clear")
    for _made in prepare_owners(world.database, world.database.content, "default"):
        pass
    rows_of(world.url, AGED)


def reseal(world: World) -> None:
    content = world.database.content
    assert isinstance(content, SealedContent)
    encrypt(world)
    for _progress in reseal_namespace(world.database, content, "default", cache_seconds=0, pace=Pace()):
        pass


def rotate(world: World) -> None:
    content = world.database.content
    assert isinstance(content, SealedContent)
    reseal(world)
    world.key = "into"
    sum(renew_data_keys(world.database, content, "default"))
    rows_of(world.url, AGED)
    change_key(world.database, content, "default", "into")
    sum(rewrap_keys(world.database, content, "default"))


def retain(world: World) -> None:
    world.memories["b"].set_retention(Retention(max_age_seconds=30 * DAY))
    age_messages(world.url, "b", 40 * DAY)
    retention.run(world.database, at_once=True)
    assert len(world.memories["b"].get_all()) < len(SAID["b"])


def retain_and_promote(world: World) -> None:
    retain(world)
    promote(world)


def erase(world: World) -> None:
    Erasures.of_namespace("default", database_url=world.url).erase_session("b")


STEPS: Mapping[str, Callable[[World], object]] = {
    "nothing": lambda world: None,
    "fill a generation": fill,
    "derive a generation": derive,
    "promote": promote,
    "switch the owner": switch,
    "roll back": go_back,
    "prune": prune_others,
    "replay in place": replay,
    "enable encryption": encrypt,
    "reseal": reseal,
    "rotate": rotate,
    "replace": lambda world: world.memories["a"].replace(1, "my boat is loud k11"),
    "replace another": lambda world: world.memories["b"].replace(2, "my flat is blue k12"),
    "rewind": lambda world: world.memories["b"].rewind(3),
    "pop": lambda world: world.memories["b"].pop(),
    "reset": lambda world: world.memories["b"].reset(),
    "forget": lambda world: world.memories["b"].reset(derived=True),
    "fork": lambda world: world.memories["b"].fork(),
    "erase": erase,
    "retain": retain,
    "retain and promote": retain_and_promote,
}


def take_away(world: World) -> None:
    """Delete the facts about one thing, and give those about another one other words."""
    for fact in world.facts.list(contains="boat"):
        assert world.facts.delete(fact.fact_id)
        world.gone |= {*TOKEN.findall(fact.text)}
    for number, fact in enumerate(world.facts.list(contains="tea")):
        assert world.facts.replace(fact.fact_id, f"my tea is sold, {number}")
        world.gone |= {*TOKEN.findall(fact.text)}


def clear(world: World) -> None:
    world.gone |= {*TOKEN.findall(" ".join(fact.text for fact in world.facts.list()))}
    world.facts.clear()


@pytest.fixture(scope="module")
def said(stack: EmbeddedStack) -> Iterator[str]:
    """The name of a database with two sessions of a user, all derived."""
    with temporary_database(stack.database_url) as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("STRANDLINE_EMBEDDED", "never")
        settings = load_settings(database_url=url, text_backend="local", embedding_backend="local")
        database = Database.connect(ConnectionOptions.from_settings(url, settings))
        prepare_stages(database, settings)
        for name, texts in SAID.items():
            memory = Memory.from_defaults(name, user_id=USER, database_url=url, **LIMITS)
            for text in texts:
                say(memory, text)
            memory.close()
        worker = HandWorker(database, FixedStages(ScriptedStages()), budget=60)
        while lanes := due_lanes(url):
            assert "drained" in [worker.drain(lane) for lane in lanes]
        database.close()
        yield urlsplit(url).path[1:]


@pytest.fixture
def database_url(stack: EmbeddedStack, said: str) -> Iterator[str]:
    with temporary_database(stack.database_url, said) as url:
        yield url


@pytest.fixture
def world(
    make_memory: MakeMemory,
    database_url: str,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[World]:
    monkeypatch.setenv("STRANDLINE_RECEIPT_KEY_FILE", str(tmp_path / "key.pem"))
    make_receipt_key(tmp_path / "key.pem")
    options = ConnectionOptions.from_settings(database_url, settings)
    database = Database.connect(options, sealed_content(settings))
    memories = {name: make_memory(name, user_id=USER, **LIMITS) for name in SAID}
    yield World(database_url, database, settings, memories, memories["a"].facts)
    database.close()


@pytest.mark.parametrize("step", STEPS)
def test_what_people_took_away_stays_away(world: World, step: str) -> None:
    """Edits come after the step, whose work is not done yet, and before it."""
    STEPS[step](world)
    take_away(world)
    world.check()
    STEPS[step](world)
    world.check()
    promote(world)
    clear(world)
    world.check()
    STEPS[step](world)
    world.check()


@pytest.mark.parametrize("step", ["promote", "switch the owner", "roll back"])
def test_a_fact_is_deleted_by_the_id_that_it_had_when_it_was_read(world: World, step: str) -> None:
    """Another derivation may have begun to serve since then, in which the fact has another id."""
    seen = world.facts.list(contains="boat", limit=1)[0]
    STEPS[step](world)
    assert world.facts.delete(seen.fact_id)
    world.gone |= {*TOKEN.findall(seen.text)}
    world.check()
    roll_back(world.database, FACTS)
    world.check()


def test_an_edit_gives_back_its_fact_though_another_derivation_is_about_to_serve(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback waits for the edit: else what was reworded would be looked for where it is not."""
    promote(world)
    reworded, switching = world.facts.list(contains="boat", limit=1)[0], threading.Thread()

    def get_fact(*arguments: Any) -> Any:
        nonlocal switching
        switching = threading.Thread(target=roll_back, args=[world.database, FACTS])
        switching.start()
        wait_until(lambda: lock_is_awaited(world.url), timeout=30, what="the rollback to wait for the edit")
        return listing.get_fact(*arguments)

    monkeypatch.setattr(fact_edits, "get_fact", get_fact)
    fact = world.facts.replace(reworded.fact_id, "my boat is sold k99")
    assert fact is not None and fact.text == "my boat is sold k99"
    switching.join()
    world.gone |= {*TOKEN.findall(reworded.text)}
    world.check()
