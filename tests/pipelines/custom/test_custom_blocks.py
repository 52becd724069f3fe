"""Custom blocks: folded exactly once and in order by code of the application's own, and shown by it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import ConfigurationError, MemoryContext, UnknownPipelineError
from strandline.pipelines.custom.contract import BlockDefinition
from strandline.pipelines.custom.loading import load_blocks
from strandline.pipelines.custom.stage import CustomStage
from strandline.pipelines.engine import leases as lease
from strandline.pipelines.engine.batches import claim
from strandline.pipelines.engine.dead_letters import list_dead_letters, retry_dead_letter
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.project.test_documentation import blocks_of
from tests.support import sample_blocks
from tests.support.sample_blocks import POISON, Diary, Log, MentionCounter, Pictures, Whatever
from tests.support.workers.draining import drain_everything, due_lanes
from tests.support.workers.hand_worker import TERMS, FixedStages, HandWorker, say

ROOT = Path(__file__).resolve().parent.parent.parent.parent
NAMES = ("mentions", "diary", "log", "pictures", "whatever")
LISTED = ",".join(
    f"tests.support.sample_blocks:{kind.__name__}"
    for kind in (MentionCounter, Diary, Log, Pictures, Whatever)
)

Drain = Callable[..., None]


@pytest.fixture(autouse=True)
def _listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STRANDLINE_BLOCKS", LISTED)
    sample_blocks.forgiving.clear()
    Whatever.given = None
    yield
    sample_blocks.forgiving.clear()


@pytest.fixture
def drain(database: Database, database_url: str) -> Drain:
    def drain_now(**changed: Any) -> None:
        drain_everything(database, database_url, load_settings(database_url=database_url, **changed), NAMES)

    return drain_now


@pytest.fixture
def registered(database: Database, settings: Settings) -> None:
    """A worker with the blocks has started once."""
    prepare_stages(database, settings, NAMES)


def state_of(database_url: str, name: str) -> Any:
    """The newest state of a block's only lane."""
    rows = rows_of(
        database_url,
        "SELECT b.state FROM strandline.block_state b JOIN strandline.generation g USING (generation_id)"
        " WHERE pipeline = %s ORDER BY ordinal DESC LIMIT 1",
        name,
    )
    return rows[0][0] if rows else None


def sound(database: Database) -> bool:
    report = verify(database, deep=True)
    assert report.violations == ()
    return True


def omissions(context: MemoryContext) -> list[tuple[str, str]]:
    return [(omission.kind, omission.name) for omission in context.omitted]


def test_a_worker_process_counts_and_another_goes_on(rig: Rig) -> None:
    environment = {"STRANDLINE_BLOCKS": LISTED, "PYTHONPATH": str(ROOT)}
    first = rig.start_worker("--queues", "mentions,log", **environment)
    memory = rig.memory("s", memory_blocks=["mentions", "log"], token_limit=60, token_flush_size=10)
    for number in range(12):
        memory.put({"role": "user", "content": f"Logan says that {number} is a number"})
    wait_until(lambda: state_of(rig.url, "mentions"), timeout=20, what="the first fold")
    first.kill()
    for number in range(12):
        last = memory.put({"role": "user", "content": f"And {number} is one as well, Logan"})
    memory.flush(all=True)
    rig.start_worker("--queues", "mentions,log", **environment)
    context = memory.get(wait_for=last, timeout=300)
    assert context.caught_up
    assert "<mentions>\nLogan was mentioned 24 times.\n</mentions>" in context[0].text
    folded = [seq for seqs in state_of(rig.url, "log") for seq in seqs]
    assert folded == list(range(1, 25)), "each message once, in order"
    assert sound(rig.database)


def test_the_recipe_works_as_printed_with_a_worker_beside_it(rig: Rig, tmp_path: Path) -> None:
    printed = {
        found[1]: block.text
        for block in blocks_of("python")
        if (found := re.match(r"with a worker: (\S+)", block.tried))
    }
    assert set(printed) == {"mention_counter.py", "chat.py"}
    code = [line for line in printed["mention_counter.py"].splitlines() if line.strip()]
    assert len(code) < 15
    for name, text in printed.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    environment = {
        "STRANDLINE_BLOCKS": "mention_counter:MentionCounter",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "STRANDLINE_DATABASE_URL": rig.url,
        "STRANDLINE_BROKER_URL": rig.broker_url,
    }
    rig.start_worker(**environment)
    done = subprocess.run(
        [sys.executable, tmp_path / "chat.py"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Logan was mentioned 2 times." in done.stdout


@pytest.mark.usefixtures("registered")
def test_an_owners_state_takes_in_all_sessions_in_the_order_of_their_flushes(rig: Rig, drain: Drain) -> None:
    one, two = (rig.memory(name, user_id="maren", memory_blocks=["diary"]) for name in ("one", "two"))
    other = rig.memory("three", user_id="other", memory_blocks=["diary"])
    say(one, "first")
    say(two, "second")
    say(other, "not hers")
    drain(batch_token_budget=1)
    say(one, "third")
    drain()
    assert (
        one.get()[0].text
        == two.get()[0].text
        == "<memory>\n<diary>\nfirst\nsecond\nthird\n</diary>\n</memory>"
    )
    assert "not hers" in other.get()[0].text
    assert two.get(wait_for=1).caught_up
    assert sound(rig.database)


@pytest.mark.usefixtures("registered")
def test_how_events_fall_into_batches_makes_no_difference(rig: Rig, drain: Drain) -> None:
    texts = [f"message {number}" for number in range(7)]
    for name, budget in (("small", 1), ("large", 8_000)):
        say(rig.memory(name, user_id=name, memory_blocks=["diary", "log"]), *texts)
        drain(batch_token_budget=budget)
    states = rows_of(
        rig.url,
        "SELECT DISTINCT ON (shard_key, scope_key) state::text FROM strandline.block_state"
        " ORDER BY shard_key, scope_key, ordinal DESC",
    )
    assert sorted(states) == sorted(2 * [(json.dumps([[n] for n in range(1, 8)]),), (json.dumps(texts),)])


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("block", ["diary", "log"])
def test_an_event_that_could_not_be_folded_is_folded_again_in_its_place(
    rig: Rig, drain: Drain, block: str
) -> None:
    memory = rig.memory("s", user_id="maren", memory_blocks=[block])
    say(memory, "one", f"the {POISON}", "three")
    say(rig.memory("t", user_id="maren", memory_blocks=[block]), "four")
    drain()
    (letter,) = list_dead_letters(rig.database, stage=block)
    assert re.fullmatch(
        rf"fold\(\) of block '{block}' raised LookupError at sample_blocks\.py:\d+", letter.reason
    ), "its message would quote what was said"
    assert any(POISON in message.text for message in memory.get()), "the hole stays in the tail"
    assert sound(rig.database)

    sample_blocks.forgiving.set()
    retried = retry_dead_letter(rig.database, letter)
    assert (retried.outcome, retried.refolded) == ("due", 2 if block == "diary" else 1)
    assert sound(rig.database)
    drain(batch_token_budget=1)
    if block == "diary":
        assert state_of(rig.url, block) == ["one", f"the {POISON}", "three", "four"]
    else:
        assert "[[1], [2], [3]]" in memory.get()[0].text
    assert nothing_due(rig.url)
    assert sound(rig.database)


@pytest.mark.usefixtures("registered")
def test_a_forgotten_session_leaves_the_owners_state(rig: Rig, drain: Drain) -> None:
    one, two = (rig.memory(name, user_id="maren", memory_blocks=["diary"]) for name in ("one", "two"))
    say(one, "kept")
    say(two, "forgotten")
    say(one, "kept too")
    drain(batch_token_budget=1)
    two.reset(derived=True)
    assert "forgotten" not in str(rows_of(rig.url, "SELECT state FROM strandline.block_state"))
    assert sound(rig.database)
    drain()
    assert state_of(rig.url, "diary") == ["kept", "kept too"]
    assert sound(rig.database)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("budget", [1, 8_000])
def test_corrected_messages_leave_the_owners_state(rig: Rig, drain: Drain, budget: int) -> None:
    one, two = (rig.memory(name, user_id="maren", memory_blocks=["diary", "log"]) for name in ("one", "two"))
    say(one, "first")
    say(two, "taken back")
    say(one, "second")
    say(one, "replaced")
    say(two, "third")
    drain(batch_token_budget=budget)
    two.rewind(1)
    one.replace(3, "otherwise")
    two.put({"role": "user", "content": "fourth"})
    two.flush(all=True)
    for (state,) in rows_of(rig.url, "SELECT state::text FROM strandline.block_state"):
        assert not {"taken back", "replaced"} & set(state.split(", "))
    assert sound(rig.database)
    drain(batch_token_budget=budget)
    assert state_of(rig.url, "diary") == ["first", "second", "otherwise", "fourth"]
    assert "[[1], [2], [3]]" in one.get()[0].text
    assert nothing_due(rig.url)
    assert sound(rig.database)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("kind", ["replace", "reset"])
def test_what_a_reset_left_is_folded_again(rig: Rig, drain: Drain, kind: str) -> None:
    """A reset that forgets nothing keeps the owner's state, whatever other sessions have corrected since."""
    one, two = (rig.memory(name, user_id="maren", memory_blocks=["diary"]) for name in ("one", "two"))
    say(two, "first")
    say(one, "second")
    drain(batch_token_budget=1)
    one.reset()
    if kind == "replace":
        two.replace(1, "otherwise")
    else:
        two.reset(derived=True)
    assert sound(rig.database)
    assert not any("second" in message.text for message in one.get().tail)
    drain()
    assert state_of(rig.url, "diary") == (["otherwise"] if kind == "replace" else []) + ["second"]
    assert nothing_due(rig.url)
    assert sound(rig.database)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("kind", ["rewind", "replace", "reset"])
def test_what_a_fork_keeps_stays_in_the_owners_state(rig: Rig, drain: Drain, kind: str) -> None:
    one = rig.memory("one", user_id="maren", memory_blocks=["diary"])
    say(one, "first", "second", "third")
    drain(batch_token_budget=1)
    one.fork("two", through_seq=2)
    if kind == "rewind":
        one.rewind(2)
    elif kind == "replace":
        one.replace(2, "otherwise")
    else:
        one.reset(derived=True)
    assert sound(rig.database)
    drain()
    left = {"rewind": ["first"], "replace": ["first", "otherwise", "third"], "reset": ["first"]}[kind]
    assert sorted(state_of(rig.url, "diary")) == sorted([*left, "second"])
    assert nothing_due(rig.url)
    assert sound(rig.database)


@pytest.mark.usefixtures("registered")
def test_a_fold_whose_commit_failed_is_not_doubled(rig: Rig) -> None:
    say(rig.memory("s", memory_blocks=["mentions"]), "Logan is here", "Logan is gone")
    failures = iter([True])

    def fail_once(point: str) -> None:
        if point == "applying" and next(failures, False):
            raise RuntimeError

    stages = prepare_stages(rig.database, rig.settings, ["mentions"])
    worker = HandWorker(rig.database, stages, reach=fail_once)
    assert worker.drain_all(rig.url) == ["postponed"]
    assert state_of(rig.url, "mentions") is None
    wait_until(lambda: worker.drain_all(rig.url) in (["drained"], []), timeout=10, what="the second attempt")
    assert state_of(rig.url, "mentions") == {"count": 2}
    assert sound(rig.database)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "returned None"),
        ({"a": {1, 2}}, r"cannot be kept as JSON \(TypeError\)"),
        ({1: "a"}, r"cannot be kept as JSON \(TypeError\)"),
        ({"a": float("nan")}, r"cannot be kept as JSON \(ValueError\)"),
        ("a\x00b", r"cannot be kept as JSON \(InvalidMessageError\)"),
        ("\ud800", r"cannot be kept as JSON \(UnicodeEncodeError\)"),
        ("x" * 70_000, "70,002 bytes as JSON, over the limit of 65,536"),
    ],
)
def test_a_state_that_cannot_be_kept_is_a_dead_letter_with_the_reason(
    rig: Rig, drain: Drain, given: Any, reason: str
) -> None:
    Whatever.given = given
    say(rig.memory("s", memory_blocks=["whatever"]), "anything")
    drain()
    (letter,) = list_dead_letters(rig.database)
    assert re.search(reason, letter.reason)
    assert sound(rig.database)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("given", ["a\\u0000b", ["tuple"], {"deep": [{"a": 0.1}]}, 10**40, True, ""])
def test_any_other_json_comes_back_as_it_was(rig: Rig, drain: Drain, given: Any) -> None:
    Whatever.given = given
    say(rig.memory("s", memory_blocks=["whatever"]), "anything")
    drain()
    assert state_of(rig.url, "whatever") == given


def test_a_block_that_no_worker_has_served_is_refused_at_put(make_memory: MakeMemory) -> None:
    with pytest.raises(UnknownPipelineError, match="mentions"):
        make_memory("s", memory_blocks=[MentionCounter()]).put({"role": "user", "content": "Hello"})


@pytest.mark.usefixtures("registered")
def test_another_version_is_left_alone_and_not_shown_until_it_is_derived(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, drain: Drain
) -> None:
    memory = rig.memory("s", memory_blocks=["mentions"])
    say(memory, "Logan")
    drain()
    state = state_of(rig.url, "mentions")

    class Newer(MentionCounter):
        version = "2"

    context = rig.memory("s", memory_blocks=[Newer()]).get()
    assert omissions(context) == [("block_failed", "mentions")]
    assert "version '1'" in context.omitted[0].reason and "version '2'" in context.omitted[0].reason
    monkeypatch.setattr(sample_blocks.MentionCounter, "version", "2")
    load_blocks.cache_clear()
    try:
        # Work that the former version has begun is left to workers with its code.
        say(memory, "Logan again")
        drain()
        assert state_of(rig.url, "mentions") == state
        assert not nothing_due(rig.url)
        settings = load_settings(database_url=rig.url)
        runner = BackgroundRunner(rig.database, prepare_stages(rig.database, settings, NAMES), settings)
        runner.start()
        try:
            begun = begin_generation(rig.database, "mentions", settings)
            assert derive_generation(rig.database, begun).phase == "done"
        finally:
            runner.stop()
        assert memory.get().covered_through["mentions"] == 2
        assert omissions(rig.memory("s", memory_blocks=[Newer()]).get()) == []
        assert not verify(rig.database).violations
    finally:
        load_blocks.cache_clear()


@pytest.mark.usefixtures("registered")
def test_before_the_first_flush_the_initial_state_is_shown(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[MentionCounter("Ada")])
    memory.put({"role": "user", "content": "Ada is not flushed yet"})
    assert "Ada was mentioned 0 times." in memory.get()[0].text


@pytest.mark.usefixtures("registered")
def test_a_process_without_the_code_says_so(
    make_memory: MakeMemory, drain: Drain, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(make_memory("s", memory_blocks=["mentions"]), "Logan")
    drain()
    monkeypatch.delenv("STRANDLINE_BLOCKS")
    context = make_memory("s", memory_blocks=["mentions"]).get()
    assert omissions(context) == [("block_failed", "mentions")]
    assert "STRANDLINE_BLOCKS" in context.omitted[0].reason


@pytest.mark.usefixtures("registered")
def test_a_render_that_fails_or_hangs_fails_no_read(make_memory: MakeMemory) -> None:
    ended = threading.Event()

    class Failing(MentionCounter):
        def render(self, state: Any) -> str:
            raise ValueError("with what was said")

    class Hanging(Log):
        def render(self, state: Any) -> str:
            ended.wait(600)
            return "late"

    memory = make_memory("s", memory_blocks=[Failing(), Hanging(), "whatever"])
    memory.put({"role": "user", "content": "Hello"})
    context = memory.get()
    assert not ended.is_set(), "it was read while one of them hung"
    ended.set()
    assert [message.text for message in context][1:] == ["Hello"]
    assert omissions(context) == [("block_failed", "mentions"), ("block_failed", "log")]
    assert "with what was said" not in str(context.omitted)


@pytest.mark.usefixtures("registered")
def test_what_a_block_shows_is_escaped_and_may_hold_parts(make_memory: MakeMemory) -> None:
    context = make_memory("s", memory_blocks=["pictures"]).get()
    text, image = context[0].to_openai(also=["image_url"])["content"]
    assert text["text"] == "<memory>\n<pictures>\na &lt;map&gt;\n</pictures>\n</memory>"
    assert image == {"type": "image_url", "image_url": {"url": "https://example.org/map"}}


@pytest.mark.usefixtures("registered")
def test_a_block_shortens_what_it_shows_itself(make_memory: MakeMemory, drain: Drain) -> None:
    memory = make_memory(
        "s", memory_blocks=["diary"], token_limit=40, tokenizer_fn=lambda text: len(text.split())
    )
    say(memory, *(f"line {number} & so on" for number in range(8)))
    drain()
    context = memory.get()
    assert omissions(context) == [("block_truncated", "diary")]
    assert "<diary>\nline 7 &amp; so on\n</diary>" in context[0].text


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("tests.support.sample_blocks", "write package.module:Class"),
        ("no_such_package.blocks:Block", r"there is no module named .no_such_package.\..* on PYTHONPATH"),
        ("tests.support.sample_blocks:Nothing", "cannot be imported: .* has no .Nothing."),
        ("tests.support.sample_blocks:POISON", r"has no method initial\(\)"),
        ("tests.pipelines.custom.test_custom_blocks:NotMade", "class of a memory block without arguments"),
        ("tests.pipelines.custom.test_custom_blocks:NoVersion", "NoVersion.version is None"),
        ("tests.pipelines.custom.test_custom_blocks:Taken", "'summary', a name that Strandline reserves"),
        ("tests.pipelines.custom.test_custom_blocks:NoTag", "cannot name a memory block"),
        ("tests.pipelines.custom.test_custom_blocks:NoScope", "scope is 'everyone'"),
        (
            "tests.support.sample_blocks:Log,tests.pipelines.custom.test_custom_blocks:Twice",
            "Two memory blocks are called 'log'",
        ),
    ],
)
def test_a_block_that_cannot_be_used_is_named_at_the_start(listed: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load_blocks(listed)


def test_blocks_of_installed_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "guestbook-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guestbook\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[strandline.blocks]\nmentions = tests.support.sample_blocks:MentionCounter\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    load_blocks.cache_clear()
    assert set(load_blocks("tests.support.sample_blocks:Log, ")) == {"mentions", "log"}
    load_blocks.cache_clear()


class NotMade(MentionCounter):
    def __init__(self, needed: int) -> None:
        super().__init__(str(needed))


class NoVersion(MentionCounter):
    version = None  # type: ignore[assignment]


class Taken(MentionCounter):
    name = "summary"


class NoTag(MentionCounter):
    name = "a b"


class NoScope(MentionCounter):
    scope = "everyone"


class Twice(Log):
    """Has the name of another."""


@pytest.mark.usefixtures("registered")
def test_a_batch_of_slow_folds_keeps_its_lane(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each fold took as long as a lease lasts: no worker takes the lane over before the next one."""
    monkeypatch.setattr(lease, "KEPT_AFTER_SHARE", 0.0)
    say(rig.memory("s", memory_blocks=["log"]), "one", "two", "three")
    (lane,) = due_lanes(rig.url, ["log"])
    others: list[object] = []

    class SlowLog(Log):
        def fold(self, state: list[Any], messages: Any) -> list[Any]:
            others.append(claim(rig.database, lane, other.worker_id, TERMS, 8_000))
            past = "UPDATE strandline.lane SET deadline_at = clock_timestamp() - interval '1 s' RETURNING 1"
            rows_of(rig.url, past)
            return super().fold(state, messages)

    block = BlockDefinition.check(SlowLog(), where="a test")
    stages = FixedStages({"log": CustomStage(block, 10_000, timeout_seconds=60.0)})
    other = HandWorker(rig.database, stages)
    assert HandWorker(rig.database, stages).drain(lane) == "drained"
    assert others == [None, None, None]
    assert state_of(rig.url, "log") == [[1], [2], [3]]
    assert rows_of(rig.url, "SELECT crashes FROM strandline.lane") == [(0,)]
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.batch") == [(1,)], "all in one batch"


@pytest.mark.usefixtures("registered")
def test_a_batch_whose_lane_was_taken_away_folds_no_further(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "KEPT_AFTER_SHARE", 0.0)
    memory = rig.memory("s", memory_blocks=["log"])
    say(memory, "one", "two")
    (lane,) = due_lanes(rig.url, ["log"])
    folded: list[Any] = []

    class Forgotten(Log):
        def fold(self, state: list[Any], messages: Any) -> list[Any]:
            folded.append(messages)
            memory.reset(derived=True)
            return super().fold(state, messages)

    block = BlockDefinition.check(Forgotten(), where="a test")
    stages = FixedStages({"log": CustomStage(block, 10_000, timeout_seconds=60.0)})
    assert HandWorker(rig.database, stages).drain(lane) == "lost"
    assert len(folded) == 1
    assert sound(rig.database)
