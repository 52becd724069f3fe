"""Reads of logs as frameworks make them, drawn, in a database: every provider takes them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from strandline import Memory
from strandline.producers.reading import read
from strandline.producers.reading.call_pairs import settled
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.errors import ConflictError, DeliveredError, NotFoundError
from strandline.schemas.values.message import Message
from tests.conftest import MakeMemory, Rig, rows_of
from tests.producers.reading.history.test_history import native_problems, sent_problems
from tests.support.providers.adapted import adapted_problems
from tests.support.providers.drawn_logs import FORMS, LOGS, STEPS, Step, messages_of, openai
from tests.support.providers.rules import chat_problems
from tests.support.servers.databases import ENCRYPTION, SEAL_ALL, TEST_KEYS
from tests.support.workers.draining import drain_everything

ACTS = st.tuples(
    st.sampled_from(("flush", "flush all", "pop", "rewind", "fork", "edit", "idle", "read")),
    st.just(()),
)
LIMITS = st.fixed_dictionaries(
    {
        "token_limit": st.sampled_from((120, 400, 4_000)),
        "token_flush_size": st.sampled_from((15, 50, 100)),
        "chat_history_token_ratio": st.sampled_from((0.5, 0.7, 1.0)),
        "max_window_messages": st.sampled_from((4, 9, 2_000)),
        "max_window_bytes": st.sampled_from((400, 1_200, 1_000_000)),
        "deliver": st.sampled_from(("window", "turn")),
    }
)


@dataclass
class Log:
    """A session under whatever is drawn."""

    make: MakeMemory
    form: str
    limits: dict[str, Any]
    number: int = 0
    is_odd: bool = False
    memory: Memory = field(init=False)

    def __post_init__(self) -> None:
        self.memory = self.open(None)

    def open(self, session: str | None) -> Memory:
        return self.make(session, user_id="ana", memory_blocks=[], **self.limits)

    def do(self, step: Step) -> None:
        self.number += 1
        self.is_odd |= step[0] == "odd"
        seqs = [message.seq or 0 for message in self.memory.get_all()]
        at = seqs[self.number * 7 % len(seqs)] if seqs else 1
        match step[0]:
            case "flush":
                self.memory.flush()
            case "flush all":
                self.memory.flush(all=True)
            case "idle":
                self.memory.deliver()
            case "pop":
                self.memory.pop()
            case "reset":
                self.memory.reset()
            case "rewind":
                self.rewind(at)
            case "fork" if seqs:
                self.memory = self.open(self.memory.fork(through_seq=at).session_id)
            case "edit" if seqs:
                self.edit(at)
            case "read" | "fork" | "edit":
                pass
            case _:
                forms = list(FORMS.values())
                form = FORMS.get(self.form, forms[self.number % len(forms)])
                self.memory.put_messages(messages_of(step, form, self.number))

    def rewind(self, at: int) -> None:
        with suppress(ConflictError, DeliveredError, NotFoundError):
            self.memory.rewind(at)

    def edit(self, at: int) -> None:
        (message,) = [one for one in self.memory.get_all() if one.seq == at]
        if isinstance(message.content, str):
            self.memory.replace(at, f"{message.content} edited")

    def check(self) -> None:
        context = self.memory.get()
        if not self.is_odd:
            assert native_problems(self.form, context.messages) == []
        assert sent_problems(context) == []
        assert adapted_problems(context) == []
        self.check_pairs(context)
        for room in (60, 200):
            window = self.memory.context_window(room)
            assert settled(window) == window
            assert sent_problems(replace(context, messages=tuple(window))) == []
            assert adapted_problems(window) == []
            if not self.is_odd:
                assert native_problems(self.form, window) == []
        small = self.memory.get(initial_token_count=self.limits["token_limit"] - 40)
        assert sent_problems(small) == []

    def check_pairs(self, context: MemoryContext) -> None:
        """What is not shown of the window is named, and the question of an open turn is there."""
        log = self.memory.get_all()
        shown = {one.seq for one in context}
        named = {one.from_seq for one in context.omitted}
        window = [one.seq for one in log if one.seq is not None and one.seq >= context.window_from]
        assert {seq for seq in window if seq not in shown} <= named
        people = [at for at, one in enumerate(log) if speaks(one)]
        behind = log[people[-1] :] if people else []
        if behind and not any(one.role == "assistant" and not one.calls for one in behind):
            assert behind[0].text in [one.text for one in context] or "question_cut" in kinds(context)


def kinds(context: MemoryContext) -> set[str]:
    return {one.kind for one in context.omitted}


@settings(
    max_examples=max(20, LOGS // 6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(st.one_of(STEPS, STEPS, STEPS, ACTS), max_size=16),
    form=st.sampled_from([*FORMS, "openai", "openai", "mixed"]),
    limits=LIMITS,
)
@example(
    steps=[("user", ()), ("result", ("a",)), ("flush all", ())],
    form="anthropic",
    limits={"token_limit": 120, "token_flush_size": 15, "max_window_messages": 4},
)
def test_every_read_is_taken_by_every_provider(
    make_memory: MakeMemory, steps: list[Step], form: str, limits: dict[str, Any]
) -> None:
    log = Log(make_memory, form, limits)
    for step in steps:
        log.do(step)
        if step[0] == "read":
            log.check()
    log.check()


@pytest.mark.parametrize("answered", [0, 1, 19])
def test_notes_of_dead_calls_take_no_more_than_the_room(make_memory: MakeMemory, answered: int) -> None:
    memory = make_memory(memory_blocks=[], token_limit=2_000, token_flush_size=300)
    memory.put({"role": "user", "content": "Watch the harbour."})
    for number in range(12):
        ids = [f"{number}-{one}" for one in range(20)]
        results = [openai("result", [one], "boats " * 40) for one in ids[:answered]]
        memory.put_messages([openai("call", ids, ""), *results])
        context = memory.get()
        assert context.tokens <= 2_000 and sent_problems(context) == []


def test_notes_of_dead_calls_take_no_more_than_the_room_of_one_read(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[], token_limit=2_000)
    calls = openai("call", [str(number) for number in range(40)], "")
    memory.put_messages([{"role": "user", "content": "hi"}, calls, openai("result", ["0"], "boats")])
    memory.put({"role": "assistant", "content": "It is calm."})
    assert memory.get().tokens > 600, "with notes"
    context = memory.get(initial_token_count=1_400)
    assert context.tokens <= 600 and sent_problems(context) == []


def marks_of(memory: Memory, url: str) -> tuple[Any, ...]:
    """The session's key, window, corrections and question."""
    fields = "session_key, window_from, corrections, question_seqs"
    (row,) = rows_of(url, f"SELECT {fields} FROM strandline.session WHERE session_id = %s", memory.session_id)
    return row


def open_question(log: Sequence[Message], window_from: int) -> list[int]:
    """The rule of question_v1, said again over the whole log."""
    before = [one for one in log if (one.seq or 0) < window_from]
    first = next((one for one in log if (one.seq or 0) >= window_from), None)
    answers = [one.seq or 0 for one in before if one.role == "assistant" and not one.calls]
    asked = [one.seq or 0 for one in before if speaks(one)]
    ends = (
        answers[-1:] == [before[-1].seq] if first is None and before else first is not None and speaks(first)
    )
    if not asked or (ends and answers and answers[-1] > asked[-1]):
        return []
    since = max((seq for seq in answers if seq < asked[-1]), default=0)
    return [seq for seq in asked if seq > since][-8:]


def speaks(message: Message) -> bool:
    return message.is_new_turn or message.is_more_than_results


@settings(
    max_examples=max(40, LOGS // 6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(st.one_of(STEPS, STEPS, ACTS, st.just(("reset", ()))), max_size=24),
    form=st.sampled_from(["openai", "anthropic", "mixed"]),
    limits=LIMITS,
)
@example(
    steps=[*[("user", ())] * 4, ("fork", ())],
    form="openai",
    limits={"token_limit": 120, "token_flush_size": 15, "max_window_messages": 4},
)
def test_whatever_moves_the_window_keeps_the_question_of_its_turn(
    make_memory: MakeMemory, database_url: str, steps: list[Step], form: str, limits: dict[str, Any]
) -> None:
    log = Log(make_memory, form, limits)
    log.memory.put({"role": "user", "content": "m0"})
    known = marks_of(log.memory, database_url)
    for step in steps:
        log.do(step)
        marks = marks_of(log.memory, database_url)
        messages = log.memory.get_all()
        is_empty = not messages or (messages[-1].seq or 0) < marks[1]
        if is_empty or (marks[:3] != known[:3] and step[0] != "edit"):
            assert (marks[3] or []) == open_question(messages, marks[1])
        else:
            assert marks[3] == known[3]
        known = marks


def put_turn(memory: Memory, question: str, steps: int) -> None:
    memory.put({"role": "user", "content": question})
    for number in range(steps):
        memory.put_messages(messages_of(("answered", (f"k{number}",)), openai, number))


@pytest.mark.parametrize("limits", [{"token_limit": 300, "token_flush_size": 40}, {"max_window_messages": 5}])
def test_the_question_of_a_turn_stays_while_its_tools_run(
    make_memory: MakeMemory, limits: dict[str, Any]
) -> None:
    memory = make_memory(memory_blocks=[], **limits)
    put_turn(memory, "earlier?", 1)
    memory.put({"role": "assistant", "content": "done"})
    put_turn(memory, "Which berth is cheaper?", 30)
    context = memory.get()
    assert context.window_from > 4
    assert (context[0].role, context[0].text) == ("user", "Which berth is cheaper?")
    assert context[0] in context.tail, "it has left the window"
    assert context.tokens == sum(one.tokens or 0 for one in context) <= context.token_limit
    assert memory.get().messages == context.messages
    memory.put({"role": "assistant", "content": "Bergen."})
    memory.put({"role": "user", "content": "Thanks!"})
    memory.flush()
    assert [one.text for one in memory.get()] == ["Thanks!"]


def test_a_question_without_room_is_shown_by_its_beginning_and_its_end(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[], token_limit=400, token_flush_size=40)
    put_turn(memory, f"BEGIN {'words and words ' * 200} END", 12)
    context = memory.get()
    assert "BEGIN" in context[0].text and "END" in context[0].text and "[…]" in context[0].text
    assert [one.kind for one in context.omitted] == ["question_cut"]
    assert context.tokens <= 400


def test_an_agent_by_itself_stays_within_its_limits_at_each_step(
    make_memory: MakeMemory,
) -> None:
    memory = make_memory(
        memory_blocks=[], token_limit=600, token_flush_size=80, max_window_messages=20, deliver="turn"
    )
    memory.put({"role": "user", "content": "Watch the harbour and report every hour."})
    for number in range(1_000):
        kind = ("call", "answered", "answer", "result", "system")[number * 7 % 11 % 5]
        memory.put_messages(messages_of((kind, (f"k{number - number % 3}",)), openai, number))
        context = memory.get()
        assert context.tokens <= 600
        assert len(context.window) <= 20
        assert "Watch the harbour" in context[0].text
        assert chat_problems(context.to_openai()) == []


LATE = {
    "one call": [("call", ("c1",)), ("result", ("c1",))],
    "a call beside answered ones": [("call", ("c1", "c2", "c3")), ("result", ("c2",)), ("result", ("c1",))],
    "calls of two messages": [("call", ("c1",)), ("call", ("c2",)), ("result", ("c1",)), ("result", ("c2",))],
}


@pytest.fixture
def encrypted(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written from now on is encrypted."""
    monkeypatch.setenv("STRANDLINE_KEYRING_KEYS", TEST_KEYS)
    if not ENCRYPTION:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(SEAL_ALL.encode())


def put_and_leave(memory: Memory, form: str, steps: list[Step]) -> None:
    """Put a turn, and then as much as makes it leave the window."""
    memory.put({"role": "user", "content": "Delete it."})
    for number, step in enumerate(steps):
        memory.put_messages(messages_of(step, FORMS[form], number))
    for number in range(12):
        memory.put({"role": "user", "content": f"And {number}, which of the berths in the harbour are free?"})
        memory.put(
            {
                "role": "assistant",
                "content": f"So {number}, as the clerk of the harbour says, and he knows all berths.",
            }
        )


@pytest.mark.parametrize("steps", LATE.values(), ids=LATE)
@pytest.mark.parametrize("form", FORMS)
def test_a_late_result_finds_its_call_that_has_left(
    make_memory: MakeMemory, form: str, steps: list[Step]
) -> None:
    memory = make_memory(memory_blocks=[], max_window_messages=4)
    *before, late = steps
    put_and_leave(memory, form, before)
    memory.put_messages(messages_of(late, FORMS[form], 9))
    context = memory.get()
    shown = [one for message in context for one in message.answers]
    assert shown.count(late[1][0]) == (0 if form == "server" else 1)
    assert "result_left_out" not in kinds(context) or form == "server"
    assert native_problems(form, context.messages) == sent_problems(context) == []
    assert memory.get().messages == context.messages
    room = sum(one.tokens or 0 for one in memory.get_all()[-25:])
    newest = memory.context_window(room)
    answered = [one for message in newest for one in message.answers]
    assert answered.count(late[1][0]) == shown.count(late[1][0])
    memory.put_messages(messages_of(late, FORMS[form], 10))
    again = memory.get()
    assert [one for message in again for one in message.answers] == shown, "a second result brings nothing"


@pytest.mark.usefixtures("encrypted")
def test_a_late_result_finds_its_call_in_an_encrypted_log(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[], max_window_messages=4)
    put_and_leave(memory, "openai", [("call", ("c1",))])
    memory.put_messages(messages_of(("result", ("c1",)), openai, 9))
    context = memory.get()
    assert [call for one in context for call in one.calls] == ["c1"]
    assert sent_problems(context) == []


def test_a_late_result_before_the_window_brings_nothing_back(rig: Rig) -> None:
    """Not covered yet, it is of the tail, in front of whatever would come back."""
    memory = rig.memory(memory_blocks=["facts"], max_window_messages=4)
    put_and_leave(memory, "openai", [("call", ("c1",))])
    drain_everything(rig.database, rig.url, rig.settings)
    memory.put_messages(messages_of(("result", ("c1",)), openai, 9))
    for number in range(4):
        memory.put({"role": "user", "content": f"Later {number}?"})
        memory.put({"role": "assistant", "content": f"So later {number}."})
    context = memory.get()
    assert kinds(context) == {"result_left_out"}
    assert not any(one.calls or one.answers for one in context)
    assert sent_problems(context) == []


@pytest.mark.parametrize("is_derived", [False, True], ids=["with a tail", "all derived"])
def test_what_stands_before_the_window_is_in_the_order_of_the_log(rig: Rig, is_derived: bool) -> None:
    memory = rig.memory(memory_blocks=["facts"], max_window_messages=4)
    put_and_leave(memory, "openai", [("call", ("c1",))])
    drain_everything(rig.database, rig.url, rig.settings)
    question = memory.put({"role": "user", "content": "Which berth is cheaper?"})
    for number in range(3):
        memory.put_messages(messages_of(("answered", (f"b{number}",)), openai, 30 + number))
    memory.put_messages(messages_of(("result", ("c1",)), openai, 40))
    if is_derived:
        drain_everything(rig.database, rig.url, rig.settings)
    context = memory.get()
    begins = [one.seq or 0 for one in context if not one.answers]
    assert begins == sorted(begins)
    assert question in begins
    assert "c1" in [call for one in context for call in one.calls]
    assert sent_problems(context) == []


def test_a_call_that_never_was_is_looked_for_once(
    make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = make_memory(memory_blocks=[])
    memory.put({"role": "user", "content": "Delete it."})
    memory.put_messages(messages_of(("result", ("never",)), openai, 1))
    first = memory.get()
    monkeypatch.setattr(read, "recall", None)
    assert memory.get().messages == first.messages
    memory.put({"role": "user", "content": "Well?"})
    assert memory.get()[-1].text == "Well?"


QUESTIONS = {
    "two messages": [("user", ()), ("user", ())],
    "more while tools run": [("user", ()), *[("answered", ("k",))] * 4, ("user", ())],
    "beside a result": [("user", ()), ("call", ("z",)), ("result", ("z",))],
}


@pytest.mark.parametrize("form", ["openai", "anthropic"])
@pytest.mark.parametrize("asked", QUESTIONS.values(), ids=QUESTIONS)
def test_all_messages_of_an_open_turns_user_stay(
    make_memory: MakeMemory, form: str, asked: list[Step]
) -> None:
    memory = make_memory(memory_blocks=[], max_window_messages=5)
    put_turn(memory, "earlier?", 1)
    memory.put({"role": "assistant", "content": "done"})
    for number, step in enumerate(asked, 1):
        memory.put_messages(messages_of(step, FORMS[form], number))
    said = [one.text for one in memory.get_all()[4:] if one.role == "user" and one.text]
    for number in range(9):
        memory.put_messages(messages_of(("answered", (f"k{number}",)), FORMS[form], 20))
        context = memory.get()
        texts = [one.text for one in context if one.role == "user"]
        assert [one for one in said if one not in texts] == []
        assert sent_problems(context) == []
    memory.put({"role": "assistant", "content": "done"})
    memory.put({"role": "user", "content": "Thanks!"})
    memory.flush()
    assert [one.text for one in memory.get()] == ["Thanks!"]


def test_pop_takes_a_call_with_its_results_and_rewind_refuses_to_part_them(make_memory: MakeMemory) -> None:
    memory = make_memory(user_id="ana", memory_blocks=[])
    memory.put({"role": "user", "content": "q"})
    memory.put_messages(messages_of(("answered", ("a", "b")), openai, 1))
    with pytest.raises(ConflictError, match=r"message 2 would lose its result; .* Rewind to 2, or to what"):
        memory.rewind(4)
    assert len(memory.get_all()) == 4
    fork = memory.fork(through_seq=2)
    assert (fork.through_seq, fork.messages) == (4, 4)
    popped = memory.pop()
    assert popped is not None and popped.answers == ("b",)
    assert [one.text for one in memory.get_all()] == ["q"]
    memory.put_messages(messages_of(("answered", ("c",)), openai, 2))
    memory.deliver()
    assert memory.pop() is not None
    assert [one.text for one in memory.get_all()] == ["q"]


def test_a_rewind_is_known_again_whatever_follows_it(make_memory: MakeMemory) -> None:
    memory = make_memory(user_id="ana", memory_blocks=[])
    memory.put_messages(messages_of(("answered", ("a",)), openai, 1))
    seq = memory.put({"role": "assistant", "content": "done"})
    first = memory.rewind(seq, idempotency_key="once")
    memory.put_messages(messages_of(("result", ("a",)), openai, 1))
    assert memory.rewind(seq, idempotency_key="once") == first
