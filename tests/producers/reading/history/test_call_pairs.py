"""Calls and results as providers take them: over drawn logs, in every provider's form, and by example."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.producers.reading.call_pairs import (
    NOTE,
    Settled,
    begins_with_user,
    is_settled,
    settled,
    wants_user_first,
)
from strandline.producers.reading.context import MemoryContext
from strandline.schemas.values.message import Message
from tests.support.providers.drawn_logs import FORMS, STEPS, Step, many_logs, messages_of, openai
from tests.support.providers.rules import (
    anthropic_problems,
    as_anthropic,
    as_gemini,
    as_responses,
    chat_problems,
    gemini_problems,
    responses_problems,
)

LOGS = st.lists(STEPS, max_size=24)


def log_of(steps: Sequence[Step], form: str) -> list[Message]:
    messages = [one for number, step in enumerate(steps) for one in messages_of(step, FORMS[form], number)]
    return [replace(message, seq=seq, tokens=1) for seq, message in enumerate(messages, start=1)]


def native_problems(form: str, messages: Sequence[Message]) -> list[str]:
    """Of messages as a caller hands them to the provider in whose form they are."""
    chat = [message for message in messages if message.role != "system"]
    match form:
        case "anthropic":
            turned = [{"role": one.role, "content": one.content} for one in begins_with_user(chat)]
            return anthropic_problems(turned, may_wait=True)
        case "gemini":
            contents = [
                {
                    "role": "user" if one.role == "user" else "model",
                    "parts": [{"text": one.content}] if isinstance(one.content, str) else one.content,
                }
                for one in begins_with_user(chat)
            ]
            return gemini_problems(contents, may_wait=True)
        case "responses":
            items: list[Any] = []
            for one in chat:
                if one.content is None or isinstance(one.content, str) or not (one.calls or one.answers):
                    items.append({"role": one.role, "content": one.content})
                else:
                    items.extend(one.content)
            return responses_problems(items, may_wait=True)
        case _:
            return []


def context_of(messages: Sequence[Message]) -> MemoryContext:
    return MemoryContext(tuple(messages), {}, True, (), 0, False)


def sent_problems(context: MemoryContext) -> list[str]:
    """Of what a read gives to be sent, in the form of every provider."""
    chat = context.to_openai()
    begun = replace(context, messages=context.beginning_with_user()).to_openai()
    return [
        *chat_problems(chat),
        *responses_problems(as_responses(chat)),
        *anthropic_problems(as_anthropic(begun)),
        *gemini_problems(as_gemini(begun)),
    ]


@pytest.mark.parametrize("form", FORMS)
@many_logs
@given(steps=LOGS)
def test_every_provider_takes_what_is_left_of_any_log(form: str, steps: list[Step]) -> None:
    log = log_of(steps, form)
    shown = settled(log)
    assert native_problems(form, shown) == []
    assert sent_problems(context_of(shown)) == []
    assert chat_problems([one for m in shown for one in m.openai_forms()], may_wait=True) == []


@many_logs
@given(steps=LOGS, form=st.sampled_from(list(FORMS)), with_notes=st.booleans(), to_send=st.booleans())
def test_only_calls_and_results_are_touched_and_each_is_named(
    steps: list[Step], form: str, with_notes: bool, to_send: bool
) -> None:
    log = log_of(steps, form)
    found = Settled(log, to_send=to_send, with_notes=with_notes)
    assert len(found.groups) == len(log)
    again = Settled(found.messages, to_send=to_send, with_notes=with_notes)
    assert again.messages == found.messages and not again.changes
    texts = [text for one in found.messages if one.role != "tool" for text in words(one)]
    said = [text for one in log if one.role != "tool" for text in words(one)]
    kinds: dict[str, Counter[str]] = {}
    for change in found.changes:
        kinds.setdefault(change.kind, Counter())[change.call_id] += 1
    left_out = kinds.get("call_left_out", Counter())
    assert sorted(said) == sorted(texts)
    if not left_out and "result_moved" not in kinds and "result_left_out" not in kinds:
        assert [one for one in found.messages if one.content != NOTE] == log
    calls = Counter(one for message in log for one in message.calls)
    assert Counter(one for message in found.messages for one in message.calls) == calls - left_out
    noted = kinds.get("result_added", Counter())
    results = Counter(one for message in log for one in message.answers) + noted
    left_out_results = kinds.get("result_left_out", Counter())
    assert Counter(one for m in found.messages for one in m.answers) == results - left_out_results
    assert with_notes or not noted
    assert not noted or len({change.seq for change in found.changes if change.kind == "result_added"}) == 1


def words(message: Message) -> list[str]:
    return [line for line in message.text.split("\n") if line.startswith("m")]


@given(steps=LOGS, form=st.sampled_from(list(FORMS)))
def test_a_log_in_order_is_shown_as_it_is(steps: list[Step], form: str) -> None:
    whole = [step for step in steps if step[0] not in ("call", "result")]
    log = log_of(whole, form)
    assert is_settled(log, to_send=True)
    assert settled(log, to_send=True) is log


def U(text: str) -> Message:
    return Message("user", text)


def A(text: str) -> Message:
    return Message("assistant", text)


def S(text: str) -> Message:
    return Message("system", text)


def C(*ids: str) -> Message:
    return openai("call", ids, "")


def T(call_id: str, text: str = "r") -> Message:
    return openai("result", [call_id], text)


def seen(messages: Sequence[Message], **how: bool) -> list[str]:
    found = Settled(messages, **how).messages
    return [one.text or "+".join(one.calls) for one in found]


def test_a_late_result_is_shown_with_its_call() -> None:
    assert seen([U("a"), C("c1"), U("b"), A("B"), T("c1", "late"), A("A")]) == [
        "a",
        "c1",
        "late",
        "b",
        "B",
        "A",
    ]


def test_the_newest_call_without_a_result_is_answered_by_a_note_and_older_ones_are_left_out() -> None:
    assert seen([U("a"), C("c1"), U("b"), C("c2"), U("c")]) == ["a", "b", "c2", NOTE, "c"]
    assert seen([U("a"), C("c1"), U("b"), A("B"), U("c")]) == ["a", "b", "B", "c"]
    parallel = [U("a"), C("c1", "c2"), T("c2", "two"), A("B")]
    assert seen(parallel) == ["a", "c2", "two", "B"]


def test_a_call_at_the_end_waits_for_its_result_unless_it_is_sent() -> None:
    log = [U("a"), C("c1", "c2"), T("c1", "one")]
    assert settled(log) is log
    assert seen(log, to_send=True) == ["a", "c1+c2", "one", NOTE]


def test_an_id_that_is_used_again_belongs_to_the_newest_call_that_waits() -> None:
    log = [
        U("a"),
        C("call_1"),
        U("b"),
        C("call_1"),
        T("call_1", "new"),
        T("call_1", "old"),
        T("call_1", "more"),
    ]
    assert seen(log) == ["a", "call_1", "old", "b", "call_1", "new"]


def test_results_in_parts_become_one_message_and_what_stands_beside_them_stays() -> None:
    use: list[Any] = [{"type": "tool_use", "id": one, "name": "f", "input": {}} for one in ("a", "b")]
    one = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    two = {"type": "tool_result", "tool_use_id": "b", "content": "2"}
    said = {"type": "text", "text": "go on"}
    log = [Message("assistant", use), Message("user", [said, one]), Message("user", [two])]
    shown = settled(log)
    assert [message.content for message in shown] == [use, [one, two], [said]]
    assert wants_user_first(shown)


def test_calls_in_two_spellings_of_one_message_are_one_call() -> None:
    """LangChain gives Anthropic's parts beside its own calls."""
    listed = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    call = Message(
        "assistant", [{"type": "tool_use", "id": "a", "name": "f", "input": {}}], tool_calls=[listed]
    )
    assert call.calls == ("a",)
    assert settled([U("q"), call, T("a")]) == [U("q"), call, T("a")]
    assert seen([U("q"), call, U("r"), A("B")]) == ["q", "r", "B"]
    assert [one["role"] for one in context_of([U("q"), call, T("a")]).to_openai()] == [
        "user",
        "assistant",
        "tool",
    ]


def test_what_a_provider_runs_by_itself_waits_for_nobody() -> None:
    parts: list[Any] = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []},
        {"type": "tool-call", "toolCallId": "p1", "toolName": "f", "input": {}, "providerExecuted": True},
        {"type": "tool-result", "toolCallId": "p1", "toolName": "f", "output": {"type": "json", "value": 1}},
    ]
    message = Message("assistant", parts)
    assert (message.calls, message.answers) == ((), ())
    log = [U("q"), message, U("r")]
    assert settled(log) is log


def test_a_greeting_stays_and_a_users_line_stands_before_it_where_that_is_asked_for() -> None:
    log = [S("s"), A("Hello!"), U("q")]
    assert [one.role for one in begins_with_user(log)] == ["system", "user", "assistant", "user"]
    assert [one["role"] for one in context_of(log).to_openai()] == ["system", "assistant", "user"]
    assert begins_with_user([S("s")]) == (S("s"),)
