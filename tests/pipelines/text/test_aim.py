"""What a question says of the messages that it is after: whose they are, and of which days."""

from __future__ import annotations

from calendar import monthrange
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.text.aim import MAX_RANGES, YEARS_BACK, Aim, DayRange, aim_of
from strandline.pipelines.text.tone import PLAIN, QUESTION, WISH, tone_of

TODAY = date(2026, 11, 23)
# Of a clock that is set wrong, too.
DAYS = st.dates(date(1970, 1, 1), date(2200, 1, 1))


def ranges(question: str) -> list[tuple[str, str, float]]:
    return [(str(days.first), str(days.last), days.fit) for days in aim_of(question, TODAY).days]


def on(day: str) -> list[tuple[str, str, float]]:
    """The ranges of a named day: itself, the next, and its month."""
    named = date.fromisoformat(day)
    after = str(named + timedelta(days=1))
    month = str(named.replace(day=1)), str(named.replace(day=monthrange(named.year, named.month)[1]))
    return [(day, day, 1.0), (after, after, 0.95), (*month, 0.5)]


@pytest.mark.parametrize(
    ("question", "is_own"),
    [
        ("What did I say about the boat?", True),
        ("Where did we meet?", True),
        ("what's my sister's name", True),
        ("I\u2019ve moved; where to?", True),
        ("Was mag ich nicht?", True),
        ("Where does Ida play?", False),
        ("How is the weather in Mississippi?", False),
        ("Who lives in the US, or flew to Detroit, MI on Mon 3 May?", False),
        ("tell us of the boat", True),
        ("", False),
    ],
)
def test_a_question_speaks_of_the_asker_or_not(question: str, is_own: bool) -> None:
    assert aim_of(question, TODAY).is_own == is_own


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        (
            "What happened on 7 May 2023?",
            on("2023-05-07"),
        ),
        (
            "What happened on May 7, 2023?",
            on("2023-05-07"),
        ),
        (
            "Was war am 7. Mai 2023?",
            on("2023-05-07"),
        ),
        ("What did she do in February 2024?", [("2024-02-01", "2024-02-29", 1.0)]),
        ("What changed in 2022?", [("2022-01-01", "2022-12-31", 1.0)]),
        (
            "Who came on 2023-12-31?",
            on("2023-12-31"),
        ),
        (
            "What did I ask for yesterday?",
            [("2026-11-22", "2026-11-22", 1.0), ("2026-11-19", "2026-11-25", 0.5)],
        ),
        (
            "Who called the day before yesterday?",
            [("2026-11-21", "2026-11-21", 1.0), ("2026-11-18", "2026-11-24", 0.5)],
        ),
        (
            "Who called three weeks ago?",
            [("2026-11-02", "2026-11-02", 1.0), ("2026-10-30", "2026-11-05", 0.5)],
        ),
        ("Who called last week?", [("2026-11-10", "2026-11-22", 1.0)]),
        ("Who called last month?", [("2026-10-01", "2026-10-31", 1.0)]),
        ("What did I plan last year?", [("2025-01-01", "2025-12-31", 1.0)]),
        ("What shall I cook today, or tomorrow, or next week?", []),
        ("Did they march to the sea, and may I ask why?", []),
        ("What did May say?", []),
        ("What does April like to eat, and what June, August and Jan?", []),
        ("What did we do in April 2024, and last June?", None),
        ("Which laptop under 2000 dollars did I like?", []),
        ("Did it cost $2000, or 2000 km?", []),
        ("What shall I pack for 24 December 2026?", []),
        ("3 月曜日に何をした?", []),
        ("오후 3 월요일에 뭐 했어?", []),
        ("Which room has number 2450?", []),
        ("Who came on 2023-02-31?", [("2023-01-01", "2023-12-31", 1.0)]),
        (
            "Who came on 24.01.2024?",
            on("2024-01-24"),
        ),
        (
            "Who came on 24/1/2024?",
            on("2024-01-24"),
        ),
        (
            "Who came on 1/24/2024?",
            on("2024-01-24"),
        ),
        (
            "Who came on 2024/1/24?",
            on("2024-01-24"),
        ),
        (
            "Who came on 2/1/2024?",
            [*on("2024-01-02"), *on("2024-02-01")],
        ),
        (
            "Who came on 2.1.2024?",
            on("2024-01-02"),
        ),
        (
            "2024年1月24日谁来了?",
            on("2024-01-24"),
        ),
        (
            "2024년 1월 24일에?",
            on("2024-01-24"),
        ),
        ("2024年1月谁来了?", [("2024-01-01", "2024-01-31", 1.0)]),
        ("2022年发生了什么?", [("2022-01-01", "2022-12-31", 1.0)]),
        ("Which is version 3.11.7, or 13月, or 45.67.2024?", []),
    ],
)
def test_the_days_that_a_question_names(question: str, wanted: list[tuple[str, str, float]] | None) -> None:
    assert ranges(question) == wanted if wanted is not None else ranges(question)


def test_a_month_without_a_year_is_any_of_the_latest() -> None:
    days = aim_of("Where were we in December?", TODAY).days
    assert [one.first.year for one in days] == list(range(2025, 2026 - YEARS_BACK - 1, -1))
    assert {(one.first.month, one.first.day, one.last.day) for one in days} == {(12, 1, 31)}


def test_a_day_fits_wholly_in_part_or_not_at_all() -> None:
    aim = aim_of("What happened on 7 May 2023?", TODAY)
    assert [aim.fit(date(2023, 5, day)) for day in (6, 7, 8, 9)] == [0.5, 1.0, 0.95, 0.5]
    assert aim.fit(date(2023, 6, 7)) == 0.0
    assert Aim().fit(date(2023, 6, 7)) == 1.0


@given(st.text(max_size=200), DAYS)
def test_no_question_and_no_day_is_too_much(question: str, today: date) -> None:
    aim = aim_of(question, today)
    assert len(aim.days) <= MAX_RANGES
    assert all(days.first <= days.last and 0 < days.fit <= 1 for days in aim.days)


_WORDS = (
    "31",
    "1",
    "9999",
    "1900",
    "2099",
    "february",
    "Dec",
    "last year",
    "last month",
    "yesterday",
    "2024-02-29",
)


@given(st.lists(st.sampled_from(_WORDS), max_size=8).map(" ".join), DAYS)
def test_dates_at_the_ends_of_the_calendar_are_ranges_or_nothing(question: str, today: date) -> None:
    for days in aim_of(question, today).days:
        assert isinstance(days, DayRange)
        assert timedelta(0) <= days.last - days.first < timedelta(days=366)


# Tone: which messages read like a standing wish, and which mostly ask.


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
