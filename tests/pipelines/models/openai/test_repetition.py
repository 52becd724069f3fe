"""Streamed answers that repeat themselves end as cut off; others are read to their end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.models.openai.repetition import repeats_itself, until_repetition
from strandline.pipelines.models.openai.replies import MAX_VALUES, Body, read_completion

FACT = '{"text": "User has a cat.", "messages": [1], "topics": ["pets"], "said_by": null, "about_date": null}'
BEGUN = f'{{"facts": [{FACT}, '
REPEATED = [
    '"Mio, and I live in Bern.",\n          ',
    "the children's hospital, ",
    " ",
    "\n          \t  \t   ",
    "用户住在伯尔尼。",
    FACT + ",\n    ",
    "\\n\\n",
    '"\U0001f600", ',
]


def events(text: str, key: str = "content") -> bytes:
    delta = json.dumps({"choices": [{"index": 0, "delta": {key: text}}]})
    return f"data: {delta}\r\n\r\n".encode()


def words_of(text: str, size: int = 7) -> Iterator[str]:
    return (text[at : at + size] for at in range(0, len(text), size))


@pytest.mark.parametrize("key", ["content", "reasoning_content", "arguments"])
@pytest.mark.parametrize("passage", REPEATED)
def test_an_answer_without_an_end_is_ended(passage: str, key: str) -> None:
    def endless() -> Iterator[bytes]:
        yield from (events(word, key) for word in words_of(BEGUN))
        for _ in count():
            yield from (events(word, key) for word in words_of(passage))

    read = [*until_repetition(endless())]
    assert len(read) < 8_000
    if key == "content":
        completion = read_completion(Body(b"".join(read), {"content-type": "text/event-stream"}))
        assert completion.is_cut_off and completion.text.startswith(BEGUN)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"facts": [{"text": f"User counted {n} sheep.", "messages": [n]} for n in range(300)]}),
        json.dumps({"facts": [json.loads(FACT)] * 5}),
        json.dumps({"facts": [], "kept": list(range(1, 400))}, indent=1),
        json.dumps({"facts": list(range(400))}),
        json.dumps({"facts": [{"text": "User was busy.", "messages": list(range(20))}] * 3}, indent=4),
        " ".join(f"Week {n} was like week {n - 1}." for n in range(400)),
        "ha" * 900,
    ],
)
def test_an_answer_that_is_only_alike_is_read_to_its_end(text: str) -> None:
    sent = b"".join(map(events, words_of(text)))
    assert b"".join(until_repetition([sent])) == sent


@pytest.mark.parametrize("break_", [", ", ",\n          "])
def test_a_list_of_lines_that_counts_on_is_ended(break_: str) -> None:
    begun = BEGUN + '{"text": "User has a dog.", "messages": ['
    sent = b"".join(map(events, words_of(begun + break_.join(map(str, range(1, 400))))))
    completion = read_completion(Body(b"".join(until_repetition([*sent.splitlines(keepends=True)])), {}))
    assert completion.has_no_end and completion.text.startswith(begun)
    assert len(completion.text) < len(begun) + 24 * len(break_) + 300


@pytest.mark.parametrize("value", ["{}", "1 "])
def test_a_body_has_no_more_values_than_an_answer_can_have(value: str) -> None:
    assert sum(1 for _ in Body(value.encode() * (MAX_VALUES + 1), {}).values()) == MAX_VALUES


@given(st.lists(st.text(max_size=30)), st.lists(st.integers(0, 400)), st.binary(max_size=40))
def test_however_a_stream_is_cut_into_pieces_it_stays_the_same(
    texts: list[str], borders: list[int], end: bytes
) -> None:
    sent = b"".join(map(events, texts)) + end
    edges = sorted({0, len(sent), *(min(border, len(sent)) for border in borders)})
    pieces = [sent[begin:until] for begin, until in pairwise(edges)]
    assert b"".join(until_repetition(pieces)) == sent


@given(st.binary(min_size=1, max_size=400), st.binary(max_size=500))
def test_a_passage_over_and_over_repeats_itself(passage: bytes, before: bytes) -> None:
    assert repeats_itself(before + passage * (2_400 // len(passage) + 1))
    assert not repeats_itself(passage * (2_399 // len(passage)))
