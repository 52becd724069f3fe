"""Text is read in a time that grows with its length, whatever it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from functools import partial
from unicodedata import combining, normalize  # noqa: TID251 - to compare with

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.facts.grounding import may_mean
from strandline.pipelines.facts.kinds import kinds_of, subject_of
from strandline.pipelines.facts.statements import contradict, have_in_common, holds_all_of
from strandline.pipelines.models.contract import ExtractTask, SummaryTask, TranscriptLine
from strandline.pipelines.models.local.extractive import sentences, words
from strandline.pipelines.models.local.text_model import LocalTextModel
from strandline.pipelines.models.loose_json import find_values
from strandline.pipelines.redaction.contacts import redact_contacts
from strandline.pipelines.text.aim import aim_of
from strandline.pipelines.text.lexemes import lexemes, query_lexemes
from strandline.pipelines.text.numbers import is_miscounted
from strandline.pipelines.text.spoken_dates import spoken_date
from strandline.pipelines.text.tone import tone_of
from strandline.producers.blocks.render import message_line
from strandline.schemas.values.message import Message, speaker_name
from strandline.schemas.values.normal_form import MAX_MARKS, fingerprint, folded, normal_form, stream_safe
from tests.support.workers.within_cpu import Steps, patterns, stuck_in

# Processor seconds that a step may take: some twenty times what the slowest takes, also where a crowded
# processor is several times slower, and less than it would take with the square of the length.
LENGTH, SECONDS = 100_000, 15
PATTERN_LENGTH, PATTERN_SECONDS = 50_000, 4
NOW = datetime(2024, 3, 11, 9, 30, tzinfo=UTC)

# A mark of a higher class before one of a lower (the last two) is what has to be put in order.
SAID = (
    "a", " \n", "1", "1.", "a.", "'a", "A-", "mr. ", "yeah, ", "\u200d", "1\u1041", "\uac00 ", "\u0315\u0300",
    "\uff9e\u0315", "a@", "+4 ", "(0)", "4111 ", "tel ", "in May ", "en", "two ", "tjugo",
)  # fmt: skip
REPEATED = (
    *SAID, " ", "\n", "1,1", "`", "```", "```a", "{", "[", "-", ":", "/", "@", "%", ",", "model ", "a;",
    "\u1041a", "\u0e01a", "<", "&", "\n\n<", "3 weeks ", "x: ", "<think>",
)  # fmt: skip
BEGINNINGS = ("", "```json", "1.")

# Letters, and marks of several classes: some come to light only once a character is taken apart.
_MIXED = st.text(alphabet="aé\u1ea5\u0300\u0315\u0345\u0344\u0f73\u0f71\uff9e\u3099\ufb2c\u034fㅏ")


def _runs(text: str) -> list[int]:
    lengths = [0]
    for character in normalize("NFKD", text):
        if combining(character):
            lengths[-1] += 1
        else:
            lengths.append(0)
    return lengths


@given(_MIXED.map(lambda text: text * 7) | st.text())
def test_no_more_marks_in_a_row_are_put_in_order_than_a_language_writes(text: str) -> None:
    assert max(_runs(stream_safe(text))) <= MAX_MARKS
    assert stream_safe(text).replace("\u034f", "") == text.replace("\u034f", "")


@given(_MIXED | st.text())
def test_a_text_with_few_marks_has_the_normal_form_that_unicode_gives_it(text: str) -> None:
    if max(_runs(text)) <= MAX_MARKS:
        assert stream_safe(text) == text
        assert normal_form(text) == normalize("NFKC", text)
        assert folded(text) == normalize("NFKC", text).casefold()


def _answered(text: str) -> None:
    for answer in (text, f"```json{text}", f'```json{text}{{"summary": "-"}}'):
        find_values(answer)


def _steps_over_texts(length: int) -> Iterator[tuple[str, Callable[[], object]]]:
    local = LocalTextModel()
    reads: dict[str, Callable[[str], object]] = {
        "normal_form": normal_form,
        "speaker_name": lambda text: speaker_name(text, "user"),
        "redact_contacts": redact_contacts,
        "message_line": lambda text: message_line(Message("user", text, name=text)),
        "lexemes": lexemes,
        "query_lexemes": query_lexemes,
        "fingerprint": fingerprint,
        "holds_all_of": lambda text: holds_all_of(text, [text]),
        "have_in_common": lambda text: have_in_common(text, text),
        "may_mean": lambda text: may_mean(text, date(2000, 1, 1), NOW.date()),
        "sentences": sentences,
        "words": words,
        "spoken_date": lambda text: spoken_date(text, NOW.date()),
        "aim_of": lambda text: aim_of(text, NOW.date()),
        "tone_of": lambda text: tone_of(text, "user"),
        "kinds_of": kinds_of,
        "subject_of": subject_of,
        "contradict": lambda text: contradict(text, text),
        "is_miscounted": lambda text: is_miscounted(text, [text]),
        "an answer": _answered,
        "extract": lambda text: local.answer(
            ExtractTask((TranscriptLine(1, "user", text[:120], text, NOW),))
        ),
        "summary": lambda text: local.answer(
            SummaryTask("", (TranscriptLine(1, "user", text[:120], text, NOW),), 200)
        ),
    }
    texts = {repeated: repeated * (length // len(repeated)) for repeated in SAID}
    many = " ".join(f"word{number}" for number in range(length // len("word1234 ") // 2))
    texts["many words"] = f"{many}: {many}"
    for kind, text in texts.items():
        for name, read in reads.items():
            yield f"{name} of {kind!r}", partial(read, text)


def _steps_over_patterns(length: int) -> Iterator[tuple[str, Callable[[], object]]]:
    texts = {
        f"{beginning!r} and many {repeated!r}": beginning + repeated * (length // len(repeated))
        for repeated in REPEATED
        for beginning in BEGINNINGS
    }
    for name, pattern in patterns():
        for kind, text in texts.items():
            yield f"{name} over {kind}", partial(pattern.sub, "", text)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("work", "length", "seconds"),
    [(_steps_over_texts, LENGTH, SECONDS), (_steps_over_patterns, PATTERN_LENGTH, PATTERN_SECONDS)],
)
def test_nothing_that_stands_in_a_text_holds_up_a_process(work: Steps, length: int, seconds: int) -> None:
    assert stuck_in(work, length, seconds) is None
