"""A baseline: plain BM25 over single messages, which fill what the window leaves of the same limit.

It shares nothing with the search that it is held against, except for the stop words: its words are letters
and digits, in lower case, stemmed; its constants are the usual ones, and a length is set against the average
of the conversation.  On LoCoMo at 4,000 tokens the stop words are worth a point, and the stems five.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import snowballstemmer  # type: ignore[import-untyped]

from bench.recall.contexts import Prompt, Read, flatten, put_singly
from bench.recall.data import Conversation
from strandline import Memory
from strandline.pipelines.text.lexemes import STOP_WORDS
from strandline.producers.tokens import count_default

BM25 = "plain BM25"
K1, B = 1.2, 0.75

_WORD = re.compile(r"\w+")
_STOP_WORDS = STOP_WORDS["english"]
_stemmer = snowballstemmer.stemmer("english")


class PlainBm25:
    """An index of texts, by their places."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(words_of(text)) for text in texts]
        self._lengths = [counts.total() for counts in self._counts]
        self._average = sum(self._lengths) / len(texts)
        self._holders = Counter(word for counts in self._counts for word in counts)

    def rank(self, query: str) -> list[int]:
        """The places of the texts that have a word of the query, best first; of equal ones the newest."""
        words = set(words_of(query))
        scores = {place: self._score(words, place) for place in range(len(self._counts))}
        return sorted((place for place in scores if scores[place]), key=lambda at: (-scores[at], -at))

    def _score(self, words: set[str], place: int) -> float:
        counts = self._counts[place]
        norm = K1 * (1 - B + B * self._lengths[place] / self._average)
        return sum(
            self._rarity(word) * counts[word] * (K1 + 1) / (counts[word] + norm)
            for word in words & counts.keys()
        )

    def _rarity(self, word: str) -> float:
        holders = self._holders[word]
        return math.log(1 + (len(self._counts) - holders + 0.5) / (holders + 0.5))


def words_of(text: str) -> list[str]:
    """The stems of the words, in order, without those that are in most texts."""
    words = (word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS)
    stems: list[str] = _stemmer.stemWords(words)
    return stems


@contextmanager
def open_bm25(url: str, conversation: Conversation, token_limit: int) -> Iterator[Mapping[str, Read]]:
    """The window is that of a session of ours which only archives what it flushes; turns fill the rest."""
    memory = Memory.from_defaults(
        f"{conversation.name}-archived-in-{token_limit}",
        memory_blocks=[],
        token_limit=token_limit,
        database_url=url,
    )
    try:
        messages = flatten(conversation)
        put_singly(memory, messages)
        window = memory.get()
    finally:
        memory.close()
    lines = [f"{one.get('name') or one['role']}: {one['content']}" for one in messages]
    flushed = lines[: len(lines) - len(window)]
    index = PlainBm25(lines)
    costs = [count_default(f"{line}\n") for line in flushed]

    def read(question: str) -> Prompt:
        room = token_limit - window.tokens
        chosen = []
        for place in index.rank(question):
            if place < len(flushed) and costs[place] <= room:
                room -= costs[place]
                chosen.append(flushed[place])
        return Prompt([*chosen, *(message.text for message in window)], token_limit - room)

    yield {BM25: read}
