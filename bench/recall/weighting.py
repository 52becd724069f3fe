"""``python -m bench.recall.weighting``: which weighting finds most, and how sure that is.

Weightings are drawn from a grid and tried on all conversations, with the embedder and by words alone.  Each
conversation is then judged by the weighting that is best on all the others (leave one conversation out), so
that no figure is of conversations that its weighting was chosen on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from bench.recall.data import DEFAULT_FOLDER, WHERE, conversations
from bench.recall.scoring import (
    Floats,
    Prepared,
    TextWeighting,
    VectorWeighting,
    contrasts,
    fuse,
    prepare,
    recalled,
    text_scores,
)
from bench.suite import say
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from strandline.pipelines.text.weighting import K1, NEARBY, USUAL_LENGTH, WORDS_BESIDE_VECTOR, B

# As searches have it (schemas/sql/functions/search_v1.sql).
STANDING = (
    TextWeighting(K1, B, USUAL_LENGTH, (NEARBY[1], NEARBY[2], NEARBY[3])),
    VectorWeighting(1 - WORDS_BESIDE_VECTOR, 10),
)

BESIDE = (
    (0.0, 0.0, 0.0),
    (0.2, 0.0, 0.0),
    (0.3, 0.1, 0.0),
    (0.3, 0.3, 0.3),
    (0.3, 0.4, 0.1),
    (0.4, 0.2, 0.1),
    (0.4, 0.3, 0.1),
    (0.4, 0.4, 0.2),
    (0.5, 0.25, 0.1),
    (0.5, 0.5, 0.2),
    (0.6, 0.4, 0.2),
    (0.8, 0.6, 0.4),
)
TEXTS = [
    TextWeighting(k1, b, length, beside)
    for k1, b, length, beside in product(
        (0.6, 0.9, 1.2, 1.6, 2.0), (0.3, 0.5, 0.75, 1.0), (20, 30, 40, 60, 80, 160), BESIDE
    )
]
VECTORS = [
    VectorWeighting(share, few)
    for share, few in product((0.3, 0.4, STANDING[1].share, 0.6, 0.7), (0, 10, 30, 100))
]

Weighting = tuple[TextWeighting, VectorWeighting]


@dataclass(frozen=True, slots=True)
class Tried:
    """One weighting, and what it found: R@10 of each question, by words alone and with the embedder."""

    weighting: Weighting
    words: Floats
    embedder: Floats

    @property
    def both(self) -> Floats:
        return (self.words + self.embedder) / 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recall.weighting", description=__doc__)
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, help="the folder of the conversations")
    parser.add_argument("--draws", type=int, default=300, help="weightings of words to try (300)")
    parser.add_argument("--seconds", type=float, default=300.0, help="draw no more after so long (300)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    arguments = parser.parse_args()
    found = conversations(arguments.data)
    if not found:
        print(f"There are no conversations in {arguments.data}.\n{WHERE}", file=sys.stderr)
        return 2
    say(f"counting and embedding {len(found)} conversations")
    embedder = WordLlamaEmbedder()
    prepared = [prepare(one, embedder) for one in found]
    draw = Random(arguments.seed)  # noqa: S311  # to be repeated, not to be secret
    others = [one for one in TEXTS if one != STANDING[0]]
    drawn = [STANDING[0], *draw.sample(others, min(max(0, arguments.draws), len(others)))]
    tried = list(try_all(prepared, drawn, time.monotonic() + arguments.seconds))
    print("\n".join(report(prepared, tried)))
    return 0


def try_all(prepared: Sequence[Prepared], drawn: Sequence[TextWeighting], until: float) -> Iterator[Tried]:
    """Each weighting of words with all of vectors, the standing one first; none is begun after ``until``."""
    near = {few: [contrasts(one, few) for one in prepared] for few in {one.few for one in VECTORS}}
    for number, text in enumerate(drawn, start=1):
        if time.monotonic() > until:
            say(f"the time is over: {number - 1} of {len(drawn)} weightings of words were tried")
            return
        if number % 25 == 1:
            say(f"weighting of words {number} of {len(drawn)}")
        scores = [text_scores(one, text) for one in prepared]
        words = np.concatenate(
            [recalled(one, fuse(one, score)) for one, score in zip(prepared, scores, strict=True)]
        )
        for vector in VECTORS:
            together = [
                recalled(one, fuse(one, score, contrast, vector.share))
                for one, score, contrast in zip(prepared, scores, near[vector.few], strict=True)
            ]
            yield Tried((text, vector), words, np.concatenate(together))


def left_out(
    tried: Sequence[Tried], conversation_of: Sequence[int]
) -> tuple[list[Weighting], Floats, Floats]:
    """Per conversation the weighting that is best on the others; what these find of each question."""
    belongs = np.array(conversation_of)
    both = np.array([one.both for one in tried])
    chosen = []
    words, embedder = np.zeros(len(belongs)), np.zeros(len(belongs))
    for conversation in range(belongs.max() + 1):
        held_out = belongs == conversation
        best = tried[int(np.argmax(both[:, ~held_out].mean(axis=1)))]
        chosen.append(best.weighting)
        words[held_out], embedder[held_out] = best.words[held_out], best.embedder[held_out]
    return chosen, words, embedder


def report(prepared: Sequence[Prepared], tried: Sequence[Tried]) -> Iterator[str]:
    """The lines that are printed."""
    conversation_of = [at for at, one in enumerate(prepared) for _ in one.evidence]
    collections = np.array([prepared[at].collection for at in conversation_of])
    best = max(tried, key=lambda one: float(one.both.mean()))
    chosen, words, embedder = left_out(tried, conversation_of)
    others = [one for one in tried if one.weighting[0] != STANDING[0]]
    yield f"R@10, per cent, of {len(tried)} weightings; words alone / with the local embedder"
    yield _line("best on all of them", collections, best.words, best.embedder)
    yield _line("leave one out", collections, words, embedder)
    if others:
        yield _line("  others than standing", collections, *left_out(others, conversation_of)[1:])
    for one in tried:
        text, vector = one.weighting
        if text == STANDING[0] and vector.share == STANDING[1].share:
            title = "as search_v1 has it" if one.weighting == STANDING else f"  with few {vector.few:g}"
            yield _line(title, collections, one.words, one.embedder)
    yield f"best on all of them: {_described(best.weighting)}"
    for weighting in dict.fromkeys(chosen):
        yield f"chosen for {chosen.count(weighting)} of {len(chosen)}: {_described(weighting)}"


def _line(title: str, collections: NDArray[np.str_], words: Floats, embedder: Floats) -> str:
    return f"{title:<22}" + "".join(
        f"  {name} {_per_cent(words[collections == name])} / {_per_cent(embedder[collections == name])}"
        for name in dict.fromkeys(collections.tolist())
    )


def _per_cent(found: Floats) -> str:
    return f"{100 * found.mean():.1f}"


def _described(weighting: Weighting) -> str:
    text, vector = weighting
    return (
        f"k1 {text.k1}, b {text.b}, length {text.length}, beside {text.beside},"
        f" vectors {vector.share}, few {vector.few}"
    )


if __name__ == "__main__":
    sys.exit(main())
