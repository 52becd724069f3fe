"""The hook before storing: on every way in, before the digest; nothing is stored that it did not see."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline import (
    ConfigurationError,
    ConflictError,
    Facts,
    InvalidMessageError,
    Memory,
    Message,
    RedactionError,
)
from strandline.cli.doctor.checks import check_settings
from strandline.pipelines.own_code.bounded_calls import BoundedCalls
from strandline.pipelines.redaction.hook import Redaction, RedactionHook, load_hooks
from strandline.pipelines.redaction.json_texts import visit_message, visit_object
from strandline.producers.facts.edit_operations import Wording
from strandline.producers.facts.importing import ImportedFact
from strandline.producers.redacting import put_calls
from strandline.producers.writing.validate import PutLimits, PutRules
from strandline.schemas.settings import load_settings
from tests.conftest import MakeMemory, Rig, rows_of, wait_until
from tests.support import sample_hooks
from tests.support.sample_hooks import CANARY
from tests.support.stored import stored_messages

HOOKS = "tests.support.sample_hooks"
SAID = {"role": "user", "content": f"Write to {CANARY}."}
LIMITS = PutLimits(1_000_000, 16_384)

SetHook = Callable[[str], None]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> SetHook:
    return lambda named: monkeypatch.setenv("STRANDLINE_REDACT_BEFORE_STORING", named)


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    sample_hooks.letting_go.clear()
    yield
    sample_hooks.letting_go.set()
    wait_until(lambda: put_calls.late == 0, timeout=30, what="what hung to end")


def everything(database_url: str) -> str:
    """All that any table holds, as text."""
    names = rows_of(
        database_url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'strandline'"
    )
    return "\n".join(
        str(row)
        for (name,) in names
        for row in rows_of(database_url, f"SELECT t::text FROM strandline.{name} t")
    )


def full_message() -> dict[str, Any]:
    """A canary in every field that a person or a model writes."""
    return {
        "role": "assistant",
        "name": f"Ana {CANARY}",
        "content": [
            {"type": "text", "text": f"I wrote to {CANARY}"},
            {"type": "image_url", "image_url": {"url": f"https://example.org/?to={CANARY}"}},
            {
                "type": "file",
                "file": {"file_data": f"data:text/plain;base64,{CANARY}", "filename": f"{CANARY}.txt"},
            },
        ],
        "tool_calls": [
            {
                "id": "call-1",
                "type": "function",
                "function": {"name": "send", "arguments": json.dumps({"to": [CANARY], CANARY: 1, "n": 4})},
            },
            {
                "id": "call-2",
                "type": "function",
                "function": {"name": "say", "arguments": f"not JSON {CANARY}"},
            },
            {"id": "call-3", "type": "custom", "custom": {"name": "note", "input": f"for {CANARY}"}},
        ],
        "metadata": {"from": CANARY, CANARY: {"deep": [CANARY, 7]}},
        "reasoning_content": f"They want {CANARY}",
    }


def test_every_field_is_redacted_and_what_holds_a_message_together_stays(
    make_memory: MakeMemory, hook: SetHook
) -> None:
    hook(f"{HOOKS}:hide")
    memory = make_memory("s", memory_blocks=[])
    memory.put({**full_message(), "id": "m-1"})
    (stored,) = memory.get_all()
    expected = json.loads(json.dumps(full_message()).replace(CANARY, "[hidden]"))
    expected["content"][2]["file"]["filename"] = "[hidden]"
    assert stored.to_dict() | {"metadata": dict(stored.metadata)} == expected
    assert (stored.id, stored.role) == ("m-1", "assistant")


def test_nothing_reaches_a_table_unredacted_on_any_way_in(rig: Rig, hook: SetHook) -> None:
    hook(f"{HOOKS}:hide")
    memory = rig.memory("s", user_id="ana")
    memory.put(SAID)
    memory.put_messages([SAID, {"role": "assistant", "content": f"{CANARY}?"}])
    seq = memory.put({"role": "user", "content": "plain"})
    memory.replace(seq, f"Now {CANARY}", idempotency_key="k")
    memory.replace(seq, f"Now {CANARY}", idempotency_key="k")
    memory.add_run("r", [{"role": "system", "content": f"Ask {CANARY}"}, SAID])
    memory.add_run(
        "r", [{"role": "system", "content": f"Ask {CANARY}"}, SAID, {**SAID, "content": f"{CANARY}!"}]
    )
    memory.facts.create_from([SAID], key="form")
    memory.facts.instruct(f"forget {CANARY}")
    fact = memory.facts.add(f"Ana is {CANARY}", topics=[CANARY], input=f"she said {CANARY}")
    assert (fact.text, fact.topics) == ("Ana is [hidden]", ("[hidden]",))
    memory.facts.replace(fact.fact_id, f"Ana was {CANARY}", topics=[CANARY])
    memory.facts.feedback(fact.fact_id, f"not {CANARY}")
    memory.facts.import_facts(
        [ImportedFact(uuid4(), Wording.check(f"old {CANARY}"), "import", feedback=CANARY)]
    )
    assert "id" in str(memory.call_tool("add_memory", {"text": f"Tool: {CANARY}"}))
    rig.memory("set", memory_blocks=[]).set([SAID])
    rig.memory("imported", memory_blocks=[]).import_messages([{**SAID, "id": "1"}])
    asyncio.run(_in_tasks(rig.memory("tasks", user_id="ben")))
    assert "canary" not in everything(rig.url)
    # Read by the methods for it, since what is stored may be encrypted.
    memories = (memory, rig.memory("set"), rig.memory("imported"))
    told = [str(message) for one in memories for message in one.get_all()]
    told += [fact.text for fact in memory.facts.list()]
    assert all("[hidden]" in text for text in told) and len(told) > 8


async def _in_tasks(memory: Memory) -> None:
    await memory.aput(SAID)
    await asyncio.gather(*(memory.aput_messages([{**SAID, "content": f"{n} {CANARY}"}]) for n in range(3)))
    await memory.aset([SAID])
    await memory.areplace(5, f"again {CANARY}")
    await memory.aadd_run("r", [SAID])
    await memory.facts.acreate_from([SAID])
    fact = await memory.facts.aadd(f"Ben is {CANARY}")
    await memory.facts.areplace(fact.fact_id, f"Ben was {CANARY}")
    await memory.facts.afeedback(fact.fact_id, CANARY)
    await memory.acall_tool("add_memory", {"text": f"Tool: {CANARY}"})
    await memory.aclose()


def test_a_put_that_is_repeated_is_the_same_put(rig: Rig, hook: SetHook) -> None:
    hook(f"{HOOKS}:hide")
    memory = rig.memory("s", memory_blocks=[])
    said = {**SAID, "id": "m-1", "metadata": {"to": CANARY}}
    assert memory.put(said) == memory.put(said) == asyncio.run(_put_closing(memory, said)) == 1
    assert memory.add_run("r", [SAID]).seqs == memory.add_run("r", [SAID]).seqs
    memory.facts  # noqa: B018  # a session without a user has facts of its own
    assert stored_messages(rig.url) == 2
    with pytest.raises(ConflictError):
        memory.put({**said, "content": "something else"})


async def _put_closing(memory: Memory, message: object) -> int:
    seq = await memory.aput(message)
    await memory.aclose()
    return seq


def test_a_hook_that_is_not_deterministic_is_told_by_a_conflict_and_doubles_nothing(
    rig: Rig, hook: SetHook
) -> None:
    hook(f"{HOOKS}:numbering")
    memory = rig.memory("s", memory_blocks=[])
    memory.put({**SAID, "id": "m-1"})
    with pytest.raises(ConflictError, match="m-1"):
        memory.put({**SAID, "id": "m-1"})
    assert stored_messages(rig.url) == 1


def test_what_stood_behind_a_run_is_not_redacted_twice(make_memory: MakeMemory, hook: SetHook) -> None:
    hook(f"{HOOKS}:numbering")
    memory = make_memory("s", memory_blocks=[])
    memory.add_run("r", [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])
    memory.put({"role": "user", "content": "behind"})
    before = memory.get_all()[-1].text
    memory.add_run("r", [{"role": "user", "content": "other"}])
    assert memory.get_all()[-1].text == before


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("failing", "raised ValueError at sample_hooks.py"),
        ("returning_nothing", "returned NoneType"),
        ("hanging", "did not return within 0.2 seconds"),
    ],
)
def test_a_hook_that_fails_refuses_the_put_and_nothing_is_stored(
    rig: Rig, hook: SetHook, monkeypatch: pytest.MonkeyPatch, named: str, problem: str
) -> None:
    hook(f"{HOOKS}:{named}")
    monkeypatch.setenv("STRANDLINE_REDACT_TIMEOUT_SECONDS", "0.2")
    memory = rig.memory("s", user_id="ana", memory_blocks=[])
    for attempt in (
        lambda: memory.put(SAID),
        lambda: memory.put_messages([SAID, SAID]),
        lambda: memory.facts.add(f"is {CANARY}"),
        lambda: memory.add_run("r", [SAID]),
        lambda: memory.set([SAID]),
        lambda: asyncio.run(_put_closing(memory, SAID)),
    ):
        with pytest.raises(RedactionError, match=problem) as told:
            attempt()
        assert CANARY not in str(told.value) and "was not stored" in str(told.value)
    assert stored_messages(rig.url) == 0
    assert rows_of(rig.url, "SELECT count(*) FROM strandline.fact_event") == [(0,)]


def test_a_refusal_names_the_message_and_the_hooks_reason(make_memory: MakeMemory, hook: SetHook) -> None:
    hook(f"{HOOKS}:Refusing")
    memory = make_memory("s", user_id="ana", memory_blocks=[])
    secret = {"role": "user", "content": "the secret"}
    with pytest.raises(InvalidMessageError, match=r"messages\[1\]: was refused .* it tells a secret") as told:
        memory.put_messages([{"role": "user", "content": "plain"}, secret])
    assert told.value.field == "messages[1]"
    seq = memory.put({"role": "user", "content": "plain"})
    with pytest.raises(InvalidMessageError, match="content: was refused"):
        memory.replace(seq, "the secret")
    answer = memory.call_tool("add_memory", {"text": "the secret"})
    assert answer["error"] == "invalid_arguments" and "tells a secret" in answer["message"]
    assert [message.text for message in memory.get_all()] == ["plain"]


def test_in_a_transaction_of_the_callers_a_hook_that_fails_leaves_it_usable(rig: Rig, hook: SetHook) -> None:
    hook(f"{HOOKS}:failing")
    memory = rig.memory("s", memory_blocks=[])
    with psycopg.connect(rig.url) as connection:
        with pytest.raises(RedactionError):
            memory.put(SAID, connection=connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_memorys_own_hook_comes_after_those_of_the_settings(
    make_memory: MakeMemory, hook: SetHook
) -> None:
    hook(f"contacts, {HOOKS}:Marked")
    seen: list[str] = []

    def last(text: str) -> str:
        seen.append(text)
        return text.upper()

    memory = make_memory("s", memory_blocks=[], redact=last)
    memory.put({"role": "user", "content": f"secret: {CANARY}"})
    memory.get_scope("inner").put({"role": "user", "content": "secret"})
    assert seen == ["[redacted]: [email]", "[redacted]"]
    assert memory.get_all()[0].text == "[REDACTED]: [EMAIL]"


def test_facts_of_an_owner_go_through_the_hook_of_the_settings(hook: SetHook, database_url: str) -> None:
    hook("contacts")
    facts = Facts.for_owner(user_id="ana", database_url=database_url)
    assert facts.add(f"Ana's address is {CANARY}").text == "Ana's address is [email]"
    facts.close()


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ("nobody", "there is no such redaction hook"),
        ("no.module:hook", "no module named .no"),
        (f"{HOOKS}:absent", "has no .absent."),
        (f"{HOOKS}:CANARY", "cannot be called"),
        (f"{HOOKS}:async_handler", "is async"),
    ],
)
def test_a_hook_that_does_not_exist_is_named_before_anything_is_put(
    make_memory: MakeMemory, hook: SetHook, named: str, problem: str
) -> None:
    hook(named)
    with pytest.raises(ConfigurationError, match=problem):
        make_memory("s")


@pytest.mark.parametrize("setting", ["redact_before_storing", "redact_before_models", "on_overflow"])
def test_the_doctor_names_a_hook_or_handler_that_does_not_exist(setting: str) -> None:
    checks = list(check_settings(load_settings(**{setting: "nobody"}), {}, {}))
    assert [check.result for check in checks] == ["problem"]
    assert "nobody" in checks[0].found and setting.upper() in checks[0].found


def test_entry_points_of_installed_packages_are_found_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    info = tmp_path / "own_hooks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-hooks\nVersion: 1.0\n", encoding="utf-8")
    lines = "[strandline.redactors]\nhouse = tests.support.sample_hooks:Marked\n"
    (info / "entry_points.txt").write_text(lines, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    load_hooks.cache_clear()
    (hook,) = load_hooks("house", "SETTING")
    assert (hook.name, hook.version) == ("house-rules", "7")


def test_without_a_hook_no_code_for_hooks_runs(
    make_memory: MakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One comparison is all that it costs."""

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("strandline.producers.writing.validate.PutRules.redact", fail)
    monkeypatch.setattr("strandline.producers.operations.writing._put_checked", fail)
    memory = make_memory("s", memory_blocks=[])
    assert memory.put(SAID) == 1


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


@given(_JSON)
def test_what_a_hook_leaves_is_left_and_what_it_changes_is_changed_everywhere(value: Any) -> None:
    assert visit_object(value, lambda text: text) == value
    assert visit_message({"content": value, "extra": {"x": value}}, lambda text: text) == {
        "content": value,
        "extra": {"x": value},
    }
    changed = visit_object(value, lambda text: "z" * len(text))
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    visit_object(changed, note)
    # A key that has become like another one has a number behind it.
    assert all(re.fullmatch("z*(?: [0-9]+)?", text) for text in texts)


# What a part, a call or a further field may be named, beside what nobody knows.
_KEYS = st.sampled_from(
    ["data", "detail", "id", "file_id", "format", "signature", "type", "source", "file", "text", "mail me@x"]
)
# None of them is a name, or data in base64.
_SAID = st.builds(
    "{}{}".format,
    st.sampled_from(["data: ", "data:a/b;base64,", "Data: ", ""]),
    st.sampled_from(["ann@example.org", "4111 1111 1111 1111", "4915112345678", "is 4111111111111111 good?"]),
)
_PARTS = st.recursive(
    _SAID | st.integers(10**7, 10**16),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (key,) if " " in key else ()
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield str(value)


@given(_PARTS, _PARTS, st.dictionaries(_KEYS, _PARTS, max_size=3), st.dictionaries(_KEYS, _PARTS, max_size=3))
def test_every_text_that_is_no_name_and_no_base64_is_visited(
    content: Any, arguments: Any, extra: dict[str, Any], custom: dict[str, Any]
) -> None:
    """Whatever the key, the place, and the letters that it begins with."""
    function = {"name": "f", "arguments": json.dumps(arguments), "said": content}
    calls = [{"id": "c", "type": "function", "function": function}, {"id": "d", "type": "x", "x": custom}]
    seen: set[str] = set()

    def note(text: str) -> str:
        seen.add(text)
        return text

    body = {"content": [content], "name": "ann", "tool_calls": calls, "extra": extra}
    assert visit_message(body, note) == body
    assert {*leaves([content, arguments, extra, custom])} <= seen


def test_data_in_base64_stays_only_where_a_format_has_it() -> None:
    sound = "QUJD" * 20
    url = f"data:image/png;base64,{sound}"
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": sound, "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": url, "file_id": "file-1"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": sound}},
        {"type": "thinking", "thinking": "hm", "signature": sound},
    ]
    seen: list[str] = []

    def note(text: str) -> str:
        seen.append(text)
        return text

    visit_message({"content": [*parts, {"type": "text", "text": sound, "data": sound}]}, note)
    assert seen == ["a.pdf", "hm", sound, sound]
    assert visit_message({"content": parts, "extra": {"audio": {"id": "a", "data": sound}}}, str.upper) == {
        "content": [
            *parts[:2],
            {"type": "file", "file": {**parts[2]["file"], "filename": "A.PDF"}},
            parts[3],
            {**parts[4], "thinking": "HM"},
        ],
        "extra": {"audio": {"id": "a", "data": sound}},
    }


def test_nothing_is_stored_in_clear_behind_a_word_that_looks_like_data(rig: Rig, hook: SetHook) -> None:
    hook("contacts")
    memory = rig.memory("s", memory_blocks=[])
    memory.put({"role": "user", "content": "data: my card is 4111 1111 1111 1111, mail ann@example.org"})
    text = {"type": "text", "text": "Data: mail ann@example.org"}
    beside = {
        "detail": "mail ann@example.org",
        "data": {"note": "ann@example.org"},
        "phone": 4111111111111111,
    }
    memory.put({"role": "user", "content": [{**text, **beside}], **beside})
    stored = str(rows_of(rig.url, "SELECT envelope::text FROM strandline.message ORDER BY seq"))
    assert "4111" not in stored and "ann@" not in stored


def test_arguments_that_are_nested_too_deep_are_one_text() -> None:
    deep = "[" * 500 + f'"{CANARY}"' + "]" * 500
    message = Message(
        "assistant",
        tool_calls=[{"id": "c", "type": "function", "function": {"name": "f", "arguments": deep}}],
    )
    redaction = Redaction((RedactionHook.check(sample_hooks.hide, "hide"),), 5.0, BoundedCalls(2))
    redacted = PutRules(LIMITS, redaction).redact(message, "message")
    assert redacted.tool_calls is not None
    assert redacted.tool_calls[0]["function"]["arguments"] == deep.replace(CANARY, "[hidden]")


def test_long_numbers_are_seen_as_text_and_others_stay_numbers() -> None:
    value = {"card": 4111111111111111, "year": 2024, "share": 0.5, "order": 5551234567}
    (hook,) = load_hooks("contacts", "SETTING")
    visited = visit_object(value, lambda text: hook.redact([text])[0])
    assert visited == {"card": "[card]", "year": 2024, "share": 0.5, "order": 5551234567}


class _Shown(str):
    """Text that shows another one."""

    __slots__ = ()

    def __str__(self) -> str:
        return "another text"


def test_a_hook_has_to_return_text_and_nothing_that_only_passes_for_it() -> None:
    hook = RedactionHook("shown", "1", _Shown)
    with pytest.raises(RedactionError, match="_Shown"):
        hook.redact(["text"])


class Captioning:
    """A hook that describes pictures, and hides a word in what it says itself."""

    def __call__(self, text: str) -> str:
        return text.replace(CANARY, "[hidden]")

    def caption(self, part: Mapping[str, Any]) -> str | None:
        if "broken" in json.dumps(part):
            raise ValueError("no")
        return f"A boat, {CANARY}." if part["type"] == "image_url" else None


def test_a_hook_captions_parts_before_they_are_stored(make_memory: MakeMemory) -> None:
    memory = make_memory("s", memory_blocks=[], redact=Captioning)
    picture = {"type": "image_url", "image_url": {"url": "https://e.org/b.png"}}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    text = {"type": "text", "text": "see"}
    for _ in range(2):  # a put that is repeated is the same put
        memory.put({"role": "user", "content": [picture, text, sound, picture], "id": "a"})
    (stored,) = memory.get_all()
    caption = {"type": "text", "text": "A boat, [hidden]."}
    assert stored.content == [picture, caption, text, sound, picture, caption]
    broken = {"type": "image_url", "image_url": {"url": "https://e.org/broken.png"}}
    with pytest.raises(RedactionError, match="raised ValueError"):
        memory.put({"role": "user", "content": [broken]})
    memory.put({"role": "user", "content": "plain"})
    assert len(memory.get_all()) == 2
