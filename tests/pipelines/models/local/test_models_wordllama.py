"""The local embedder: the vectors that wordllama gives, in a fraction of its memory."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from strandline.pipelines.models.embedding_batches import ready_to_embed, unit_length
from strandline.pipelines.models.local.text_model import EMBEDDER_DIMENSIONS
from strandline.pipelines.models.local.wordllama_embedder import (
    MAX_TEXT_CHARACTERS,
    TOKENIZER,
    VECTORS,
    WordLlamaEmbedder,
    find_files,
    load_model,
)
from strandline.schemas.errors import ConfigurationError

EMBEDDER = WordLlamaEmbedder()

# Texts that may trip a tokenizer: its special tokens, its own mark for a space, runs of spaces, bytes that
# it has no token for, and words of which one begins another.
ODD = (
    "<s>",
    "</s>",
    "<unk>",
    "\u2581",
    "  ",
    "\n\t",
    "<0x0A>",
    "\x00",
    "e\u0301",
    "\U0001f9d1\u200d\U0001f680",
)
SAID = (
    "My sister Eva moved to Graz",
    "I'd re-read it, 3.50 each!",
    "我昨天搬到北京工作。",
    "привет",
    "internationally",
)
texts = st.lists(st.one_of(st.sampled_from(ODD + SAID), st.text(max_size=30)), max_size=12).map("".join)


@pytest.fixture(scope="module")
def original() -> Callable[[list[str]], list[tuple[float, ...]]]:
    """What wordllama itself makes of texts."""
    wordllama: Any = pytest.importorskip("wordllama")
    model = wordllama.WordLlama.load(dim=EMBEDDER_DIMENSIONS, cache_dir=find_files(), disable_download=True)
    return lambda given: [unit_length(row) for row in model.embed(given).tolist()]


def cosine(left: tuple[float, ...], right: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


@given(st.lists(texts, min_size=1, max_size=6))
@example(["<s>", "</s><s>", "<unk>", "a", "\U0001f9d1", " ", "\n", "\u2581", "ſ"])
@example([" ".join(SAID) * 20, "x" * 1_000, "short"])
def test_vectors_are_those_of_wordllama(
    original: Callable[[list[str]], list[tuple[float, ...]]], said: list[str]
) -> None:
    # It sums in single precision.
    for ours, theirs in zip(EMBEDDER.embed(said).vectors, original(ready_to_embed(said)), strict=True):
        assert ours == pytest.approx(theirs, abs=2e-6)


def test_vectors_are_of_unit_length_in_order_and_mean_something() -> None:
    said = [
        "My dog is a puppy",
        "",
        "x" * 200_000,
        "Interest rates rose again",
        "I bought a young dog",
        "\ud800",
    ]
    answer = EMBEDDER.embed(said)
    assert answer.model == "wordllama-l2-supercat-256"
    assert all(len(vector) == EMBEDDER.dimensions == 256 for vector in answer.vectors)
    assert all(math.hypot(*vector) == pytest.approx(1.0, abs=1e-12) for vector in answer.vectors)
    puppy, _, _, rates, young, _ = answer.vectors
    assert cosine(puppy, young) > cosine(puppy, rates) + 0.2
    assert EMBEDDER.embed([]).vectors == ()


def test_a_vector_does_not_depend_on_its_neighbours() -> None:
    said = [f"{'word ' * (n * 7 % 200)}number {n}" for n in range(150)]
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda text: EMBEDDER.embed([text]).vectors[0], said))
    assert EMBEDDER.embed(said).vectors == tuple(alone)


def test_long_texts_are_embedded_by_their_beginning() -> None:
    text = "honey " * 10_000
    assert EMBEDDER.embed([text]).vectors == EMBEDDER.embed([text[:MAX_TEXT_CHARACTERS]]).vectors


EMBED_IN_THREADS = """
import sys, threading
from pathlib import Path
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

before = resident()
embedders = [WordLlamaEmbedder() for _ in range(8)]
embedders[0]._vectors.sum()  # each page of the file was touched
turn = threading.Barrier(9)

def embed(thread):
    for some in (20, 1_000):
        for n in range(some):
            embedders[thread].embed([f"{thread} said {n} that these are {n * 7} of the words it has"])
        embedders[thread].embed(["a longer one, as a batch may have " * 20] * 64)
        turn.wait()

for thread in range(8):
    threading.Thread(target=embed, args=(thread,)).start()
turn.wait()
few = resident()
turn.wait()
many = resident()
print(few - before, many - few)
unwanted = {"requests", "wordllama", "safetensors"} & set(sys.modules)
assert not unwanted, unwanted
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_memory_is_bounded_whatever_number_of_texts_and_threads() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EMBED_IN_THREADS],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    held, grown = map(float, done.stdout.split())
    assert held < 50
    assert grown < 4


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A copy of the model's files, to be damaged."""
    for name in (VECTORS, TOKENIZER):
        (tmp_path / name).parent.mkdir()
        shutil.copy(find_files() / name, tmp_path / name)
    return tmp_path


def replaced(tensor: dict[str, object]) -> Callable[[bytes], bytes]:
    """The vectors' file under another header."""
    header = json.dumps({"embedding.weight": {"data_offsets": [0, 0]} | tensor}).encode()
    return lambda content: len(header).to_bytes(8, "little") + header + content[8:]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (VECTORS, lambda content: content[:100_000]),
        (VECTORS, lambda _: b""),
        (VECTORS, lambda _: b"version https://git-lfs.github.com/spec/v1"),
        (VECTORS, replaced({"dtype": "F32", "shape": [8_000, 256]})),
        (VECTORS, replaced({"dtype": "F16", "shape": [32_000, 128]})),
        (VECTORS, replaced({"dtype": "F16", "shape": [31_999, 256]})),
        (TOKENIZER, lambda content: content[:-100]),
        (TOKENIZER, lambda _: b"{}"),
        (TOKENIZER, lambda _: b'{"model": null}'),
        (TOKENIZER, lambda content: content.replace(b'"BPE"', b'"Unigram"')),
    ],
)
def test_damaged_files_are_named(files: Path, name: Path, damage: Callable[[bytes], bytes]) -> None:
    (files / name).write_bytes(damage((files / name).read_bytes()))
    with pytest.raises(ConfigurationError, match="force-reinstall wordllama") as raised:
        load_model(files, EMBEDDER_DIMENSIONS)
    assert str(files) in str(raised.value)


def test_pairs_may_be_written_as_lists(files: Path) -> None:
    described = json.loads((files / TOKENIZER).read_text(encoding="utf-8"))
    described["model"]["merges"] = [pair.split(" ") for pair in described["model"]["merges"]]
    (files / TOKENIZER).write_text(json.dumps(described), encoding="utf-8")
    _, read = load_model(find_files(), EMBEDDER_DIMENSIONS)
    _, written_anew = load_model(files, EMBEDDER_DIMENSIONS)
    said = " ".join(SAID + ODD)
    assert written_anew.encode(said).ids == read.encode(said).ids


@pytest.mark.parametrize("name", [VECTORS, TOKENIZER])
def test_missing_files_are_named(files: Path, name: Path) -> None:
    (files / name).unlink()
    with pytest.raises(ConfigurationError, match=name.name):
        load_model(files, EMBEDDER_DIMENSIONS)
