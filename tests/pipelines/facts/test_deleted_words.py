"""Which words bring back what a person deleted: by who says them, in which chat, when, and what they deny."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.facts.tombstones import (
    Tombstone,
    Utterance,
    Waiting,
    read_traces,
    trace_of,
    write_traces,
)

CHAT, OTHER = uuid4(), uuid4()
NOW = datetime(2026, 3, 1, tzinfo=UTC)
BEFORE, AFTER = NOW - timedelta(hours=1), NOW + timedelta(hours=1)


def stone(text: str, kind: str = "delete", waiting: tuple[Waiting, ...] = ()) -> Tombstone:
    return Tombstone(1, kind, uuid4(), (trace_of(text, "user", CHAT, [1]),), NOW, waiting)


def said(text: str, way: str) -> Utterance:
    """The words: again from the message, from another chat, or by an assistant; and when they came."""
    chat, seq = (CHAT, 1) if way == "again" else (OTHER, 7)
    times = {
        "again": (BEFORE, BEFORE),
        "late": (BEFORE, AFTER),
        "known": (BEFORE, BEFORE),
        "echo": (AFTER, AFTER),
        "new": (AFTER, AFTER),
    }
    said_at, flushed_at = times[way]
    return Utterance(trace_of(text, "user", chat, [seq]), said_at, flushed_at, way == "echo")


HELD = "again late echo"
PORTO = "User lives in Porto."
WORDS = [
    # What was deleted, what is said, and the ways in which that is held back.
    (PORTO, PORTO, "again late known echo"),
    (PORTO, "The user lives in Porto, Portugal.", HELD),
    (PORTO, "User lives with Ana in a flat in Porto.", HELD),
    (PORTO, "The user's home town is Porto.", "echo"),
    (PORTO, "User lives in Porto, not in Lisbon.", HELD),
    (PORTO, "User lives in Lisbon.", ""),
    (PORTO, "User does not live in Porto.", ""),
    (PORTO, "User likes tea.", ""),
    ("用户住在北京。", "用户居住在北京。", HELD),
    ("用户住在北京。", "用户住在上海。", ""),
    ("ユーザーは東京に住んでいる。", "ユーザーは大阪に住んでいる。", ""),
    ("사용자는 서울에 산다.", "사용자는 부산에 산다.", ""),
    ("ผู้ใช้แพ้ถั่ว", "ผู้ใช้แพ้กุ้ง", ""),
    ("User has a dog called Rex.", "The user's dog Rex is old.", "again echo"),
    ("User has a dog called Rex.", "User has a brown dog called Rex.", HELD),
    ("User has a dog called Rex.", "User has a dog called Bello.", ""),
    ("User has 3 children.", "User has 2 children.", ""),
    ("User has 3 children and a dog.", "User has 2 children and a dog.", ""),
    ("User has three children and a dog.", "User has two children and a dog.", ""),
    ("User has 3 children and a dog.", "User has three children and a dog.", HELD),
    ("User was born on 3 May 1990.", "User was born in 1990.", HELD),
    ("User was born on 3 May 1990.", "User was born on 4 May 1990.", ""),
    ("User earns 50,000 euros.", "User earns 50000 euros.", HELD),
    ("User works at Acme as an engineer.", "User works at Globex as an engineer.", ""),
    ("Ana likes tennis.", "Ben likes tennis.", ""),
    ("User likes red wine.", "User drinks red wine.", "again echo"),
    (
        "Dentist appointment on 2026-11-20.",
        "User has a dentist appointment on 20.11.2026.",
        HELD,
    ),
    ("Dentist appointment on Friday.", "Dentist appointment on Monday.", ""),
    ("User likes coffee.", "User does not like coffee.", ""),
    ("User does not like coffee.", "User likes coffee.", ""),
    (
        "User does not drink coffee, tea or milk.",
        "User drinks no tea, no coffee and no milk.",
        HELD,
    ),
    ("User likes tea but not coffee.", "User likes coffee but not tea.", ""),
    ("User likes tea but not coffee.", "User likes tea, and no coffee.", HELD),
    ("Nutzerin isst kein Fleisch.", "Nutzerin isst Fleisch.", ""),
    (
        "Die Nutzerin hat eine Wohnung in Oslo.",
        "In Oslo hat die Nutzerin eine kleine Wohnung.",
        HELD,
    ),
    ("El usuario no come carne.", "El usuario come carne.", ""),
    ("Пользователь не ест мясо.", "Пользователь ест мясо.", ""),
    ("ユーザーはコーヒーが好きです。", "ユーザーはコーヒーが好きではない。", ""),
    ("用户喜欢咖啡。", "用户不喜欢咖啡。", ""),
]


@pytest.mark.parametrize(("deleted", "words", "held"), WORDS)
def test_what_was_deleted_stays_away_in_these_ways(deleted: str, words: str, held: str) -> None:
    ways = ("again", "late", "known", "echo", "new")
    assert [way for way in ways if stone(deleted).holds_back(said(words, way))] == held.split()


@pytest.mark.parametrize("words", ["User has 2 children and a dog.", "User does not have 3 children."])
def test_a_correction_holds_for_the_same_message_whatever_it_says(words: str) -> None:
    corrected = stone("User has 3 children and a dog.", "replace")
    assert corrected.holds_back(said(words, "again"))
    assert not corrected.holds_back(said(words, "late"))


def test_what_waited_was_said_before_whatever_its_clock_says() -> None:
    waiting = (Waiting(OTHER, 5, 9),)
    fast = replace(said("The user lives in Porto with Ana.", "new"), flushed_at=AFTER)
    assert not stone(PORTO).holds_back(fast)
    assert stone(PORTO, waiting=waiting).holds_back(fast)
    everything = Tombstone(1, "clear", None, (), NOW, waiting)
    assert everything.holds_back(fast)
    # Delivered by then, and read by no worker yet.
    unread = said("The user lives in Porto with Ana.", "known")
    assert stone(PORTO, waiting=waiting).holds_back(unread)


LEXEMES = st.lists(
    st.sampled_from(["herring", "Bergen", "Oslo", "boat", "blue", "not", "3", "4", "and", "海"]), min_size=1
)


@given(LEXEMES, LEXEMES, st.sampled_from(["delete", "replace"]))
def test_an_assistant_brings_nothing_back_that_late_words_do_not(
    deleted: list[str], words: list[str], kind: str
) -> None:
    """What late words of a user may not say, an assistant may say even less, at any time."""
    taken, text = stone(" ".join(deleted), kind), " ".join(words)
    if taken.holds_back(said(text, "late")):
        assert taken.holds_back(said(text, "echo"))
    if text == " ".join(deleted):
        assert all(taken.holds_back(said(text, way)) for way in ("again", "late", "known", "echo"))
    assert not taken.holds_back(said(text, "new")), "the user's own later words are new knowledge"


@given(LEXEMES, LEXEMES)
def test_two_statements_are_contrary_both_ways_or_neither(left: list[str], right: list[str]) -> None:
    one, other = trace_of(" ".join(left), None), trace_of(" ".join(right), None)
    assert one.is_contrary_to(other) == other.is_contrary_to(one)
    assert not one.is_contrary_to(one)
    (stored,) = read_traces(write_traces([one]))
    assert stored == one


def test_traces_of_a_person_are_recognised_by_their_words_alone() -> None:
    added = Tombstone(1, "delete", UUID(int=1), (trace_of(PORTO, None),), NOW)
    assert added.holds_back(said("User lives in Porto, Portugal.", "echo"))
    assert not added.holds_back(said("User lives in Porto, Portugal.", "again")), "it is of another message"
