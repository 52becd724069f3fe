"""Everybody who has to do with a user while she is erased: producers, editors, workers, replays, readers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args
from uuid import uuid4

from strandline import Capture, Facts, Memory
from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.models.contract import EmbeddingAnswer
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.records import Selection
from strandline.pipelines.vectors.stage import VectorsStage
from strandline.schemas.errors import (
    ConflictError,
    DeliveredError,
    ErasedError,
    NotFoundError,
    OwnerError,
    ReplayError,
    StrandlineError,
)
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import FACTS, SUMMARY, VECTORS, VECTORS_STAGE
from tests.chaos.edits_campaign import TERMS
from tests.support.workers.draining import due_lanes
from tests.support.workers.hand_worker import HandWorker
from tests.support.workers.scripted_stages import ScriptedEmbedder, ScriptedStages

LIMITS: dict[str, Any] = {
    "token_limit": 400,
    "token_flush_size": 40,
    "memory_blocks": [FACTS, SUMMARY, VECTORS],
    "shared_scope": "harbour",
}
STOP_POINTS: tuple[StopPoint, ...] = get_args(StopPoint)
# Inside of its transaction a worker holds the lane, and the fence waits for it: so only for a moment.
HELD_SECONDS = 0.15
PATIENCE_SECONDS = 60.0

# What an erasure may answer to whoever comes beside or after it.
EXPECTED = (ErasedError, NotFoundError, ConflictError, DeliveredError, OwnerError, ReplayError)
# What has to be refused once there is a receipt.
WRITES = ("put", "put_new", "put_many", "import_", "add", "fork", "capture", "add_run")

WEIGHTS: Mapping[str, float] = {
    "put": 8, "put_new": 3, "put_many": 3, "import_": 3, "flush": 4, "rewind": 2, "replace": 2, "pop": 1,
    "fork": 2, "reset": 0.5, "forget": 0.5, "add": 3, "edit": 3, "delete": 2, "clear": 0.3, "capture": 1,
    "policy": 1, "add_run": 2, "read": 3, "search": 2,
}  # fmt: skip
# Of a session alone: nothing of what takes its words to another session, or into a person's own words.
SESSION_WEIGHTS: Mapping[str, float] = {
    name: weight
    for name, weight in WEIGHTS.items()
    if name not in ("put_new", "fork", "add", "capture", "edit")
}


class WideEmbedder(ScriptedEmbedder):
    """Vectors as long as those that a search makes of its query (the local embedder's)."""

    __slots__ = ()

    @property
    def dimensions(self) -> int:
        return 256

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        answer = super().embed(texts, timeout_seconds=timeout_seconds)
        wide = tuple(vector * 32 for vector in answer.vectors)
        return EmbeddingAnswer(wide, answer.model, answer.input_tokens)


class WideStages(ScriptedStages):
    """The scripted stages, with these vectors."""

    def __init__(self) -> None:
        super().__init__()
        for stages in self._made:
            stages[VECTORS_STAGE] = VectorsStage(WideEmbedder())


@dataclass
class Scene:
    """One erasure, and what all threads around it share.

    Attributes:
        canary: in everything that goes; nothing else in the database has it.
        receipt_at: when there was a receipt, by the clock that only goes on.
    """

    url: str
    settings: Settings
    database: Database
    seed: str
    canary: str
    user: str
    sessions: list[str]
    is_session_alone: bool
    over: threading.Event = field(default_factory=threading.Event)
    fenced: threading.Event = field(default_factory=threading.Event)
    receipt_at: float | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, counts: Counter[str], what: str) -> None:
        with self._lock:
            counts[what] += 1

    def memory(self, session: str) -> Memory:
        return Memory.from_defaults(session, user_id=self.user, database_url=self.url, **LIMITS)

    def facts(self) -> Facts:
        return Facts.for_owner(user_id=self.user, database_url=self.url)


class Person:
    """A thread of a producer: puts, corrections, edits, reads, one after the other, until it is over."""

    def __init__(self, scene: Scene, number: int) -> None:
        self._scene = scene
        self._chance = random.Random(f"{scene.seed}/person {number}")  # noqa: S311
        self.thread = threading.Thread(target=self._run, name=f"person {number}")

    def _run(self) -> None:
        weights = SESSION_WEIGHTS if self._scene.is_session_alone else WEIGHTS
        while not self._scene.over.is_set():
            (name,) = self._chance.choices(list(weights), list(weights.values()))
            began = time.monotonic()
            try:
                getattr(self, f"_{name}")()
            except EXPECTED as error:
                self._scene.note(self._scene.outcomes, type(error).__name__)
            except Exception as error:  # noqa: BLE001 - the outermost edge of this thread: a finding
                self._scene.wrong.append(f"{name}: {type(error).__name__}: {error}")
            else:
                self._scene.note(self._scene.outcomes, name)
                receipt_at = self._scene.receipt_at
                if name in WRITES and receipt_at is not None and began > receipt_at:
                    self._scene.wrong.append(f"{name} began after the receipt, and was accepted")

    def _memory(self) -> Memory:
        return self._scene.memory(self._chance.choice(self._scene.sessions))

    def _message(self) -> dict[str, Any]:
        thing, kind = self._chance.choice(("boat", "flat", "cat")), self._chance.choice(("blue", "old"))
        text = f"my {thing} is {kind} {self._scene.canary}{self._chance.randrange(10_000)}"
        role = self._chance.choice(("user", "user", "assistant"))
        return {"role": role, "content": text, "metadata": {"mark": self._scene.canary}}

    def _put(self) -> None:
        self._memory().put(self._message())

    def _put_new(self) -> None:
        self._scene.memory(f"{self._scene.canary}-{uuid4().hex[:8]}").put(self._message())

    def _put_many(self) -> None:
        self._memory().put_messages([self._message() for _ in range(4)])

    def _import_(self) -> None:
        self._memory().import_messages([self._message() for _ in range(12)])

    def _flush(self) -> None:
        self._memory().flush(all=True)

    def _rewind(self) -> None:
        memory = self._memory()
        messages = memory.get_all()
        if messages:
            memory.rewind(self._chance.choice(messages).seq or 1, actor=self._scene.user)

    def _replace(self) -> None:
        memory = self._memory()
        messages = memory.get_all()
        if messages:
            memory.replace(self._chance.choice(messages).seq or 1, str(self._message()["content"]))

    def _pop(self) -> None:
        self._memory().pop()

    def _fork(self) -> None:
        memory = self._memory()
        if not memory.get_all():
            raise NotFoundError("nothing to fork")
        memory.fork(f"{self._scene.canary}-{uuid4().hex[:8]}")

    def _reset(self) -> None:
        self._memory().reset()

    def _forget(self) -> None:
        self._memory().reset(derived=True)

    def _add(self) -> None:
        self._scene.facts().add(
            f"likes {self._scene.canary}{self._chance.randrange(10_000)}", actor=self._scene.user
        )

    def _edit(self) -> None:
        facts = self._scene.facts()
        known = facts.list(limit=20)
        if known:
            wording = f"knows {self._scene.canary}{self._chance.randrange(10_000)}"
            facts.replace(self._chance.choice(list(known)).fact_id, wording, actor=self._scene.user)

    def _delete(self) -> None:
        facts = self._scene.facts()
        known = facts.list(limit=20)
        if known:
            facts.delete(self._chance.choice(list(known)).fact_id)

    def _clear(self) -> None:
        self._scene.facts().clear()

    def _capture(self) -> None:
        words = f"keep {self._scene.canary} {uuid4().hex}"
        self._scene.facts().set_capture(Capture(None, None, None, words), actor=self._scene.user)

    def _policy(self) -> None:
        self._memory().set_policy(token_limit=self._chance.choice((400, 500)), actor=self._scene.user)

    def _add_run(self) -> None:
        self._memory().add_run(f"run {self._scene.canary}{self._chance.randrange(5)}", [self._message()])

    def _read(self) -> None:
        self._memory().get()

    def _search(self) -> None:
        self._memory().search(self._scene.canary, scope="owner", kinds=["message", "fact"])


class Laggard:
    """A worker that stops at a point of a batch, and goes on with what it has once the user is gone."""

    def __init__(self, scene: Scene, number: int, point: StopPoint) -> None:
        self._scene = scene
        self._point = point
        self._chance = random.Random(f"{scene.seed}/worker {number}")  # noqa: S311
        self._stops_at = self._chance.randrange(1, 6)
        self.thread = threading.Thread(target=self._run, name=f"worker {number}")

    def _reach(self, point: StopPoint) -> None:
        if point != self._point:
            return
        self._stops_at -= 1
        if self._stops_at == 0:
            self._scene.note(self._scene.stops, point)
            if point == "applying":
                time.sleep(HELD_SECONDS)
            else:
                self._scene.fenced.wait(PATIENCE_SECONDS)

    def _run(self) -> None:
        worker = HandWorker(self._scene.database, WideStages(), TERMS, budget=400, reach=self._reach)
        while not self._scene.over.is_set():
            lanes = due_lanes(self._scene.url, list(worker.stages))
            if not lanes:
                self._scene.over.wait(0.01)
                continue
            try:
                worker.drain(self._chance.choice(lanes))
            except StrandlineError as error:
                self._scene.wrong.append(f"drain: {type(error).__name__}: {error}")


class Replayer:
    """A replay in place of one pipeline after the other."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._chance = random.Random(f"{scene.seed}/replays")  # noqa: S311
        self.thread = threading.Thread(target=self._run, name="replays")

    def _run(self) -> None:
        while not self._scene.over.is_set():
            pipeline = self._chance.choice((FACTS, SUMMARY, VECTORS))
            selection = (
                Selection("default", user_id=self._scene.user) if self._chance.random() < 0.5 else Selection()
            )
            try:
                replay = begin_in_place(self._scene.database, pipeline, selection)
                replay_in_place(self._scene.database, replay, self._scene.settings, stop=self._scene.over)
                self._scene.note(self._scene.outcomes, "replay")
            except EXPECTED as error:
                self._scene.note(self._scene.outcomes, type(error).__name__)
            except Exception as error:  # noqa: BLE001 - the outermost edge of this thread: a finding
                self._scene.wrong.append(f"replay: {type(error).__name__}: {error}")
            self._scene.over.wait(0.01)


def begin(threads: list[threading.Thread]) -> Callable[[], None]:
    """Start the threads; returns what waits for their ends."""
    for thread in threads:
        thread.start()

    def join() -> None:
        for thread in threads:
            thread.join()

    return join
