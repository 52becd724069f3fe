"""Decisions of a model on known facts: right ones are applied, and wrong ones become doubts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.facts.decisions import check_decision, is_made_of
from strandline.pipelines.facts.folding import Candidate, is_older
from strandline.pipelines.facts.grounding import ground_fact, may_mean
from strandline.pipelines.facts.statements import (
    adds_to,
    holds_all_of,
    is_negated,
    is_supposed,
    telling_words,
)
from strandline.pipelines.models.answer_forms import is_placeholder
from strandline.pipelines.models.answers import ExtractedFact, MergeOperation
from strandline.pipelines.models.contract import TranscriptLine
from strandline.pipelines.models.prompts.render import instructions
from strandline.pipelines.text.common_words import is_foreign, language_of
from strandline.schemas.queries.derived.facts_merge import RelatedFactsRow
from strandline.schemas.values.doubts import DOUBT_SENTENCES, DoubtReason

NOW = datetime(2026, 6, 1, 10, tzinfo=UTC)
TABLES = Path(__file__).parent.parent.parent / "support" / "decisions"
# Of right decisions, so many may be refused.
MOST_REFUSED = 0.02


@dataclass(frozen=True)
class Said:
    text: str
    is_by_assistants: bool = False
    said_at: datetime = NOW


def rows(name: str) -> Iterator[list[str]]:
    for line in (TABLES / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield [field.strip() for field in line.split(" | ")]


def decide(op: str, known: str, candidate: str, text: str | None = None, **given: bool) -> MergeOperation:
    proposed = MergeOperation(op, 1, 1, text)  # type: ignore[arg-type]
    return check_decision(proposed, Said(candidate), Said(known), **given)  # type: ignore[arg-type]


def test_right_decisions_are_applied() -> None:
    table = list(rows("right.txt"))
    refused, reworded = [], []
    for op, known, candidate, text in table:
        checked = decide(op, known, candidate, None if text == "-" else text)
        if checked.op != op:
            refused.append((op, known, candidate, checked.doubt))
        elif text not in ("-", candidate) and checked.text is None:
            reworded.append((op, known, candidate, text))
    assert len(table) > 150
    assert len(refused) <= MOST_REFUSED * len(table), refused
    assert not reworded


@pytest.mark.parametrize(("op", "known", "candidate", "text", "reason"), list(rows("wrong.txt")))
def test_wrong_decisions_are_doubts(op: str, known: str, candidate: str, text: str, reason: str) -> None:
    """Or they are applied in the new statement's own words, where these say all that is known."""
    checked = decide(op, known, candidate, None if text == "-" else text)
    if reason in ("words", "update", "invalidate"):
        assert checked == MergeOperation(op if reason == "words" else reason, 1, 1, None)  # type: ignore[arg-type]
    else:
        assert checked.op == "add" and checked.doubt is not None
        assert (checked.doubt.op, checked.doubt.fact, checked.doubt.reason) == (op, 1, reason)


@pytest.mark.parametrize(("affirmed", "denied"), list(rows("negations.txt")))
def test_a_denial_is_read_in_each_person_and_repeats_nothing(affirmed: str, denied: str) -> None:
    assert is_negated(denied) and not is_negated(affirmed)
    for known, candidate in ((affirmed, denied), (denied, affirmed)):
        assert decide("duplicate", known, candidate).op == "add"


@pytest.mark.parametrize(
    "text",
    [
        "Nutzer arbeitet seit Mai bei Siemens.",
        "O usuário trabalha no banco.",
        "De gebruiker is pas verhuisd naar Gent.",
        "L'utente ne ha due.",
        "Ni är med hos Anna och Per.",
        "Kullanıcı namaz kılıyor.",
        "Kullanıcı Amazon'da çalışıyor.",
        "Kullanıcının doktoru Yılmaz.",
        "Användaren bor med sin fru.",
        "Użytkownik jest bratem Ani.",
        "L'utente vive a Roma sin dal 2010.",
        "L'utilisateur, né à Lyon, parle italien.",
        "User lives in Omaha, NE.",
        "Ich hab ne Katze.",
        "User's doctor is Dr. Gomez.",
        "Der Chef des Nutzers heißt Yilmaz.",
    ],
)
def test_a_word_that_denies_in_another_language_denies_nothing(text: str) -> None:
    assert not is_negated(text)


@pytest.mark.parametrize(
    "text",
    [
        "User wants to be called Sam from now on.",
        "User could no longer afford the flat in Porto and moved to Leeds.",
        "User could not keep the dog and gave him away.",
        "User's favourite singer is Stevie Wonder.",
        "User's daughter is called Hope.",
        "User tells dad jokes.",
        "사용자는 아마존에서 일한다.",
        "ユーザーは仮想通貨を買った。",
        "ユーザーの部屋は冷たい。",
    ],
)
def test_what_only_sounds_like_a_wish_is_a_fact(text: str) -> None:
    assert not is_supposed(text)


@pytest.mark.parametrize(
    ("text", "parts", "may"),
    [
        (
            "User might sell the boat, which is called Nelly.",
            ["User might sell the boat.", "User's boat is called Nelly."],
            True,
        ),
        ("User has a boat and will sell the boat.", ["User might sell the boat.", "User has a boat."], False),
        (
            "User works in Porto and moved to Rome.",
            ["User wants to move to Rome.", "User works in Porto."],
            False,
        ),
        (
            "User has a dog named Rex, a beagle who is 14 years old.",
            ["User has a dog named Rex.", "Rex is a beagle.", "Rex is 4 years old."],
            False,
        ),
        ("Anna works at SAP and Ben works at Bosch.", ["Anna works at Bosch.", "Ben works at SAP."], False),
        ("User likes jazz but does not like opera.", ["User likes jazz.", "User does not like opera."], True),
    ],
)
def test_a_sentence_is_no_surer_than_its_parts(text: str, parts: list[str], may: bool) -> None:
    assert is_made_of(text, parts) == may


def test_each_reason_has_its_sentence() -> None:
    assert set(DOUBT_SENTENCES) == set(get_args(DoubtReason))


KNOWN = st.sampled_from([row[1] for row in rows("right.txt")] + [row[1] for row in rows("wrong.txt")])
NEW = st.sampled_from([row[2] for row in rows("right.txt")] + [row[2] for row in rows("wrong.txt")])
WORDINGS = st.one_of(NEW, KNOWN, st.text(max_size=30), st.tuples(KNOWN, NEW).map(" ".join))


@given(known=KNOWN, candidate=NEW, text=WORDINGS, op=st.sampled_from(["update", "invalidate", "duplicate"]))
def test_whatever_a_model_decides_nothing_is_lost_or_added(
    known: str, candidate: str, text: str, op: str
) -> None:
    checked = decide(op, known, candidate, None if op == "duplicate" else text)
    assert checked.op in (op, "add") or (op, checked.op) in (
        ("duplicate", "update"),
        ("update", "invalidate"),
    )
    assert (checked.op == "add") == (checked.doubt is not None)
    if checked.op in ("update", "invalidate"):
        worded = checked.text or candidate
        assert not adds_to(worded, [known, candidate])
        # Two statements in one are asked for together: only one of them may deny something.
        assert holds_all_of(worded, [known, candidate] if checked.op == "update" else [candidate])


@given(KNOWN)
def test_a_statement_says_what_itself_says(text: str) -> None:
    assert is_made_of(text, [text])
    assert decide("duplicate", text, text).op == "duplicate"


@pytest.mark.parametrize(
    ("op", "known", "candidate", "text"),
    [
        ("update", "User has 2 cats.", "User has 3 dogs.", "User has 3 cats and 2 dogs."),
        ("update", "User flies on 2026-05-03.", "User flies to Rome.", "User flies on 2026-03-05 to Rome."),
        ("duplicate", "User has 2 cats and 3 dogs.", "User has 3 cats and 2 dogs.", None),
        ("invalidate", "Tom lives in Porto.", "Eva moved to Rome.", None),
        ("update", "Tom lives in Porto.", "Eva lives in Rome.", "Tom lives in Porto, and Eva in Rome."),
    ],
)
def test_numbers_and_people_are_not_exchanged(op: str, known: str, candidate: str, text: str | None) -> None:
    assert decide(op, known, candidate, text).op == "add"


def test_a_sentence_gives_nobody_the_words_of_another() -> None:
    parts = ["Tom's birthday is 3 May.", "Eva's birthday is 3 June."]
    assert is_made_of("Tom's birthday is 3 May and Eva's is 3 June.", parts)
    assert not is_made_of("Tom's birthday is 3 June and Eva's is 3 May.", parts)
    assert is_made_of("Anna and Ben work at Bosch.", ["Anna works at Bosch.", "Ben works at Bosch."])


def test_words_of_nearly_all_facts_tell_nothing() -> None:
    known, candidate = "Ana sails the Nelly with Tom.", "Ana met Tom."
    assert decide("invalidate", known, candidate).op == "invalidate"
    checked = check_decision(
        MergeOperation("invalidate", 1, 1, None), Said(candidate), Said(known), common={"tom"}, speaker="Ana"
    )
    assert checked.doubt is not None and checked.doubt.reason == "unrelated"


def test_an_older_statement_only_adds_to_a_newer_fact() -> None:
    assert decide("update", "User has a dog.", "User has a dog called Rex.", is_older=True).op == "update"
    for op in ("update", "duplicate"):
        checked = decide(op, "User lives in Porto.", "User lives in Lisbon.", is_older=True)
        assert checked.doubt is not None and checked.doubt.reason == "older"


@pytest.mark.parametrize(
    ("seconds", "session", "seqs", "older"),
    [(-1, 1, [9], True), (1, 1, [1], False), (0, 1, [4], True), (0, 1, [4, 5], False), (0, 2, [4], False)],
)
def test_at_one_time_the_place_in_the_session_decides(
    seconds: int, session: int, seqs: list[int], older: bool
) -> None:
    fact = UUID(int=9)
    known = RelatedFactsRow(fact, "a", NOW, b"", False, None, NOW, [UUID(int=1)], [5])
    candidate = Candidate(
        fact, 1, UUID(int=session), fact, "b", seqs, [], None, None, NOW + timedelta(seconds=seconds),
        "m", "h", [], None, False,
    )  # fmt: skip
    assert is_older(candidate, known) == older


@pytest.mark.parametrize(
    "text",
    [text for kind, text in rows("placeholders.txt") if kind == "nothing"],
)
def test_what_says_nothing_is_a_placeholder(text: str) -> None:
    assert is_placeholder(text)


@pytest.mark.parametrize(
    "text",
    [text for kind, text in rows("placeholders.txt") if kind == "little"],
)
def test_what_says_little_is_none(text: str) -> None:
    assert not is_placeholder(text)


@pytest.mark.parametrize("name", ["extract", "merge", "condense", "instruct", "summary", "choose"])
def test_no_text_of_a_prompts_form_can_be_copied(name: str) -> None:
    """Its texts are the names of fields and operations."""
    form = instructions(name).rpartition("# Answer")[2].partition("\n")[2].partition("\n")[0]
    quoted = set(form.split('"')[1::2])
    fields = {
        "facts",
        "text",
        "messages",
        "topics",
        "said_by",
        "about_date",
        "merged",
        "kept",
        "operations",
        "op",
    }
    assert quoted <= fields | {"add", "update", "delete", "candidate", "fact", "summary"}
    assert not any(character in instructions(name) for character in ("…", "2024"))


@pytest.mark.parametrize(
    ("text", "day"),
    [row[1:] for row in rows("dates.txt") if row[0] == "may"],
)
def test_a_day_may_be_meant(text: str, day: str) -> None:
    assert may_mean(text, date.fromisoformat(day), NOW.date())


@pytest.mark.parametrize(
    ("text", "day"),
    [row[1:] for row in rows("dates.txt") if row[0] == "no"],
)
def test_a_day_that_nothing_speaks_of_is_not_meant(text: str, day: str) -> None:
    assert not may_mean(text, date.fromisoformat(day), NOW.date())


def lines(*texts: str) -> tuple[TranscriptLine, ...]:
    return tuple(TranscriptLine(number, "user", None, text, NOW) for number, text in enumerate(texts, 1))


def test_a_day_may_be_spoken_of_just_before() -> None:
    day = date(2027, 3, 14)
    fact = ExtractedFact("The wedding is on 14 March 2027.", (2,), (), None, day)
    before = replace(lines("The wedding on 14 March 2027?")[0], number=0)
    for said, context in (((before.text, "Yes"), ()), (("Hm", "Yes, the wedding"), (before,))):
        held = ground_fact(fact, lines(*said), context)
        assert held is not None and held.about_date == day
    held = ground_fact(fact, lines("Hm", "Yes, the wedding"))
    assert held is not None and held.about_date is None


@pytest.mark.parametrize(
    ("text", "said", "is_held"),
    [
        ("Alice was born in Paris on 3 May 1971.", "hi there", False),
        ("Der Nutzer wohnt in Bern.", "Ich mag Kaffee und Tee", False),
        ("User turned 30 on 2026-05-02.", "I turned thirty last month", True),
        ("User lives in Porto.", "vivo en Oporto", True),
        ("The user works at Google.", "我在谷歌工作", True),
        ("User was born about 2014.", "ten years ago", True),
        ("User has 3 dogs.", "I have two dogs", False),
        ("User has 2 dogs.", "I have two dogs", True),
        ("User is 34 years old.", "I'm 34, three years older than Tom", True),
        ("The fair is from 3 May to 5 May.", "The fair is May 3 to 5", True),
    ],
)
def test_a_fact_that_names_or_counts_what_no_line_does_is_none(text: str, said: str, is_held: bool) -> None:
    held = ground_fact(ExtractedFact(text, (1,), (), None, None), lines(said))
    assert (held is not None) == is_held


@pytest.mark.parametrize(
    ("text", "parts", "foreign"),
    [
        ("User has a dog.", ["Der Nutzer hat einen Hund.", "Der Hund heißt Bello."], True),
        ("用户有一只猫。", ["User has a cat.", "The cat is black."], True),
        ("Der Nutzer hat einen Hund.", ["User has a dog.", "Der Hund heißt Bello."], False),
        ("Rex", ["Der Nutzer hat einen Hund.", "Der Hund heißt Rex."], False),
    ],
)
def test_a_language_is_told_where_it_can_be(text: str, parts: list[str], foreign: bool) -> None:
    assert is_foreign(text, parts) == foreign
    assert language_of("") is None and telling_words("") == frozenset()
