"""The overflow handler gets each flush event at least once, and whatever it does nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline import ConfigurationError, RefusalError, UnknownPipelineError, overflow_window
from strandline.cli.entry import run
from strandline.pipelines.engine.dead_letters import list_dead_letters, retry_dead_letter
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.overflow.contract import load_handler
from strandline.pipelines.own_code.bounded_calls import worker_calls
from strandline.pipelines.replay.estimate import estimate
from strandline.pipelines.replay.in_place import begin_in_place, replay_in_place
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.pipelines.replay.records import Selection
from strandline.schemas.errors import ProviderDownError
from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import OVERFLOW, OVERFLOW_STAGE
from strandline.wiring.assembly import prepare_stages, stage_names
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support import sample_hooks
from tests.support.sample_hooks import Handler
from tests.support.workers.draining import drain_everything, due_lanes
from tests.support.workers.hand_worker import HandWorker

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PLACES = "tests.support.sample_hooks"
STAGES = (OVERFLOW_STAGE,)


@pytest.fixture(autouse=True)
def _fresh_handler() -> Iterator[None]:
    Handler.seen.clear()
    Handler.failing = None
    sample_hooks.letting_go.clear()
    yield
    sample_hooks.letting_go.set()
    wait_until(lambda: worker_calls.late == 0, timeout=30, what="what hung to end")


@pytest.fixture
def settings(database_url: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """With the handler, whose worker has started once."""
    monkeypatch.setenv("STRANDLINE_ON_OVERFLOW", f"{PLACES}:handler")
    loaded = load_settings(database_url=database_url)
    prepare_stages(database, loaded, STAGES)
    return loaded


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    plain = load_settings(database_url=database_url)
    opened = Database.connect(ConnectionOptions.from_settings(database_url, plain))
    yield opened
    opened.close()


def said(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"Message {number}"}


def handed_over() -> list[list[str]]:
    return [[message.text for message in event.messages] for event in Handler.seen]


def test_a_worker_process_hands_each_event_over_and_waits_while_the_store_is_down(
    rig: Rig, tmp_path: Path
) -> None:
    file, down = tmp_path / "archive.jsonl", tmp_path / "archive.down"
    environment = {
        "STRANDLINE_ON_OVERFLOW": f"{PLACES}:writing_handler",
        "OVERFLOW_FILE": str(file),
        "PYTHONPATH": str(ROOT),
        "STRANDLINE_SWEEP_INTERVAL_SECONDS": "0.2",
        "STRANDLINE_RETRY_MAX_SECONDS": "1",
    }
    down.touch()
    first = rig.start_worker("--queues", "overflow", **environment)
    memory = rig.memory("s", user_id="ana", memory_blocks=[], on_overflow=True, **overflow_window(10))
    memory.put_messages([said(number) for number in range(25)])
    wait_until(
        lambda: "store is down" in str(rows_of(rig.url, "SELECT last_error FROM strandline.lane")),
        timeout=30,
        what="the first attempt",
    )
    first.kill()
    assert not file.exists() and not nothing_due(rig.url)
    down.unlink()
    rig.start_worker(**environment)
    wait_until(lambda: nothing_due(rig.url), timeout=60, what="everything to be handed over")
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    texts = [text for line in lines for text in line["texts"]]
    assert texts == [f"Message {number}" for number in range(len(texts))] and len(texts) >= 15
    assert {(line["session"], line["user"], line["namespace"]) for line in lines} == {("s", "ana", "default")}
    assert {line["cause"] for line in lines} == {"threshold"}
    assert len({line["event"] for line in lines}) == len(lines)
    assert list_dead_letters(rig.database) == [] and verify(rig.database, deep=True).violations == ()


def test_the_newest_share_stays_and_what_leaves_is_handed_over(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[], on_overflow=True, **overflow_window(10, keep=0.8))
    for number in range(11):
        memory.put(said(number))
    drain_everything(rig.database, rig.url, rig.settings, STAGES)
    assert handed_over() == [["Message 0", "Message 1"]]
    assert [message.text for message in memory.get()] == [f"Message {number}" for number in range(2, 11)]
    (event,) = Handler.seen
    assert (event.session_id, event.user_id, event.namespace) == ("s", None, "default")
    assert (event.cause, event.from_seq, event.through_seq) == ("threshold", 1, 2)
    assert event.messages[0].seq == 1 and event.flushed_at.tzinfo is not None


def test_sessions_that_did_not_ask_have_no_work_and_reads_never_wait(rig: Rig) -> None:
    asking = rig.memory("a", memory_blocks=["vectors"], on_overflow=True)
    silent = rig.memory("b", memory_blocks=["vectors"])
    for memory in (asking, silent):
        memory.put(said(1))
        memory.put({"role": "assistant", "content": "All right."})
        memory.flush(all=True)
    due = "SELECT s.session_id, count(*) FROM strandline.due d JOIN strandline.session s USING (session_key)"
    assert rows_of(rig.url, f"{due} WHERE stage = 'overflow' GROUP BY 1") == [("a", 1)]
    drain_everything(rig.database, rig.url, rig.settings, ("vectors",))
    context = asking.get(wait_for=1, timeout=0.1)
    assert context.caught_up and list(context) == [], "what waits for the handler is no part of the tail"


def test_a_handler_that_raises_is_called_again_and_then_its_event_is_a_dead_letter(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[], on_overflow=True)
    memory.put({"role": "user", "content": "a secret"})
    memory.flush(all=True)
    Handler.failing = ValueError("a secret")
    worker = HandWorker(rig.database, prepare_stages(rig.database, rig.settings, STAGES))
    (lane,) = due_lanes(rig.url, STAGES)
    outcomes: list[str] = []

    def is_dead() -> bool:
        outcomes.append(worker.drain(lane))
        return bool(list_dead_letters(rig.database))

    wait_until(is_dead, timeout=30, what="the event to be given up")
    assert outcomes.count("postponed") == worker.retry.max_failures == len(Handler.seen)
    assert {event.event_id for event in Handler.seen} == {Handler.seen[0].event_id}
    (letter,) = list_dead_letters(rig.database)
    assert "raised ValueError at sample_hooks.py" in letter.reason and "secret" not in letter.reason
    assert letter.pipeline == OVERFLOW and [m.text for m in memory.get_all()] == ["a secret"]
    Handler.failing = None
    assert retry_dead_letter(rig.database, letter).outcome == "due"
    drain_everything(rig.database, rig.url, rig.settings, STAGES)
    assert handed_over()[-1] == ["a secret"] and nothing_due(rig.url)


def test_a_refusal_is_a_dead_letter_at_once_and_a_store_that_is_down_counts_nothing(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[], on_overflow=True)
    memory.put(said(1))
    memory.flush(all=True)
    worker = HandWorker(rig.database, prepare_stages(rig.database, rig.settings, STAGES))
    (lane,) = due_lanes(rig.url, STAGES)
    Handler.failing = ProviderDownError("The store is away.")
    for _turn in range(3 * worker.retry.max_failures):
        wait_until(lambda: worker.drain(lane) == "postponed", timeout=30, what="its turn")
    assert list_dead_letters(rig.database) == []
    Handler.failing = RefusalError("Messages of this namespace are not archived.")
    wait_until(lambda: worker.drain(lane) == "drained", timeout=30, what="its turn")
    (letter,) = list_dead_letters(rig.database)
    assert letter.reason.endswith("refused the event: Messages of this namespace are not archived.")


def test_a_handler_that_hangs_is_given_up_on_and_its_event_stays_due(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[], on_overflow=True)
    memory.put(said(1))
    memory.flush(all=True)
    hanging = rig.settings.model_copy(
        update={"on_overflow": f"{PLACES}:hanging_handler", "block_timeout_seconds": 0.2}
    )
    worker = HandWorker(rig.database, prepare_stages(rig.database, hanging, STAGES))
    (lane,) = due_lanes(rig.url, STAGES)
    assert worker.drain(lane) == "postponed" and worker_calls.late == 1
    assert not nothing_due(rig.url) and list_dead_letters(rig.database) == []
    ((told,),) = rows_of(rig.url, "SELECT last_error FROM strandline.lane WHERE stage = 'overflow'")
    assert "did not return within 0.2 seconds" in told


def test_an_async_handler_is_awaited(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[], on_overflow=True)
    memory.put(said(1))
    memory.flush(all=True)
    awaiting = rig.settings.model_copy(update={"on_overflow": f"{PLACES}:async_handler"})
    drain_everything(rig.database, rig.url, awaiting, STAGES)
    assert handed_over() == [["Message 1"]]


def test_a_replay_hands_over_what_never_was_and_all_of_it_only_as_a_new_generation(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[])
    memory.put(said(1))
    memory.flush(all=True)
    memory.set_policy(on_overflow=True)
    memory.put(said(2))
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings, STAGES)
    assert handed_over() == [["Message 2"]]
    assert estimate(rig.database, OVERFLOW, Selection(), rig.settings, new=True).events == 2
    assert handed_over() == [["Message 2"]], "an estimate hands nothing over"
    counts = replay_in_place(rig.database, begin_in_place(rig.database, OVERFLOW, Selection()), rig.settings)
    assert counts.made_due == 1
    drain_everything(rig.database, rig.url, rig.settings, STAGES)
    assert handed_over() == [["Message 2"], ["Message 1"]]
    again = replay_in_place(rig.database, begin_in_place(rig.database, OVERFLOW, Selection()), rig.settings)
    assert again.made_due == 0 and len(Handler.seen) == 2
    runner = BackgroundRunner(rig.database, prepare_stages(rig.database, rig.settings, STAGES), rig.settings)
    runner.start()
    replay = begin_generation(rig.database, OVERFLOW, rig.settings, force=True)
    assert derive_generation(rig.database, replay).phase == "done"
    runner.stop(10)
    assert sorted(handed_over()[2:]) == [["Message 1"], ["Message 2"]]
    assert verify(rig.database, deep=True).violations == ()


def test_a_replay_of_everything_calls_no_handler(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = rig.memory("s", memory_blocks=[])
    memory.put(said(1))
    memory.flush(all=True)
    memory.set_policy(on_overflow=True)
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", rig.url)
    for arguments in (["replay"], ["replay", "--new", "--force", "--dry-run"]):
        assert run([*arguments, "--json"]) == 0
        assert "overflow" not in capsys.readouterr().out
    assert nothing_due(rig.url) and Handler.seen == []
    assert run(["replay", "--pipeline", "overflow", "--new", "--force", "--dry-run", "--json"]) == 0
    assert "overflow" in capsys.readouterr().out and Handler.seen == []


def test_what_was_taken_back_is_not_handed_over_and_a_corrected_event_is_again(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=[], on_overflow=True)
    memory.put_messages([said(1), said(2)])
    memory.flush(all=True)
    memory.rewind(1)
    drain_everything(rig.database, rig.url, rig.settings, STAGES)
    assert handed_over() == [] and nothing_due(rig.url)
    seq = memory.put(said(3))
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings, STAGES)
    memory.replace(seq, "Message three")
    drain_everything(rig.database, rig.url, rig.settings, STAGES)
    assert handed_over() == [["Message 3"], ["Message three"]]
    assert Handler.seen[0].event_id == Handler.seen[1].event_id
    memory.put(said(4))
    memory.flush(all=True)
    memory.reset()
    drain_everything(rig.database, rig.url, rig.settings, STAGES)
    assert len(Handler.seen) == 2, "what was reset is void"


def test_the_policy_says_which_sessions_feed_it(rig: Rig) -> None:
    memory = rig.memory("s", memory_blocks=["facts"], on_overflow=True)
    memory.put(said(1))
    assert memory.set_policy(memory_blocks=["vectors"]).pipelines == ("overflow", "vectors")
    assert memory.set_policy(on_overflow=False).pipelines == ("vectors",)
    assert memory.set_policy(token_limit=20_000).pipelines == ("vectors",)
    assert memory.set_policy(on_overflow=True).pipelines == ("overflow", "vectors")
    assert memory.set_policy(memory_blocks=[]).pipelines == ("overflow",)
    with pytest.raises(ConfigurationError, match="on_overflow"):
        memory.set_policy(on_overflow="yes")  # type: ignore[arg-type]


def test_without_a_worker_that_has_a_handler_a_put_says_so(make_memory: MakeMemory) -> None:
    with pytest.raises(UnknownPipelineError, match="No worker has registered overflow"):
        make_memory("s", memory_blocks=[], on_overflow=True).put(said(1))


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("nobody", "no installed package has an entry point"),
        ("no.module:handler", "no module named .no"),
        (f"{PLACES}:CANARY", "is not an overflow handler"),
        (f"{PLACES}:Handler", "is not an overflow handler"),
    ],
)
def test_a_handler_that_does_not_exist_is_named_when_a_worker_starts(named: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        stage_names(load_settings(on_overflow=named))


def test_an_installed_package_may_name_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert OVERFLOW_STAGE not in stage_names(load_settings())
    info = tmp_path / "own_handler-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: own-handler\nVersion: 1.0\n", encoding="utf-8"
    )
    lines = f"[strandline.handlers]\non_overflow = {PLACES}:handler\n"
    (info / "entry_points.txt").write_text(lines, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_handler.cache_clear()
    assert OVERFLOW_STAGE in stage_names(load_settings())
    load_handler.cache_clear()


@pytest.mark.parametrize(("keep", "flushed"), [(0.8, 20), (0.5, 50), (0.999, 1)])
def test_the_share_that_stays_says_how_many_leave_together(keep: float, flushed: int) -> None:
    assert overflow_window(100, keep) == {"max_window_messages": 100, "message_flush_size": flushed}


@pytest.mark.parametrize("arguments", [(0,), (10, 0), (10, 1), (10, 1.5), ("10",), (10, True)])
def test_a_window_that_cannot_be_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError):
        overflow_window(*arguments)
