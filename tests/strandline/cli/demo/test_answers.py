"""What the demo says of its questions: a line each, one in full, and the evidence of all together."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from strandline.cli.demo.story import AnswerReport, EvidencePlaces, Story, add_up


def answered(question: str, evidence: int, given: int) -> AnswerReport:
    """A question with so many messages as evidence, of which so many are given, the first by a fact."""
    ids = [f"m{number}" for number in range(evidence)]
    return AnswerReport(
        question=question,
        answer="Ada",
        facts_given=min(given, 1),
        facts=[],
        retrieved=[],
        window_message_ids=[],
        evidence=ids,
        evidence_given=ids[:given],
        evidence_from=EvidencePlaces(messages=max(0, given - 1), facts=min(given, 1), summary=0, window=0),
    )


ANSWERS = [
    answered("Who keeps the key of the boathouse?", 3, 1),
    answered(f"Who is 孙阿姨, and {'why ' * 50}?", 2, 2),
    answered("What does nobody know?", 0, 0),
    answered("Who is Ada?", 2, 0),
]


@pytest.mark.parametrize("width", [1, 20, 60, 100])
@pytest.mark.parametrize("is_terminal", [True, False])
def test_each_question_has_a_line_within_the_width(width: int, is_terminal: bool) -> None:
    told = io.StringIO()
    options: dict[str, Any] = {"force_terminal": is_terminal, "color_system": None, "no_color": True}
    console = Console(file=told, width=width, soft_wrap=not is_terminal, **options)
    Story(console).answers(ANSWERS, in_full=False)
    if width >= 60:
        lines = told.getvalue().splitlines()[3:7]
        assert max(map(cell_len, lines)) <= width
        shares = ["1 of 3  facts 1 ", "2 of 2  found 1, facts 1 ", "-       - ", "0 of 2  - "]
        assert all(line.startswith(f"  {share}") for line, share in zip(lines, shares, strict=True))
        assert told.getvalue().count("keeps the key") == 1
        assert told.getvalue().count("  ? ") == 1, "the one with all its evidence is shown in full"
        told.truncate(0)
        Story(console).answers(ANSWERS, in_full=True)
        assert told.getvalue().count("  ? ") == 4


def test_the_evidence_of_all_questions_is_told_in_sentences() -> None:
    evidence = add_up(ANSWERS, token_limit=4_000, conversation_tokens=12_000)
    assert evidence is not None
    assert (evidence.questions, evidence.questions_with_all) == (3, 1)
    assert (evidence.evidence, evidence.evidence_given, evidence.share_given) == (7, 3, 0.4286)
    for stand_ins in (True, False):
        told = io.StringIO()
        Story(Console(file=told, width=300)).evidence(evidence, stand_ins=stand_ins)
        assert "all the evidence for 1 of 3 questions, and 43% of all evidence" in told.getvalue()
        assert "a limit of 4,000 tokens; the conversation has 12,000." in told.getvalue()
        assert ("a real model (OPENAI_API_KEY" in told.getvalue()) is stand_ins
    assert add_up(ANSWERS[2:3], token_limit=4_000, conversation_tokens=1) is None
