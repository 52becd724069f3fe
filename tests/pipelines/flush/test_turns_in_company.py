"""Delivered turns wait a moment for others: one extraction and one summary for several turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from strandline import Memory
from strandline.administration.status import read_status
from strandline.cli.explain import command as explain_command
from strandline.cli.flush import command as flush_command
from strandline.pipelines.inspect.explain_message import explain
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import STAGES, Lane
from strandline.schemas.wire.explanations import MessageExplanation
from strandline.wiring.assembly import background_runner, prepare_stages
from strandline.workers.in_process import BackgroundRunner
from strandline.workers.sweep import Sweep
from strandline.workers.worker import Worker
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer
from tests.support.servers.service_server import RunningService
from tests.support.stored import live_facts
from tests.support.workers.draining import drain_everything, due_lanes

MOVED = "UPDATE strandline.due SET ready_at = ready_at + {0}, created_at = created_at + {0} RETURNING 1"
LONG = 600.0


@pytest.fixture
def settings(database_url: str, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("OPENAI_BASE_URL", model_server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    monkeypatch.setenv("STRANDLINE_TURN_DELAY_SECONDS", str(LONG))
    return load_settings(database_url=database_url)


@pytest.fixture
def runner(database: Database, settings: Settings) -> Iterator[BackgroundRunner]:
    running = background_runner(database, settings)
    running.start()
    yield running
    running.stop()


def talk(memory: Memory, turns: int, first: int = 0) -> int:
    """So many turns; the number of the last message."""
    seqs = [0]
    for number in range(first, first + turns):
        memory.put({"role": "user", "content": f"I like thing {number}."})
        seqs = [memory.put({"role": "assistant", "content": f"Thing {number} it is."})]
    return seqs[-1]


def turning(make_memory: MakeMemory, name: str = "s", **options: Any) -> Memory:
    return make_memory(name, deliver="turn", memory_blocks=["facts", "summary"], **options)


def calls(model_server: ModelServer) -> Counter[str]:
    sections = ("<candidates>", "<summary_so_far>", "<transcript>")
    prompts = [str(request.body.get("messages", "")) for request in model_server.requests]
    return Counter(next((name for name in sections if name in prompt), "other") for prompt in prompts)


def pass_time(url: str) -> None:
    assert rows_of(url, MOVED.format("interval '-1 hour'"))


def facts(url: str) -> int:
    count = live_facts(url)
    return int(count)


def test_twenty_turns_cost_one_extraction_and_one_summary(rig: Rig) -> None:
    talk(turning(rig.memory), 20)
    assert rows_of(rig.url, "SELECT count(*), min(cause) FROM strandline.flush_event") == [(20, "turn")]
    drain_everything(rig.database, rig.url, rig.settings)
    assert rig.model.requests == [] and len(due_lanes(rig.url)) == 2
    pass_time(rig.url)
    drain_everything(rig.database, rig.url, rig.settings)
    assert calls(rig.model) == {"<transcript>": 1, "<candidates>": 1, "<summary_so_far>": 1}
    assert facts(rig.url) == 20 and nothing_due(rig.url)
    assert verify(rig.database, deep=True).violations == ()


def test_without_a_delay_a_turn_is_taken_up_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_TURN_DELAY_SECONDS", "0")
    talk(turning(rig.memory), 1)
    drain_everything(rig.database, rig.url, rig.settings)
    assert facts(rig.url) == 1


def test_what_another_flush_makes_due_takes_the_turns_with_it(rig: Rig) -> None:
    memory = turning(rig.memory)
    talk(memory, 3)
    memory.put({"role": "user", "content": "And I like the sea."})
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, rig.settings)
    assert calls(rig.model)["<transcript>"] == 1 and facts(rig.url) == 4
    assert verify(rig.database, deep=True).violations == ()


@pytest.mark.parametrize("end", ["flush", "flush all", "deliver", "summarize", "wait", "await"])
def test_whoever_waits_ends_the_delay(rig: Rig, runner: BackgroundRunner, end: str) -> None:
    """The memory rings the runner of its process; the sweep would take hours."""
    memory = turning(rig.memory, consume="background")
    seq = talk(memory, 3)
    ways: dict[str, Callable[[], Any]] = {
        "flush": memory.flush,
        "flush all": lambda: memory.flush(all=True),
        "deliver": memory.deliver,
        "summarize": lambda: memory.summarize(wait=60),
        "wait": lambda: memory.get(wait_for=seq, timeout=60),
        "await": lambda: asyncio.run(_get(memory, seq)),
    }
    result = ways[end]()
    if end in ("wait", "await"):
        assert result.caught_up
    wait_until(lambda: nothing_due(rig.url), timeout=20, what="the turns")
    assert facts(rig.url) == 3


async def _get(memory: Memory, seq: int) -> Any:
    try:
        return await memory.aget(wait_for=seq, timeout=60)
    finally:
        await memory.aclose()


def test_a_wait_over_http_ends_the_delay(database_url: str, runner: BackgroundRunner) -> None:
    messages = [{"role": "user", "content": "I like boats."}, {"role": "assistant", "content": "So be it."}]
    body = {"messages": messages, "policy": {"deliver": "turn", "blocks": ["facts"]}}
    with RunningService(database_url) as service, service.client(service.make_key(), user="ana") as client:
        assert client.post("/v1/sessions/s/messages", json=body).status_code < 300
        assert rows_of(database_url, "SELECT count(*) FROM strandline.due WHERE ready_at > now()") == [(1,)]
        prefer = {"Prefer": "wait=25"}
        answer = client.post("/v1/sessions/s/context", json={"wait_for": 2}, headers=prefer)
    assert answer.json()["caught_up"] and facts(database_url) == 1


def test_a_wait_for_what_is_said_later_ends_the_delay_as_well(rig: Rig, runner: BackgroundRunner) -> None:
    memory = turning(rig.memory, consume="background")
    seq = talk(memory, 1)

    async def wait_and_say() -> Any:
        reading = asyncio.create_task(memory.aget(wait_for=seq + 2, timeout=60))
        await asyncio.sleep(0)
        await memory.aput({"role": "user", "content": "I like later things."})
        await memory.aput({"role": "assistant", "content": "So be it."})
        try:
            return await reading
        finally:
            await memory.aclose()

    assert asyncio.run(wait_and_say()).caught_up


def test_the_sweep_rings_when_the_time_has_come(rig: Rig) -> None:
    talk(turning(rig.memory), 2)
    rung: list[Lane] = []
    sweep = Sweep(
        rig.database,
        ring=rung.extend,
        take_over=lambda _lanes: None,
        stages=list(STAGES),
        batch_size=10,
        dead_after_seconds=5,
    )
    sweep.tick()
    assert rung == []
    assert rows_of(rig.url, "UPDATE strandline.due SET ring_at = now() - interval '1 s' RETURNING 1")
    pass_time(rig.url)
    sweep.tick()
    assert {lane.stage for lane in rung} == {"extract", "summary"}


def test_a_clock_that_steps_back_holds_no_turn(rig: Rig) -> None:
    talk(turning(rig.memory), 2)
    assert rows_of(rig.url, MOVED.format("interval '1 day'"))
    drain_everything(rig.database, rig.url, rig.settings)
    assert facts(rig.url) == 2


def test_a_turn_that_comes_while_others_are_derived_waits_its_time(rig: Rig) -> None:
    memory = turning(rig.memory)
    talk(memory, 2)
    pass_time(rig.url)
    said: list[int] = []

    def say_more(point: str) -> None:
        if point == "called" and not said:
            said.append(talk(memory, 1, first=10))

    worker = Worker(
        rig.database,
        prepare_stages(rig.database, rig.settings, STAGES),
        rig.settings,
        ring=lambda _lanes: None,
        with_sweep=False,
        reach=say_more,
    )
    worker.start()
    try:
        for lane in due_lanes(rig.url):
            worker.drain(lane)
        assert calls(rig.model)["<transcript>"] == 1
        assert rows_of(rig.url, "SELECT count(*) FROM strandline.lane WHERE holder IS NOT NULL") == [(0,)]
        assert [lane.stage for lane in due_lanes(rig.url)] == ["extract"], "the summary came after it"
        pass_time(rig.url)
        for lane in due_lanes(rig.url):
            worker.drain(lane)
    finally:
        worker.stop()
    assert nothing_due(rig.url) and facts(rig.url) == 3
    assert verify(rig.database, deep=True).violations == ()


class Died(BaseException):
    """The end of a process."""


@hypothesis_settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(points=st.lists(st.sampled_from(["loaded", "called", "stored", "applying", "applied"]), max_size=3))
def test_workers_that_die_lose_and_double_nothing(rig: Rig, points: list[str]) -> None:
    memory = turning(rig.memory, f"s{len(rows_of(rig.url, 'SELECT 1 FROM strandline.session'))}")
    before = facts(rig.url)
    for number, point in enumerate([*points, ""]):
        talk(memory, 2, first=before + 2 * number)
        pass_time(rig.url)

        def die(reached: str, at: str = point) -> None:
            if reached == at:
                raise Died

        worker = Worker(
            rig.database,
            prepare_stages(rig.database, rig.settings, STAGES),
            rig.settings,
            ring=lambda _lanes: None,
            with_sweep=False,
            reach=die,
        )
        worker.start()
        for lane in due_lanes(rig.url):
            with suppress(Died):
                worker.drain(lane)
        worker.stop()
    if not nothing_due(rig.url):
        pass_time(rig.url)
    drain_everything(rig.database, rig.url, rig.settings)
    assert nothing_due(rig.url)
    assert facts(rig.url) == before + 2 * (len(points) + 1)
    assert verify(rig.database, deep=True).violations == ()


def explained(database: Database, url: str) -> MessageExplanation:
    ((name,),) = rows_of(url, "SELECT id FROM strandline.message WHERE seq = 1")
    explanation = explain(database, name, session_id="s")
    assert isinstance(explanation, MessageExplanation)
    return explanation


@pytest.mark.parametrize("blocks", [["facts"], ["summary"], ["facts", "summary"]], ids=str)
def test_explain_says_what_a_turn_waits_for(rig: Rig, blocks: list[str]) -> None:
    memory = rig.memory("s", deliver="turn", memory_blocks=blocks)
    talk(memory, 1)
    ((until,),) = rows_of(rig.url, "SELECT DISTINCT ready_at FROM strandline.due")
    told = explained(rig.database, rig.url)
    waiting = [trace for trace in told.stages if trace.state == "due"]
    assert waiting and {trace.ready_at for trace in waiting} == {until}
    (sentence,) = [one for one in told.why if "share" in one]
    assert f"{until.astimezone(UTC):%H:%M:%S} UTC" in sentence
    assert all(way in sentence for way in ("flush", "deliver", "wait_for"))
    assert not [one for one in told.why if "no worker has taken it up" in one]
    pass_time(rig.url)
    told = explained(rig.database, rig.url)
    assert not [one for one in told.why if "share" in one] and not any(t.ready_at for t in told.stages)
    memory.put({"role": "user", "content": "One more."})
    memory.put({"role": "assistant", "content": "Yes."})
    memory.flush()
    assert not [one for one in explained(rig.database, rig.url).why if "share" in one]


def test_the_command_says_how_to_end_the_wait_and_that_ends_it(rig: Rig) -> None:
    talk(turning(rig.memory), 1)
    ((name,),) = rows_of(rig.url, "SELECT id FROM strandline.message WHERE seq = 1")
    target = ["--database-url", rig.url]
    shown = CliRunner().invoke(explain_command, [name, *target])
    assert shown.exit_code == 0, shown.output
    assert "extract: due since" in shown.output and "waits for others until" in shown.output
    assert "next: `strandline flush s` ends the wait for others" in shown.output
    assert "strandline status" not in shown.output
    assert CliRunner().invoke(flush_command, ["s", *target]).exit_code == 0
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.due WHERE ready_at IS NOT NULL") == [(0,)]


def test_a_turn_that_waits_for_others_is_not_late(rig: Rig) -> None:
    talk(turning(rig.memory), 2)
    assert rows_of(rig.url, MOVED.format("interval '-500 s'"))  # it waits 100 s more
    assert {one.lag_seconds for one in read_status(rig.database, rig.settings).pipelines} == {0.0}
    assert rows_of(rig.url, MOVED.format("interval '-200 s'"))  # and did so 100 s ago
    late = {one.name: one.lag_seconds for one in read_status(rig.database, rig.settings).pipelines}
    assert {name: 100 <= seconds < 700 for name, seconds in late.items() if seconds} == {
        "facts": True,
        "summary": True,
    }
