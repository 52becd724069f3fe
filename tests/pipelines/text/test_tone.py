"""Tone: which messages read like a standing wish, and which mostly ask."""

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
        "I strictly avoid anything with gluten.",
        "I have a strong dislike of crowded places.",
        "I've moved, and I am on a low-salt diet.",
        "I refuse to fly.",
        "I only use open-source tools.",
        "I have no interest in football.",
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
        ("I only have five minutes.", PLAIN),
        ("Is it there? It is in the barn.", PLAIN),
        ("I painted the hull all day and am tired now. And you?", PLAIN),
        ("It is in the barn. Why do you ask?", QUESTION),
        ("", PLAIN),
        ("?" * 3 + " no", PLAIN),
    ],
)
def test_a_message_asks_or_not(text: str, tone: int) -> None:
    assert tone_of(text, "user") == tone_of(text, "assistant") == tone
