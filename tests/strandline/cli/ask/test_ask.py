"""``strandline ask``: what a read with a question gave, where it is from, and what was left out."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from strandline import Memory
from strandline.cli.ask import (
    AskReport,
    GivenMessageReport,
    TokenUseReport,
    budget_parts,
    divide_cells,
    show_answer,
)
from strandline.cli.entry import run
from tests.conftest import MakeMemory
from tests.schemas.display.test_shown_text import HOSTILE, HOSTILE_NAME, hidden_in

PEANUTS = "I am allergic to peanuts, so no cake with nuts for me."
QUESTION = "What am I allergic to?"
LIMIT = 900

Ask = Callable[..., str]


@pytest.fixture
def ask(database_url: str) -> Ask:
    """``strandline ask``, run to its end in this process, on the test's database; gives what it prints."""

    def run_command(*arguments: str) -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            assert run(["ask", *arguments, "--database-url", database_url]) == 0
        return out.getvalue()

    return run_command


@pytest.fixture
def maren(make_memory: MakeMemory) -> Memory:
    """A user with a fact and a session, of which the peanuts have left the window."""
    memory = make_memory("s", user_id="maren", token_limit=LIMIT, consume="background")
    memory.put({"role": "user", "name": "Maren", "content": PEANUTS})
    for number in range(80):
        memory.put({"role": "user", "content": f"Note {number}: the tide of day {number} was like the last."})
    last = memory.put({"role": "user", "content": "Good morning."})
    memory.facts.add("Maren is allergic to peanuts since her childhood.")
    assert memory.get(wait_for=last, timeout=300).caught_up
    return memory


def answer_of(ask: Ask, *arguments: str) -> AskReport:
    return AskReport.model_validate(json.loads(ask(*arguments, "--json")))


def sum_up(use: TokenUseReport) -> int:
    numbers: dict[str, int] = use.model_dump()
    return sum(numbers.values())


def test_a_report_says_what_the_read_gave(maren: Memory, ask: Ask) -> None:
    context = maren.get(QUESTION)
    report = answer_of(ask, "s", QUESTION)
    assert (report.question, report.session_id, report.user_id) == (QUESTION, "s", "maren")
    assert (report.tokens, report.token_limit) == (context.tokens, LIMIT)
    assert report.caught_up and report.covered_through == dict(context.covered_through)
    assert [fact.fact_id for fact in report.facts] == [fact.fact_id for fact in context.facts]
    assert [(hit.session_id, hit.seq, hit.score) for hit in report.hits] == [
        (hit.session_id, hit.message.seq, hit.score) for hit in context.hits
    ]
    assert (report.summary and report.summary.text) == (context.summary and context.summary.text)
    assert [(one.number, one.kind, one.id, one.score) for one in report.citations] == [
        (one.number, one.kind, one.id, one.score) for one in context.citations()
    ]
    assert [(one.kind, one.reason) for one in report.omitted] == [
        (one.kind, one.reason) for one in context.omitted
    ]
    assert sum_up(report.token_use) == LIMIT
    assert report.window is not None and report.window.through_seq == 82
    assert (report.head, report.tail) == (None, None)


def test_each_piece_is_shown_with_its_number_and_its_source(maren: Memory, ask: Ask) -> None:
    shown = ask("s", QUESTION)
    for citation in maren.get(QUESTION).citations():
        assert f"[{citation.number}] " in shown
    lines = shown.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.endswith(f"Maren: {PEANUTS}"))
    assert re.fullmatch(r"    s seq 1, \d{4}-.+, score [01]\.\d{3}, \d+ tokens, id \w+", lines[place + 1])
    (place,) = (number for number, line in enumerate(lines) if "since her childhood" in line)
    assert lines[place + 1].startswith("    added by a person, ")
    assert "caught up: memory covers all flushed messages" in lines
    assert hidden_in(shown) == []


def test_a_bar_shows_what_the_limit_was_used_for(maren: Memory, ask: Ask) -> None:
    shown = ask("s", QUESTION)
    bar = shown.splitlines()[3]
    assert re.fullmatch(r"w+f*s*m+o*\.*", bar)
    report = answer_of(ask, "s", QUESTION)
    assert sum(part.tokens for part in budget_parts(report)) == LIMIT
    assert f"w window   {report.token_use.window:>7,}  " in shown


def test_what_was_left_out_is_named_with_its_reason(maren: Memory, ask: Ask) -> None:
    question = "How was the tide of day 1, 2 and 3?"
    context = maren.get(question)
    assert context.omitted
    shown = ask("s", question)
    for item in context.omitted:
        assert f"left out: {item.name} ({item.kind}): {item.reason}" in shown.splitlines()
    narrower = answer_of(ask, "s", question, "--token-limit", "600")
    assert narrower.token_limit == 600 and len(narrower.hits) < len(context.hits)


def test_messages_on_their_way_are_told(make_memory: MakeMemory, ask: Ask) -> None:
    memory = make_memory("s", user_id="maren", token_limit=LIMIT)
    memory.put({"role": "user", "content": PEANUTS})
    memory.flush(all=True)
    report = answer_of(ask, "s", QUESTION)
    assert report.tail is not None and (report.tail.from_seq, report.tail.through_seq) == (1, 1)
    shown = ask("s", QUESTION)
    assert "not caught up: flushed messages are still on their way to a block" in shown
    assert "t tail " in shown and "caught up: memory covers" not in shown


def test_a_session_without_memory_is_shown_as_such(make_memory: MakeMemory, ask: Ask) -> None:
    memory = make_memory("s", token_limit=LIMIT, memory_blocks=[])
    memory.put({"role": "user", "content": PEANUTS})
    shown = ask("s", QUESTION)
    assert "no piece of memory was given" in shown
    assert "the session has no pipelines, so no memory is derived from it" in shown
    report = answer_of(ask, "s", QUESTION)
    assert (report.facts, report.hits, report.summary, report.citations) == ([], [], None, [])
    assert report.token_use.window == report.tokens


@pytest.mark.parametrize("question", ["", "  "])
def test_an_empty_question_searches_for_nothing(maren: Memory, ask: Ask, question: str) -> None:
    report = answer_of(ask, "s", question)
    assert report.hits == [] and report.facts
    assert "an empty question searches for nothing" in ask("s", question)


def show(report: AskReport, **console: Any) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        show_answer(Console(file=out, **console), report)
    return out.getvalue()


@pytest.mark.parametrize("width", [1, 2, 7, 30, 200])
def test_a_terminal_may_be_as_narrow_as_it_likes(maren: Memory, ask: Ask, width: int) -> None:
    report = answer_of(ask, "s", QUESTION)
    shown = show(report, width=width, force_terminal=True, no_color=True, color_system=None)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    letters = re.sub(r"\s", "", shown)
    assert re.sub(r"\s", "", PEANUTS) in letters


def test_a_message_beside_one_that_matches_says_so(maren: Memory, ask: Ask) -> None:
    report = answer_of(ask, "s", QUESTION)
    first: GivenMessageReport = report.hits[0]
    report = report.model_copy(update={"hits": [first.model_copy(update={"is_beside": True})]})
    shown = show(report, width=200)
    assert f"beside a message that matches (score {first.score:.3f})" in shown
    assert "1 found, 1 of them beside one that matches" in shown


def test_what_was_said_is_data_on_a_terminal_as_well(make_memory: MakeMemory, ask: Ask) -> None:
    memory = make_memory("s", user_id=f"u{HOSTILE_NAME}", token_limit=LIMIT, consume="background")
    hostile = f"harbour [bold]loud[/bold] {HOSTILE}"
    memory.put({"role": "user", "name": "[red]x", "content": hostile, "id": f"m{HOSTILE}"})
    memory.put({"role": "assistant", "content": "Noted."})
    memory.flush(all=True)
    assert memory.get(wait_for=2, timeout=300).caught_up
    report = answer_of(ask, "s", f"harbour {HOSTILE}")
    assert report.hits or report.facts
    shown = show(report, width=300, force_terminal=True, no_color=True, color_system=None)
    assert hidden_in(shown) == []
    assert "[bold]loud[/bold]" in shown


@given(st.lists(st.integers(0, 100_000), max_size=9), st.integers(0, 200))
def test_a_bar_is_as_wide_whatever_it_shows(amounts: list[int], cells: int) -> None:
    parts = divide_cells(amounts, cells)
    assert len(parts) == len(amounts) and min(parts, default=0) >= 0
    assert sum(parts) == (cells if sum(amounts) else 0)
    total = sum(amounts)
    assert all(abs(part * total - cells * one) <= total for part, one in zip(parts, amounts, strict=True))
