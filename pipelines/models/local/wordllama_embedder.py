"""A local embedder: wordllama's static token vectors, averaged.  No key, no network, no GPU.

Vectors (256 dimensions) and tokenizer lie inside the wordllama wheel; results equal those of wordllama's own
``embed``.  This module imports numpy and the tokenizer's library at once, so it is itself imported only where
the local embedder is used.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import BPE

from strandline.pipelines.models.embedding_batches import InProcessEmbedder
from strandline.pipelines.models.local.text_model import EMBEDDER, EMBEDDER_DIMENSIONS
from strandline.schemas.errors import ConfigurationError

# Static vectors are averaged over a text: what follows after some pages hardly moves the average.
MAX_TEXT_CHARACTERS = 32_000
# 64 kB of vectors. glibc maps and unmaps blocks larger than twice that each time.
TOKENS_AT_ONCE = 128


class WordLlamaEmbedder(InProcessEmbedder):
    """Embeds in-process; safe to call from many threads (nothing is written after loading).

    All of a process share one model: some 12 MB, plus 16 MB of vectors that all processes share.
    """

    model, dimensions, max_characters = EMBEDDER, EMBEDDER_DIMENSIONS, MAX_TEXT_CHARACTERS

    def __init__(self) -> None:
        self._vectors, self._tokenizer = _model()

    def embed_one(self, text: str) -> Sequence[float]:
        """The direction of the average, which is that of the sum.

        Sums of half-precision numbers are exact in double precision: they depend neither on the order nor
        on the machine.
        """
        # One text at a time: for a batch the library starts its own threads, which a fork would break.
        tokens = self._tokenizer.encode(text, add_special_tokens=False).ids
        total = np.zeros(EMBEDDER_DIMENSIONS)
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            total += self._vectors[tokens[start : start + TOKENS_AT_ONCE]].sum(axis=0, dtype=np.float64)
        return list(total.tolist())


@cache
def _model() -> tuple[TokenVectors, Tokenizer]:
    # Each generation of vectors has its own embedder, and so has a process that also searches.
    return load_model(find_files(), EMBEDDER_DIMENSIONS)


VECTORS = Path("weights", "l2_supercat_256.safetensors")
TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")

TokenVectors = npt.NDArray[np.float16]

_TENSOR = "embedding.weight"
_LENGTH_BYTES = 8


def find_files() -> Path:
    """The folder of the installed package.

    Raises:
        ModuleNotFoundError: wordllama is not installed.
    """
    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'wordllama'", name="wordllama")
    return Path(next(iter(spec.submodule_search_locations)))


def load_model(folder: Path, dimensions: int) -> tuple[TokenVectors, Tokenizer]:
    """The vectors by token number, and what turns a text into such numbers.

    Raises:
        ConfigurationError: a file is missing, or holds something else than it should.
    """
    try:
        vectors = _map_vectors(folder / VECTORS)
        tokenizer = _read_tokenizer(folder / TOKENIZER)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _unusable(folder, f"{type(error).__name__}: {error}") from error
    _give_back_freed_memory()
    tokens = tokenizer.get_vocab_size()
    if vectors.shape != (tokens, dimensions):
        raise _unusable(folder, f"{tokens} tokens have vectors of the shape {vectors.shape}")
    return vectors, tokenizer


def _unusable(folder: Path, problem: str) -> ConfigurationError:
    return ConfigurationError(
        f"The files of the local embedding model in {folder} cannot be used ({problem}). Install them again:"
        " pip install --force-reinstall wordllama"
    )


def _map_vectors(file: Path) -> TokenVectors:
    """Read-only and mapped: all processes share the pages, and the system may take them back."""
    with file.open("rb") as opened:
        header_bytes = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        if header_bytes > file.stat().st_size:
            raise ValueError("the file is not a safetensors file")
        tensor = json.loads(opened.read(header_bytes))[_TENSOR]
    if tensor["dtype"] != "F16":
        raise ValueError(f"the vectors are {tensor['dtype']}, not F16")
    begin = _LENGTH_BYTES + header_bytes + tensor["data_offsets"][0]
    mapped = np.memmap(file, dtype="<f2", mode="r", offset=begin, shape=tuple(tensor["shape"]))
    # As a plain array: slices of a memmap are memmaps.
    return mapped.view(np.ndarray)


def _read_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer, without its cache.

    The cache keeps each of the last 10,000 texts *per thread*, 40 MB or more for each. It is meant for
    words; this tokenizer takes a text as one word, so next to none is met again.  What reads the file has
    no argument for it, so the model in it is made here.
    """
    described: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    options = {name: value for name, value in described["model"].items() if value is not None}
    if options.pop("type") != "BPE":
        raise ValueError("the tokenizer is not a BPE")
    # Newer releases of the library write a pair as a list.
    merges = [tuple(pair.split(" ") if isinstance(pair, str) else pair) for pair in options.pop("merges")]
    added = {token["content"]: token["id"] for token in described["added_tokens"]}
    described["model"] |= {"vocab": added, "merges": []}
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.model = BPE(merges=merges, cache_capacity=0, **options)
    return tokenizer


def _give_back_freed_memory() -> None:
    """Return freed memory, which glibc would keep, to the system."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
