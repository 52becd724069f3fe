"""System messages in a read: the prompt in front, the newest one in its place, no memory that came back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import InvalidMessageError, Memory, Message, Retention, StaticMemoryBlock
from strandline.producers.blocks.render import NOTE, Section, render_memory, without_memory
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, Rig, rows_of
from tests.support.providers.shapes import calls, result, says, use, used, user
from tests.support.providers.shapes import text as words
from tests.support.workers.draining import drain_everything

SMALL: dict[str, Any] = {"token_limit": 300, "token_flush_size": 50, "memory_blocks": []}


def system(text: str, role: str = "system") -> dict[str, Any]:
    return {"role": role, "content": text}


def talk(memory: Memory, turns: int) -> None:
    for number in range(turns):
        memory.put({"role": "user", "content": f"Question {number} about boats and harbours in the north."})
        memory.put({"role": "assistant", "content": "An answer with several words in it."})


def instructions(memory: Memory) -> list[str]:
    return [one.text for one in memory.get() if one.role in ("system", "developer")]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("head", [[], [system("PROMPT")]])
def test_the_newest_system_message_is_shown_in_its_place_whatever_was_flushed(
    make_memory: MakeMemory, head: list[dict[str, Any]], role: str
) -> None:
    memory = make_memory(**SMALL)
    memory.put_messages([*head, {"role": "assistant", "content": "Hello!"}])
    before = [one["content"] for one in head]
    talk(memory, 3)
    for number in range(3):
        memory.put(system(f"NOTE {number}", role))
        assert instructions(memory)[-1] == f"NOTE {number}"
        talk(memory, 20)
        context = memory.get()
        assert instructions(memory) == [*before, f"NOTE {number}"]
        seqs = [one.seq or 0 for one in context]
        assert seqs == sorted(seqs) and seqs[len(before)] < context.window_from
        assert context.tokens == sum(one.tokens or 0 for one in context)
        assert [*context.head, *context.tail, *context.window] == list(context)
        assert asyncio.run(as_read(memory)) == [(one.seq, one.content) for one in context]


async def as_read(memory: Memory) -> list[tuple[int | None, Any]]:
    try:
        return [(one.seq, one.content) for one in await memory.aget()]
    finally:
        await memory.aclose()


def test_a_note_in_the_tail_is_shown_once_and_where_it_was_said(rig: Rig) -> None:
    memory = rig.memory(token_limit=600, token_flush_size=50, memory_blocks=["facts", "vectors"])
    memory.put_messages(
        [system("PROMPT"), {"role": "user", "content": "My name is Ida and I live in Bergen."}]
    )
    memory.put(system("NOTE about Bergen"))
    talk(memory, 16)
    context = memory.get("Bergen")
    shown = [one.seq for one in context if one.seq is not None]
    assert shown == sorted(set(shown)) and 3 in shown
    drain_everything(
        rig.database,
        rig.url,
        load_settings(database_url=rig.url, text_backend="local", embedding_backend="local"),
    )
    context = memory.get("What did we note about Bergen?")
    assert [one.text for one in context].count("NOTE about Bergen") == 1
    assert "NOTE about Bergen" not in context[0].text, "what is shown is no hit"


@pytest.mark.parametrize(
    "again", ["PROMPT", "PROMPT\n", [words("PROMPT", cache_control={"type": "ephemeral"})], ""]
)
def test_a_prompt_that_comes_with_each_turn_is_shown_once(make_memory: MakeMemory, again: Any) -> None:
    """In whichever form; and a message without words is no instruction."""
    memory = make_memory(**SMALL)
    memory.put(system("PROMPT"))
    for _ in range(8):
        talk(memory, 2)
        memory.put({"role": "system", "content": again})
    talk(memory, 12)
    assert instructions(memory) == ["PROMPT"]


def test_what_is_taken_back_is_not_shown(make_memory: MakeMemory) -> None:
    memory = make_memory(user_id="ida", **SMALL)
    memory.put(system("PROMPT"))
    talk(memory, 2)
    memory.put(system("OLD NOTE"))
    talk(memory, 12)
    new = memory.put(system("NEW NOTE"))
    talk(memory, 12)
    fork = make_memory(memory.fork(through_seq=new - 1).session_id, user_id="ida", **SMALL)
    assert instructions(fork) == ["PROMPT", "OLD NOTE"]
    memory.rewind(new)
    assert instructions(memory) == ["PROMPT", "OLD NOTE"]
    memory.replace(6, "OTHER NOTE")
    assert instructions(memory) == ["PROMPT", "OTHER NOTE"]
    memory.reset()
    talk(memory, 1)
    assert instructions(memory) == []


@pytest.mark.parametrize(
    "begin", [[system("V1"), system("V1b", "developer")], [{"role": "user", "content": "Hi"}]]
)
def test_a_put_may_replace_the_prompt(make_memory: MakeMemory, begin: list[dict[str, Any]]) -> None:
    memory = make_memory(user_id="ida", **SMALL)
    memory.put_messages(begin)
    was = instructions(memory)
    talk(memory, 2)
    memory.put(system("NOTE"))
    second = memory.put(system("V2"), replace_prompt=True)
    assert instructions(memory) == ["V2", "NOTE"] and memory.get()[0].seq == second
    for rounds in (1, 15):
        talk(memory, rounds)
        context = memory.get()
        assert instructions(memory)[:1] == ["V2"] and context[0].text == "V2"
        assert context.prompt_seq == second and [one.text for one in context.head] == ["V2"]
        assert context.tokens == sum(one.tokens or 0 for one in context)
        assert memory.context_window(100)[0].text == "V2"
    assert instructions(memory) == ["V2"]
    memory.put(system("NOTE 2"))
    talk(memory, 15)
    assert instructions(memory) == ["V2", "NOTE 2"]
    third = memory.put_messages(
        [system("V3", "developer"), {"role": "user", "content": "So?"}], replace_prompt=True
    )[0]
    talk(memory, 15)
    assert instructions(memory) == ["V3"]
    assert {"V2", "NOTE", "V3"} <= {one.text for one in memory.get_all()}, "the log has all of them"
    fork = make_memory(memory.fork(through_seq=third - 1).session_id, user_id="ida", **SMALL)
    assert instructions(fork) == ["V2", "NOTE 2"]
    memory.rewind(third)
    assert instructions(memory) == ["V2", "NOTE 2"]
    memory.rewind(second)
    assert instructions(memory) == [*was, "NOTE"]


def test_repeating_a_put_that_replaces_the_prompt_changes_nothing(rig: Rig) -> None:
    memory = rig.memory(**SMALL)
    memory.put(system("V1"))
    talk(memory, 1)
    message = {**system("V2"), "id": "v2"}
    assert memory.put(message, replace_prompt=True) == memory.put(message, replace_prompt=True) == 4
    for number in range(40):
        asyncio.run(put(memory, system(f"V{number + 3}")))
    assert instructions(memory) == ["V42"]
    ((kept,),) = rows_of(rig.url, "SELECT cardinality(prompts) FROM strandline.session")
    assert kept == 41, "none of them is shown in the window"
    talk(memory, 20)
    memory.put(system("V43"), replace_prompt=True)
    assert instructions(memory) == ["V43"]
    ((kept,),) = rows_of(rig.url, "SELECT cardinality(prompts) FROM strandline.session")
    assert kept == 16


async def put(memory: Memory, message: dict[str, Any]) -> None:
    try:
        await memory.aput(message, replace_prompt=True)
    finally:
        await memory.aclose()


def test_retention_keeps_what_replaced_the_prompt(make_memory: MakeMemory) -> None:
    memory = make_memory(**SMALL)
    memory.put({**system("V1"), "created_at": "2020-01-01T00:00:00Z"})
    memory.put({"role": "user", "content": "Hello.", "created_at": "2020-01-01T00:00:00Z"})
    memory.put({**system("V2"), "created_at": "2020-01-01T00:00:00Z"}, replace_prompt=True)
    memory.put({"role": "user", "content": "Still there?"})
    memory.set_retention(Retention(max_age_seconds=3_600))
    assert [one.text for one in memory.get()] == ["V2", "Still there?"]


@pytest.mark.parametrize("message", [{"role": "user", "content": "V2"}, Message("assistant", "V2")])
def test_only_a_system_message_replaces_the_prompt(make_memory: MakeMemory, message: object) -> None:
    memory = make_memory(**SMALL)
    with pytest.raises(InvalidMessageError, match=r"message\.role: must be system or developer"):
        memory.put(message, replace_prompt=True)
    assert memory.get_all() == []


RULES = StaticMemoryBlock(name="static_memory", static_content="Answer in one sentence.")


def test_memory_that_comes_back_is_not_stored_again(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[RULES], user_id="ida")
    memory.put_messages([system("PROMPT"), {"role": "user", "content": "Hello."}])
    sent = memory.get()
    assert sent[0].text.startswith("PROMPT\n\n<memory>")
    assert memory.put_messages(list(sent)) == [1, 2], "as it was given, with its ids"
    section = sent[0].text.removeprefix("PROMPT\n\n")
    assert memory.put(system(section)) == 0
    parts = [{"type": "text", "text": "PROMPT"}, {"type": "text", "text": section}]
    assert memory.put_messages([{"role": "system", "content": parts}, system(section)]) == [3, 0]
    assert asyncio.run(put_section(memory, section)) == 0
    assert memory.import_messages([system(section)]).added == 0
    run = [system(sent[0].text), {"role": "user", "content": "So?"}]
    assert len(memory.add_run("r", run).seqs) == len(memory.add_run("r", run).seqs) == 2
    assert "<memory>" not in "".join(one.text for one in memory.get_all())
    assert str(memory.get()).count("<memory>") == 1
    memory.set([system(sent[0].text), {"role": "user", "content": "Anew."}])
    assert [one.text for one in memory.get_all()][-2:] == ["PROMPT", "Anew."]


def test_memory_of_blocks_with_names_of_ones_own_is_known_as_well(make_memory: MakeMemory) -> None:
    memory = make_memory(memory_blocks=[StaticMemoryBlock(name="rules", static_content="Be brief.")])
    memory.put_messages([system("PROMPT"), {"role": "user", "content": "Hello."}])
    sent = memory.get()[0].text
    assert "<rules>" in sent
    assert memory.put_messages([system(sent), system(sent.removeprefix("PROMPT\n\n"))]) == [3, 0]
    assert memory.add_run("r", [system(sent), {"role": "user", "content": "So?"}]).seqs
    assert "<rules>" not in "".join(one.text for one in memory.get_all())


def test_a_long_note_is_shown_whole(make_memory: MakeMemory) -> None:
    memory = make_memory(**SMALL)
    note = "words of a long note " * 5_000
    memory.put_messages([{"role": "assistant", "content": "Hello!"}, system(note)])
    talk(memory, 20)
    context = memory.get()
    assert instructions(memory) == [note] and context.over_budget


async def put_section(memory: Memory, section: str) -> int:
    try:
        return await memory.aput(system(section))
    finally:
        await memory.aclose()


@pytest.mark.parametrize(
    "text",
    [
        "Write inside <memory> tags.",
        "<memory>\nbuy milk\n</memory>",
        "<memory>\n<preferences>\ntea\n</preferences>\n</memory>",
        "Say <memory>\n<summary>\nso far\n</summary>\n</memory>",
    ],
)
def test_a_prompt_that_speaks_of_memory_is_stored_as_it_is(make_memory: MakeMemory, text: str) -> None:
    memory = make_memory()
    memory.put(system(text))
    memory.put({"role": "user", "content": f"PROMPT\n\n{render_memory([Section('summary', 'x')])}"})
    assert memory.get_all()[0].text == text
    assert memory.get_all()[1].text.endswith("</memory>"), "of a user's message it is the user's own text"


SECTIONS = st.lists(
    st.builds(Section, st.sampled_from(["summary", "vector_memory", "own"]), st.text("ab \n&;"))
).map(lambda sections: [*sections, Section("facts", "x")])


@given(
    text=st.text("ab \n<memory>/"),
    sections=SECTIONS,
    end=st.sampled_from(["", "\n", " \n", "\n\nToday is Monday.", "\nToday is\n  Monday."]),
    line_break=st.sampled_from(["\n", "\r\n"]),
)
def test_what_a_read_appends_is_what_is_taken_away(
    text: str, sections: list[Section], end: str, line_break: str
) -> None:
    text = text.rstrip("\n")
    memory = render_memory(sections)
    kept = "\n\n".join(one for one in (text, end.strip()) if one)
    back = f"{text}\n\n{memory}{end}" if text else memory + end
    assert without_memory(back.replace("\n", line_break)).replace("\r\n", "\n") == kept


@pytest.mark.parametrize("insert", ["system", "user"])
@pytest.mark.parametrize(
    "log",
    [
        [user("a"), calls("c"), user("b")],
        [user("a"), says(use("c")), user([used("c")]), says("x"), user("b")],
        [says(use("c")), user([used("c")]), says("x")],
        [user("a"), says("Let me see.", tool_calls=calls("c")["tool_calls"]), user("b"), says("x")],
        [user("a"), calls("c", "c"), result("c", "1"), result("c", "2"), says("x"), user("b")],
        [user("a"), calls("c", "d"), user("b"), result("d"), result("c"), says("x"), calls("e"), user("f")],
        [user("a"), says(use("c"), use("d")), user([used("d"), words("b")]), says("x")],
    ],
)
def test_a_read_that_is_put_back_adds_nothing(
    make_memory: MakeMemory, log: list[dict[str, Any]], insert: str
) -> None:
    memory = make_memory(user_id="ida", insert_method=insert)
    memory.facts.add("Ana is allergic to peanuts.")
    memory.put_messages(log)
    stored = memory.get_all()
    memory.put_messages(list(memory.get("What am I allergic to?")))
    assert memory.get_all() == stored
    other = make_memory(user_id="ida", insert_method=insert)
    other.put_messages(memory.get("What am I allergic to?").to_openai())
    assert "peanuts" not in str(other.get_all()) and NOTE not in str(other.get_all())
    other = make_memory(user_id="ida", insert_method=insert)
    other.put_messages(list(memory.get("What am I allergic to?")))
    assert other.get_all()[-1].text == stored[-1].text
