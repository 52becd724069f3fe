"""Tone: which messages read like a standing wish, and which end with a question."""

from __future__ import annotations

import pytest

from strandline.pipelines.text.tone import PLAIN, QUESTION, WISH, tone_of


@pytest.mark.parametrize(
    "text",
    [
        "Always answer in German, please.",
        "I prefer short answers. Can you do that?",
        "I\u2019m allergic to peanuts.",
        "From now on call me Maren.",
        "When I ask about code, give me Python.",
        "Bitte immer auf Deutsch antworten.",
    ],
)
def test_a_users_standing_wish_is_known(text: str) -> None:
    assert tone_of(text, "user") == WISH
    assert tone_of(text, "assistant") != WISH


@pytest.mark.parametrize(
    ("text", "tone"),
    [
        ("Where is the boat?", QUESTION),
        ("Where is the boat? [shares a photo: a boat]", QUESTION),
        ("船在哪里\uff1f", QUESTION),
        ("The boat is in the barn.", PLAIN),
        ("Is it there? It is in the barn.", PLAIN),
        ("", PLAIN),
        ("?" * 3 + " no", PLAIN),
    ],
)
def test_a_message_ends_with_a_question_or_not(text: str, tone: int) -> None:
    assert tone_of(text, "user") == tone_of(text, "assistant") == tone
