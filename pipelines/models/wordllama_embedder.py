"""A local embedder: wordllama's static token vectors, averaged.  No key, no network, no GPU.

The weights (256 dimensions) and the tokenizer lie inside the wordllama wheel.  This module imports
wordllama at once, so it is itself imported only where the local embedder is used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from strandline.pipelines.models.contract import EmbeddingAnswer
from strandline.pipelines.models.embedding_batches import ready_to_embed, unit_length
from strandline.pipelines.models.local import EMBEDDER, EMBEDDER_DIMENSIONS

# Static vectors are averaged over a text: what follows after some pages hardly moves the average, yet a
# batch is padded to its longest text, at a kilobyte of memory per token.
MAX_TEXT_CHARACTERS = 32_000
MAX_PADDED_CHARACTERS = 128_000
MAX_TEXTS = 64


@contextmanager
def _root_logger_left_alone() -> Iterator[None]:
    """Undo what ``logging.basicConfig`` does when wordllama is imported."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        yield
    finally:
        root.setLevel(level)
        for handler in [added for added in root.handlers if added not in handlers]:
            root.removeHandler(handler)


with _root_logger_left_alone():
    import wordllama  # type: ignore[import-untyped]


class WordLlamaEmbedder:
    """Embeds in-process; safe to call from many threads (nothing is written after loading)."""

    def __init__(self) -> None:
        # With both arguments wordllama looks for its files where the wheel put them, and nowhere else.
        self._inference = wordllama.WordLlama.load(
            dim=EMBEDDER_DIMENSIONS, cache_dir=Path(wordllama.__file__).parent, disable_download=True
        )

    @property
    def model(self) -> str:
        return EMBEDDER

    @property
    def dimensions(self) -> int:
        return EMBEDDER_DIMENSIONS

    def wait_seconds(self) -> float:
        return 0.0

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        """Embed ``texts`` in order; of each, the first 32,000 characters count.

        ``timeout_seconds`` is not needed: a text takes a fraction of a millisecond.
        """
        ready = [text[:MAX_TEXT_CHARACTERS] for text in ready_to_embed(texts)]
        vectors: list[tuple[float, ...]] = [()] * len(ready)
        for numbers in _similar_lengths(ready):
            rows = self._inference.embed([ready[number] for number in numbers])
            for number, row in zip(numbers, rows.tolist(), strict=True):
                vectors[number] = unit_length(row)
        return EmbeddingAnswer(tuple(vectors), EMBEDDER, 0)


def _similar_lengths(texts: Sequence[str]) -> Iterator[list[int]]:
    """Numbers of texts to embed together: of similar length, since each is padded to the longest."""
    batch: list[int] = []
    for number in sorted(range(len(texts)), key=lambda n: len(texts[n])):
        if batch and (
            len(batch) >= MAX_TEXTS or (len(batch) + 1) * len(texts[number]) > MAX_PADDED_CHARACTERS
        ):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
