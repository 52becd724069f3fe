"""Whatever is put, flushed, derived and corrected, in any order: beside a plain model of the log."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline import Memory
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE, STAGES, SUMMARY_STAGE, VECTORS_STAGE
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, Rig, nothing_due, wait_until
from tests.support.fresh_session import derived_of, fresh_copy
from tests.support.servers.model_server import ModelServer
from tests.support.workers.draining import drain_everything

SMALL = {"token_limit": 400, "chat_history_token_ratio": 0.3, "token_flush_size": 40}


@dataclass
class Conversation:
    """A session beside the list of what it has to show, and the words that it must not show any more."""

    memory: Memory
    lines: dict[int, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    words: int = 0

    def text(self, who: str) -> str:
        """A text with a word of its own."""
        self.words += 1
        return f"{who} {self.words} is w{self.memory.session_id[:6]}x{self.words}y"

    def put(self) -> None:
        texts = [self.text("thing"), self.text("reply")]
        seqs = self.memory.put_messages(
            [{"role": "user", "content": texts[0]}, {"role": "assistant", "content": texts[1]}]
        )
        self.lines |= dict(zip(seqs, texts, strict=True))

    def rewind(self, choice: float) -> None:
        if self.lines:
            seq = sorted(self.lines)[int(choice * len(self.lines))]
            taken = self.memory.rewind(seq).seqs
            assert taken == tuple(one for one in sorted(self.lines) if one >= seq)
            for one in taken:
                self.lose(one)

    def replace(self, choice: float) -> None:
        if self.lines:
            seq = sorted(self.lines)[int(choice * len(self.lines))]
            text = self.text("other")
            self.memory.replace(seq, text)
            self.lose(seq)
            self.lines[seq] = text

    def pop(self) -> None:
        popped = self.memory.pop()
        assert (popped.text if popped else None) == (self.lines[max(self.lines)] if self.lines else None)
        if popped:
            self.lose(max(self.lines))

    def lose(self, seq: int) -> None:
        self.gone.add(self.lines.pop(seq).split()[-1])

    def check(self) -> None:
        """The log is the model's, and nothing shows what is gone."""
        assert {m.seq: m.text for m in self.memory.get_all()} == self.lines
        context = self.memory.get("thing other reply")
        shown = " ".join(str(message) for message in context)
        found = self.memory.search("thing other reply", limit=50, scope="owner", kinds=("message", "fact"))
        shared = self.memory.search("thing other reply", limit=50, scope="shared")
        shown += " ".join(str(hit) for hit in (*found, *shared))
        shown += " ".join(fact.text for fact in self.memory.facts.list())
        assert not {word for word in self.gone if word in shown}
        window = [message.text for message in context.window]
        assert window == [self.lines[seq] for seq in sorted(self.lines)][len(self.lines) - len(window) :]


@pytest.fixture
def local(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    return load_settings(database_url=database_url, embedding_backend="local")


def converse(make_memory: MakeMemory, sessions: int) -> list[Conversation]:
    """Sessions of one user, that share with each other."""
    user_id = uuid4().hex
    return [
        Conversation(make_memory(user_id=user_id, shared_scope=user_id, **SMALL)) for _ in range(sessions)
    ]


def assert_like_fresh(
    make_memory: MakeMemory, url: str, conversations: list[Conversation], work: Callable[[], None]
) -> None:
    memories = [one.memory for one in conversations if one.words]
    for memory in memories:
        memory.flush(all=True)
    copies = fresh_copy(make_memory, memories)
    work()
    assert nothing_due(url)
    for memory, copy in zip(memories, copies, strict=True):
        assert derived_of(url, memory) == derived_of(url, copy)
    for one in conversations:
        one.check()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            "put put put flush flush_all extract merge fold embed work rewind replace replace pop".split()
        ),
        st.integers(0, 1),
        st.floats(0, 0.999),
    ),
    max_size=30,
)
WORK = {
    "extract": [EXTRACT_STAGE],
    "merge": [MERGE_STAGE],
    "fold": [SUMMARY_STAGE],
    "embed": [VECTORS_STAGE],
    "work": list(STAGES),
}


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_memory_is_that_of_the_messages_as_they_stand(
    rig: Rig, local: Settings, steps: list[tuple[str, int, float]]
) -> None:
    conversations = converse(rig.memory, 2)
    for step, which, choice in steps:
        one = conversations[which]
        match step:
            case "put":
                one.put()
            case "rewind":
                one.rewind(choice)
            case "replace":
                one.replace(choice)
            case "pop":
                one.pop()
            case "flush" | "flush_all":
                one.memory.flush(all=step == "flush_all")
            case _:
                drain_everything(rig.database, rig.url, local, WORK[step])
        if step in ("rewind", "replace", "pop"):
            for each in conversations:
                each.check()
    assert verify(rig.database).violations == ()
    assert_like_fresh(
        rig.memory, rig.url, conversations, lambda: drain_everything(rig.database, rig.url, local)
    )
    assert verify(rig.database).violations == ()


@pytest.mark.parametrize("seed", range(2))
def test_corrections_beside_workers(rig: Rig, local: Settings, seed: int) -> None:
    """Each session is corrected by a thread of its own, while workers derive what it puts."""
    conversations = converse(rig.memory, 3)

    def act(number: int) -> None:
        chance = random.Random(seed * 100 + number)  # noqa: S311
        one = conversations[number]
        for _ in range(40):
            step = chance.choice(["put", "put", "put", "flush", "rewind", "replace", "pop"])
            if step == "put":
                one.put()
            elif step == "flush":
                one.memory.flush(all=chance.random() < 0.5)
            elif step == "pop":
                one.pop()
            else:
                getattr(one, step)(chance.random())
            one.check()

    runner = BackgroundRunner(rig.database, prepare_stages(rig.database, local), local)
    runner.start()
    try:
        with ThreadPoolExecutor(3) as threads:
            list(threads.map(act, range(3)))
        assert_like_fresh(
            rig.memory,
            rig.url,
            conversations,
            lambda: wait_until(lambda: nothing_due(rig.url), timeout=120, what="the workers"),
        )
    finally:
        runner.stop()
    assert verify(rig.database).violations == ()
