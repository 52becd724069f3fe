"""Correcting what was delivered: nothing shows it from then on, and what is left is derived again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from strandline import DeliveredError, Memory
from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import STAGES
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of
from tests.support.fresh_session import derived_of, fresh_copy
from tests.support.messages import assistant, user
from tests.support.servers.model_server import Raw
from tests.support.stored import dead_letters
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import HandWorker

Work = Callable[[], None]


@pytest.fixture
def work(database: Database, database_url: str, model_settings: Settings) -> Work:
    """Do all work that is due."""

    def drained() -> None:
        drain_everything(database, database_url, model_settings)
        assert nothing_due(database_url)

    return drained


def everything_of(memory: Memory, query: str) -> str:
    """All that a read and the searches show, as one text."""
    context = memory.get(query)
    found = memory.search(query, limit=50, scope="owner", kinds=("message", "fact"))
    return "\n".join(
        [str(message) for message in context]
        + [str(hit) for hit in found]
        + [fact.text for fact in memory.facts.list()]
        + [message.text for message in memory.get_all()]
    )


def assert_like_fresh(
    make_memory: MakeMemory, url: str, work: Work, *memories: Memory, **options: object
) -> None:
    """What is derived from a user's sessions is what fresh ones give with the messages as they stand."""
    work()
    copies = fresh_copy(make_memory, memories, **options)
    for memory in memories:
        memory.flush(all=True)
    work()
    for memory, copy in zip(memories, copies, strict=True):
        assert derived_of(url, memory) == derived_of(url, copy)


def assert_sound(database: Database) -> None:
    assert verify(database, deep=True).violations == ()


def conversation(memory: Memory) -> None:
    """Four events, of two messages each."""
    for number in range(1, 5):
        memory.put_messages(
            [user(f"fact number {number} kumquat{number}"), assistant(f"noted papaya{number}")]
        )
        memory.flush(all=True)


@pytest.mark.parametrize("kind", ["rewind", "replace", "pop"])
@pytest.mark.parametrize("is_derived", [False, True])
def test_no_read_shows_what_was_taken_back(rig: Rig, work: Work, kind: str, *, is_derived: bool) -> None:
    memory = rig.memory(user_id="ana")
    conversation(memory)
    if is_derived:
        work()
        assert "kumquat3" in everything_of(memory, "kumquat3")
    gone: tuple[str, ...]
    if kind == "rewind":
        assert memory.rewind(5).seqs == (5, 6, 7, 8)
        gone = ("kumquat3", "papaya3", "kumquat4", "papaya4")
    elif kind == "replace":
        memory.replace(5, "fact number three, in other words")
        gone = ("kumquat3",)
    else:
        popped = memory.pop()
        assert popped is not None
        assert popped.text == "noted papaya4"
        gone = ("papaya4",)
    for word in gone:
        assert word not in everything_of(memory, word)
        for table in ("message", "fact", "fact_revision", "fact_candidate", "chunk", "block_state"):
            for (row,) in rows_of(rig.url, f"SELECT t::text FROM strandline.{table} t"):
                assert word not in row, table
    assert "kumquat1" in everything_of(memory, "kumquat1")
    assert_sound(rig.database)
    memory.put(user("what comes after"))
    assert_like_fresh(rig.memory, rig.url, work, memory)
    for word in gone:
        assert word not in everything_of(memory, word)
    assert_sound(rig.database)


def test_what_is_left_of_an_event_is_in_the_tail(rig: Rig, work: Work) -> None:
    memory = rig.memory(user_id="ana")
    memory.put_messages([user("kumquat"), assistant("papaya"), user("fig"), assistant("plum")])
    memory.flush(all=True)
    work()
    memory.replace(2, "guava")
    assert [message.text for message in memory.get().tail] == ["kumquat", "guava", "fig", "plum"]
    work()
    assert list(memory.get().tail) == []
    assert_sound(rig.database)


def test_the_summary_is_that_of_before_until_the_lane_has_caught_up(rig: Rig, work: Work) -> None:
    memory = rig.memory(user_id="ana")
    conversation_of_events(memory, work, 4)
    memory.replace(3, "event 3, otherwise")
    assert derived_of(rig.url, memory).summary == "event 1 event 2"
    before = rig.model.received
    work()
    assert derived_of(rig.url, memory).summary == "event 1 event 2 event 3, otherwise event 4"
    assert rig.model.received > before, "no stored answer over other words was used"
    assert_sound(rig.database)


def conversation_of_events(memory: Memory, work: Work, events: int) -> None:
    for number in range(1, events + 1):
        memory.put(user(f"event {number}"))
        memory.flush(all=True)
        work()


def test_the_window_moves_back_over_whole_turns(rig: Rig, work: Work) -> None:
    memory = rig.memory(user_id="ana")
    for number in range(1, 4):
        memory.put_messages([user(f"question {number}"), assistant(f"answer {number}")])
    memory.flush(all=True)
    work()
    assert memory.get().window_from == 7
    memory.rewind(4)
    context = memory.get()
    assert context.window_from == 1
    assert [message.text for message in context.window] == ["question 1", "answer 1", "question 2"]
    delivered = rows_of(rig.url, "SELECT from_seq, through_seq FROM strandline.flush_event")
    memory.put(assistant("answer 2, better"))
    memory.flush(all=True)
    assert rows_of(rig.url, "SELECT from_seq, through_seq FROM strandline.flush_event ORDER BY 1") == [
        *delivered,
        (7, 7),
    ]
    assert_like_fresh(rig.memory, rig.url, work, memory)
    assert_sound(rig.database)


def test_a_window_holds_no_more_than_a_flush_leaves(make_memory: MakeMemory, database: Database) -> None:
    memory = make_memory(
        token_limit=1_000, chat_history_token_ratio=0.5, token_flush_size=200, memory_blocks=[]
    )
    for number in range(40):
        memory.put_messages([user(f"question {number} " + "word " * 30), assistant("answer")])
    memory.flush(all=True)
    memory.rewind(61)
    window = memory.get().window
    assert window[0].role == "user"
    assert 250 < sum(message.tokens or 0 for message in window) <= 300
    memory.put(user("more " * 400))
    assert_sound(database)


def test_a_call_and_its_result_come_back_together(make_memory: MakeMemory, database: Database) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    memory = make_memory(memory_blocks=[])
    memory.put_messages(
        [
            user("first"),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            user("second, before the result"),
            {"role": "tool", "content": "found", "tool_call_id": "c1"},
            user("third"),
        ]
    )
    memory.flush(all=True)
    memory.rewind(5)
    assert [message.seq for message in memory.get().window] == [1, 2, 4, 3], "not cut before the result"
    assert_sound(database)


def test_a_head_behind_which_something_was_delivered_stays(rig: Rig) -> None:
    memory = rig.memory(memory_blocks=[])
    memory.put_messages([{"role": "system", "content": "Be brief."}, user("one")])
    memory.flush(all=True)
    with pytest.raises(DeliveredError, match="pinned head"):
        memory.rewind(1)
    memory.rewind(2)
    assert [message.text for message in memory.get_all()] == ["Be brief."]
    assert_sound(rig.database)


def test_other_sessions_of_the_user_keep_their_facts(rig: Rig, work: Work) -> None:
    one, two = (rig.memory(name, user_id="ana") for name in ("one", "two"))
    for memory, text in ((one, "We both have a dog"), (two, "We both have a dog"), (one, "Mine is Otto")):
        memory.put(user(text))
        memory.flush(all=True)
        work()
    one.rewind(1)
    assert [fact.text for fact in two.facts.list()] == ["We both have a dog"]
    one.put(user("Mine is Anna"))
    assert_like_fresh(rig.memory, rig.url, work, one, two)
    assert_sound(rig.database)


def test_context_of_a_later_batch_counts(rig: Rig, work: Work) -> None:
    memory = rig.memory(user_id="ana", memory_blocks=["facts"])
    conversation_of_events(memory, work, 3)
    batches = "SELECT batch_id FROM strandline.batch WHERE stage = 'extract' AND state = 'applied'"
    before = set(rows_of(rig.url, batches))
    memory.replace(2, "event two")
    kept = before & set(rows_of(rig.url, batches))
    assert len(kept) == 1, "that of event 1; event 3 was extracted with event 2 before it"
    work()
    assert sorted(fact.text for fact in memory.facts.list()) == ["event 1", "event 3", "event two"]
    assert_sound(rig.database)


def test_what_a_person_did_holds(make_memory: MakeMemory, database: Database, work: Work) -> None:
    memory = make_memory(user_id="ana")
    memory.put_messages([user("I live in Ghent"), user("I work as a cook"), user("I own a boat")])
    memory.flush(all=True)
    work()
    facts = {fact.text: fact for fact in memory.facts.list()}
    memory.facts.delete(facts["I live in Ghent"].fact_id)
    memory.facts.replace(facts["I work as a cook"].fact_id, "Works as a chef")
    memory.replace(3, "I own a bike")
    work()
    assert sorted(fact.text for fact in memory.facts.list()) == ["I own a bike", "Works as a chef"]
    memory.rewind(1)
    work()
    assert [fact.text for fact in memory.facts.list()] == ["Works as a chef"]
    assert_sound(database)


@pytest.mark.parametrize("point", ["loaded", "applying"])
@pytest.mark.parametrize("kind", ["rewind", "replace"])
def test_a_worker_in_the_middle_of_a_batch_brings_nothing_back(
    rig: Rig, model_settings: Settings, work: Work, point: StopPoint, kind: str
) -> None:
    memory = rig.memory(user_id="ana")
    conversation(memory)
    reached, go_on = Event(), Event()

    def reach(here: StopPoint) -> None:
        if here == point and not reached.is_set():
            reached.set()
            assert go_on.wait(60)

    worker = HandWorker(rig.database, prepare_stages(rig.database, model_settings, STAGES), reach=reach)
    with ThreadPoolExecutor(2) as threads:
        draining = threads.submit(worker.drain_all, rig.url)
        assert reached.wait(60)
        correct = (lambda: memory.rewind(5)) if kind == "rewind" else (lambda: memory.replace(5, "otherwise"))
        correcting = threads.submit(correct)
        if point == "applying":
            go_on.set()  # the correction waits for its transaction
            correcting.result(60)
        else:
            correcting.result(60)
            assert "kumquat3" not in everything_of(memory, "kumquat3")
            go_on.set()
        draining.result(60)
    assert "kumquat3" not in everything_of(memory, "kumquat3")
    assert_like_fresh(rig.memory, rig.url, work, memory)
    assert "kumquat3" not in everything_of(memory, "kumquat3")
    assert_sound(rig.database)


def test_a_flush_that_comes_between_is_corrected_too(rig: Rig, work: Work) -> None:
    memory = rig.memory(user_id="ana")
    for number in range(30):
        memory.put(user(f"kumquat{number}"))
    with ThreadPoolExecutor(2) as threads:
        flushing = threads.submit(memory.flush, all=True)
        correction = memory.rewind(10)
        flushing.result()
    assert len(correction.seqs) == 21
    assert_like_fresh(rig.memory, rig.url, work, memory)
    assert_sound(rig.database)


def test_a_dead_letter_is_tried_again_with_other_words(
    rig: Rig, model_settings: Settings, work: Work
) -> None:
    memory = rig.memory(user_id="ana", memory_blocks=["facts", "summary"])
    memory.put(user("something refused"))
    memory.flush(all=True)
    refusal = Raw(400, b'{"error": {"code": "content_filter"}}')
    rig.model.behave(responder=lambda request: refusal if "refused" in str(request.body) else None)
    drain_everything(rig.database, rig.url, model_settings)
    assert dead_letters(rig.url) == 2
    rig.model.behave()
    memory.replace(1, "something harmless")
    assert dead_letters(rig.url) == 0
    assert_like_fresh(rig.memory, rig.url, work, memory, memory_blocks=["facts", "summary"])
    assert_sound(rig.database)
