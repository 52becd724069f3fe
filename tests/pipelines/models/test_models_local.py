"""The stand-ins that need no key: what they select, repeatably and within bounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.models.answers import (
    MAX_FACT_CHARACTERS,
    ExtractedFact,
    check_answer,
    parse_extract,
    parse_merge,
    parse_summary,
)
from strandline.pipelines.models.contract import (
    ExtractTask,
    MergeTask,
    NumberedFact,
    SummaryTask,
    Task,
    TranscriptLine,
)
from strandline.pipelines.models.local.extractive import estimated_tokens, sentences
from strandline.pipelines.models.local.text_model import LocalTextModel

Talk = Sequence[tuple[str, str | None, str]]

MODEL = LocalTextModel()
MONDAY = datetime(2024, 3, 11, 9, 30, tzinfo=UTC)
TALK = [
    ("user", "Ann", "Hey! How are you doing these days?"),
    ("assistant", "Bob", "Great, thanks! That's so cool to hear from you."),
    ("user", "Ann", "Well, my sister Eva moved to Graz last Saturday. Isn't that something?"),
    ("assistant", "Bob", "Wow, sounds good!"),
    ("user", "Ann", "I adopted two dogs yesterday, they are called Max and Moritz."),
    ("assistant", "Bob", "I'm allergic to dogs, I'm afraid."),
]
texts = st.text(alphabet=st.sampled_from("abI my 12.!?。我喜欢吃苹果\nZ"), max_size=200)


def lines(talk: Talk) -> tuple[TranscriptLine, ...]:
    return tuple(TranscriptLine(n, role, name, text, MONDAY) for n, (role, name, text) in enumerate(talk, 1))


def facts_of(talk: Talk, max_facts: int = 30) -> tuple[ExtractedFact, ...]:
    task = ExtractTask(lines(talk), max_facts=max_facts)
    return parse_extract(MODEL.answer(task).text, len(talk))


def merged(known: list[str], candidates: list[str]) -> list[tuple[str, int | None]]:
    def numbered(found: list[str]) -> tuple[NumberedFact, ...]:
        return tuple(NumberedFact(n, text, MONDAY) for n, text in enumerate(found, 1))

    answer = MODEL.answer(MergeTask(numbered(known), numbered(candidates)))
    return [(op.op, op.fact) for op in parse_merge(answer.text, len(known), len(candidates))]


def test_facts_are_attributed_sentences_of_their_line() -> None:
    sister, dogs = facts_of(TALK)
    assert (sister.text, sister.messages, sister.said_by) == (
        "Ann: My sister Eva moved to Graz last Saturday. (2024-03-09)",
        (3,),
        "Ann",
    )
    assert sister.about_date == date(2024, 3, 9)
    assert dogs.messages == (5,)
    assert dogs.about_date == date(2024, 3, 10)


def test_what_a_nameless_assistant_or_a_tool_says_is_no_fact_about_anyone() -> None:
    boast = "I was trained in 2024 and my favourite language is Python."
    assert facts_of([("assistant", None, boast), ("tool", "search", boast), ("system", None, boast)]) == ()
    assert facts_of([("user", None, boast)])[0].text == f"User: {boast}"


def test_advice_of_an_assistant_that_is_named_for_what_it_is_is_no_fact() -> None:
    advice = "I would start with your brother on Saturday, and buy two tins of paint in Celle."
    for name in ("Assistant", "assistant", "AI"):
        assert facts_of([("assistant", name, advice)]) == ()
    assert facts_of([("assistant", "Ann", advice)])[0].text.startswith("Ann: I would start")


def test_a_fact_says_which_day_it_is_about_if_its_words_do_not() -> None:
    (fact,) = facts_of([("user", "Ann", "I moved to Graz on 2024-03-01 with my sister.")])
    assert fact.text == "Ann: I moved to Graz on 2024-03-01 with my sister."
    (fact,) = facts_of([("user", "Ann", "I live in Graz with my sister.")])
    assert fact.text == "Ann: I live in Graz with my sister."
    long = f"I moved to Graz yesterday with my sister {'Evangelina' * 300}."
    (fact,) = facts_of([("user", "Ann", long)])
    assert fact.text.endswith(" (2024-03-10)") and len(fact.text) == MAX_FACT_CHARACTERS


def test_questions_and_small_talk_are_left_out() -> None:
    assert facts_of(TALK[:2]) == ()


def test_chinese_works() -> None:
    (fact,) = facts_of([("user", "小明", "你好！我昨天搬到北京工作。你喜欢什么？")])
    assert fact.text == "小明: 我昨天搬到北京工作。 (2024-03-10)"
    assert fact.about_date == date(2024, 3, 10)


@given(st.lists(texts, min_size=1, max_size=12), st.integers(1, 6))
def test_extraction_is_a_repeatable_bounded_selection(said: list[str], max_facts: int) -> None:
    task = ExtractTask(lines([("user", "Ann", text) for text in said]), max_facts=max_facts)
    answer = MODEL.answer(task)
    assert answer == MODEL.answer(task)
    check_answer(task, answer.text)
    facts = json.loads(answer.text)["facts"]
    assert len(facts) <= min(max_facts, max(1, round(len(said) / 2.5)))
    for fact in facts:
        source = " ".join(said[fact["messages"][0] - 1].split())
        assert fact["text"].removeprefix("Ann: ").casefold() in source.casefold()


def test_duplicates_are_found_whatever_their_case_and_marks() -> None:
    known = ["Ann: I live in Graz with my two dogs.", "Ann: I like tea."]
    assert merged(known, ["Ann: i live in Graz, with my two dogs!", "Ann: I play the cello."]) == [
        ("duplicate", 1),
        ("add", None),
    ]
    assert merged([], ["Ann: 我喜欢吃苹果", "Ann: 我喜欢吃苹果。"]) == [("add", None), ("duplicate", None)]


@pytest.mark.parametrize(
    "other",
    [
        "Bob: I have been living in the old town of Graz for 4 years now.",
        "Ann: I have been living in the old town of Graz for 5 years now.",
        "Ann: I have not been living in the old town of Graz for 4 years now.",
    ],
)
def test_another_speaker_number_or_negation_is_another_fact(other: str) -> None:
    fact = "Ann: I have been living in the old town of Graz for 4 years now."
    assert merged([fact], [other]) == [("add", None)]
    assert merged([fact], [fact]) == [("duplicate", 1)]


@given(st.lists(texts, max_size=8), texts, st.integers(16, 80))
def test_a_summary_rolls_within_its_bound(said: list[str], name: str, max_tokens: int) -> None:
    summary = ""
    for _ in range(2):
        task = SummaryTask(summary, lines([("user", name, text) for text in said]), max_tokens)
        rolled = parse_summary(check_answer(task, MODEL.answer(task).text).text)
        summary = rolled.summary
        assert estimated_tokens(summary) <= max_tokens + 1


def test_a_summary_keeps_what_came_before_while_there_is_room() -> None:
    first = parse_summary(MODEL.answer(SummaryTask("", lines(TALK[:3]), 200)).text)
    assert "sister Eva" in first.summary
    second = parse_summary(MODEL.answer(SummaryTask(first.summary, lines(TALK[3:]), 200)).text)
    assert "sister Eva" in second.summary and "two dogs" in second.summary
    assert second.topics


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I paid 3.50 to Dr. Who. Really!", ["I paid 3.50 to Dr. Who.", "Really!"]),
        ("我喜欢茶。你呢？好！", ["我喜欢茶。", "你呢？", "好！"]),
        ('He said "go." Then left', ['He said "go."', "Then left"]),
        ("a\n\nb", ["a", "b"]),
        ("  ", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_provenance_says_that_no_model_did_it() -> None:
    tasks: list[Task] = [ExtractTask(()), MergeTask((), ()), SummaryTask("", (), 100)]
    answers = [MODEL.answer(task) for task in tasks]
    assert {answer.model for answer in answers} == {"local-extractive"}
    assert len({answer.prompt_hash for answer in answers}) == 3
    for task, answer in zip(tasks, answers, strict=True):
        check_answer(task, answer.text)
