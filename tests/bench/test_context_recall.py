"""What a plain read gives of a question's evidence: a floor, how it is judged, and the command."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from bench.recall.bm25 import BM25, PlainBm25, open_bm25
from bench.recall.contexts import (
    ALL_GIVEN,
    GIVEN,
    OVER,
    TOKENS,
    Open,
    Prompt,
    flatten,
    judge_prompt,
    measure_contexts,
    open_memory,
)
from bench.recall.data import BEAM, LOCOMO, Conversation, Question, conversations
from bench.recall.measure import embedding_by, load_llamaindex
from bench.recall.scoring import VectorWeighting, prepare
from bench.recall.searches import RECALL, judge_search, measure_searches
from bench.recall.tables import ALL, EMBEDDER, WORDS, Score, Table, as_json
from bench.recall.weighting import STANDING, Tried, left_out, try_all
from strandline import Memory
from strandline.pipelines.models.factory import build_embedder
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from strandline.producers.evaluation.asking import forms_of
from strandline.schemas.settings import load_settings
from tests.support.processes import forking
from tests.support.servers.embedder_servers import random_vectors

ROOT = Path(__file__).resolve().parent.parent.parent
SECONDS = 550
AGAIN_SECONDS = 20


def spoken_sample() -> Conversation:
    """The sample without messages that have no text, which LoCoMo and BEAM do not have either."""
    whole = sample()
    sessions = [[one for one in session if isinstance(one["content"], str)] for session in whole.sessions]
    return replace(whole, sessions=sessions)


def figures_of(database_url: str, token_limit: int, open_reads: Open) -> dict[tuple[str, str], list[float]]:
    """Each figure of each question, by method."""
    conversation = spoken_sample()
    figures: dict[tuple[str, str], list[float]] = {}
    for one in measure_contexts(database_url, conversation, token_limit, open_reads):
        figures.setdefault((one.method, one.figure), []).append(one.value)
    assert {len(values) for values in figures.values()} == {len(conversation.questions)}
    return figures


def means_of(figures: dict[tuple[str, str], list[float]]) -> dict[tuple[str, str], float]:
    return {key: mean(values) for key, values in figures.items()}


def test_reads_of_the_sample_give_its_evidence_within_the_limit(database_url: str) -> None:
    figures = figures_of(database_url, 2_000, open_memory)
    means = means_of(figures)
    for method in (WORDS, EMBEDDER):
        assert means[method, GIVEN] >= 0.6
        assert means[method, ALL_GIVEN] <= means[method, GIVEN]
        assert 1_000 <= means[method, TOKENS] <= 2_000
        assert means[method, OVER] == 0
    # Question by question: two means can be equal by chance.
    assert figures[EMBEDDER, TOKENS] != figures[WORDS, TOKENS]


def test_plain_bm25_fills_what_the_window_leaves(database_url: str) -> None:
    means = means_of(figures_of(database_url, 2_000, open_bm25))
    assert means[BM25, GIVEN] >= 0.5
    assert means[BM25, OVER] == 0
    assert means[BM25, TOKENS] >= 1_900


def test_the_window_of_the_baseline_is_that_of_the_memory(database_url: str) -> None:
    conversation = spoken_sample()
    memory = Memory.from_defaults("s", token_limit=2_000, memory_blocks=[], database_url=database_url)
    for message in flatten(conversation):
        memory.put(message)
    window = [message.text for message in memory.get()]
    memory.close()
    with open_bm25(database_url, conversation, 2_000) as reads:
        assert list(reads[BM25]("zzz").texts) == window
        given = reads[BM25]("Which names did the boat have?").texts
    assert list(given[len(given) - len(window) :]) == window
    assert len(set(given)) == len(given) > len(window)


def test_bm25_ranks_rare_words_and_short_texts_first() -> None:
    texts = ["the boat", "the boat has a mast", "the boat has one mast and a rudder", "the the", "a rudder"]
    index = PlainBm25(texts)
    assert index.rank("masts")[0] == 1
    assert index.rank("the rudder")[0] == 4
    assert index.rank("aeroplane") == []


def test_llamaindex_gives_its_window_and_what_its_block_holds(database_url: str) -> None:
    pytest.importorskip("llama_index.core", reason="the extra 'bench' brings it")
    opener = load_llamaindex()
    means = means_of(figures_of(database_url, 8_000, opener))
    ((method, _), *_) = means
    assert 0 < means[method, GIVEN] < 1
    with opener(database_url, spoken_sample(), 8_000) as reads:
        (read,) = reads.values()
        memory, *window = read("Which names did the boat have?").texts
    # Two of the nodes that it made of flushed messages.
    assert memory.count("<message role='user'>") > 2
    assert window


def test_evidence_counts_as_it_is_rendered_whatever_the_white_space() -> None:
    shown = forms_of("A <mast>,\n  and a sail")
    whole = Prompt(["Maren: A &lt;mast&gt;,\n  and   a sail"], 10)
    raw = Prompt(["A <mast>, and a sail"], 11)
    part = Prompt(["A &lt;mast&gt;, and"], 9)
    assert judge_prompt([shown], whole, 10) == {GIVEN: 1, ALL_GIVEN: 1, TOKENS: 10, OVER: 0}
    assert judge_prompt([shown], raw, 10) == {GIVEN: 1, ALL_GIVEN: 1, TOKENS: 11, OVER: 1}
    assert judge_prompt([shown], part, 10)[GIVEN] == 0
    # A message that the conversation does not have is never given.
    assert judge_prompt([shown, frozenset()], whole, 10) == {GIVEN: 0.5, ALL_GIVEN: 0, TOKENS: 10, OVER: 0}


def scored(collection: str, category: str, method: str, *values: float) -> list[Score]:
    figures = (GIVEN, ALL_GIVEN, TOKENS)
    return [
        Score(collection, "a", category, figure, method, value, 2_000)
        for figure, value in zip(figures, values, strict=True)
    ]


def test_a_table_averages_over_questions() -> None:
    scores = [
        *scored(LOCOMO, "temporal", WORDS, 1.0, 1.0, 1_000),
        *scored(LOCOMO, "multi-hop", WORDS, 0.0, 0.0, 1_500),
        *scored(LOCOMO, "temporal", WORDS, 0.5, 0.0, 500),
        *scored(LOCOMO, "temporal", EMBEDDER, 1.0, 1.0, 2_000),
        *scored(LOCOMO, "temporal", EMBEDDER, 1.0, 1.0, 3_000),
        *scored(LOCOMO, "multi-hop", EMBEDDER, 0.7, 0.0, 1_000),
    ]
    text = Table("LoCoMo", scores, [GIVEN, ALL_GIVEN], [(TOKENS, "mean"), (TOKENS, "in all")]).as_text()
    assert [line.split() for line in text.splitlines() if "multi-hop" not in line] == [
        ["LoCoMo"],
        ["questions", "words", "alone", "embedder"],
        ["temporal", "2", "75.0", "/", "50.0", "100.0", "/", "100.0"],
        ["all", "questions", "3", "50.0", "/", "33.3", "90.0", "/", "66.7"],
        ["tokens,", "mean", "1,000", "2,000"],
        ["tokens,", "in", "all", "3,000", "6,000"],
    ]
    written = json.loads(as_json([*scores, *scored(BEAM, "ordering", WORDS, 0.5, 0.0, 1)]))
    assert {
        "collection": LOCOMO,
        "category": ALL,
        "figure": GIVEN,
        "token_limit": 2_000,
        "method": WORDS,
        "questions": 3,
        "mean": 0.5,
    } in written["lines"]
    assert {one["conversation"] for one in written["conversations"]} == {"a"}


def publish(folder: Path) -> Path:
    """A conversation in the form of LoCoMo, and one in that of BEAM."""
    (folder / "locomo").mkdir()
    (folder / "beam100k" / "7").mkdir(parents=True)
    lines = [
        {
            "id": f"D{session}:{at}",
            "role": "assistant" if at % 2 else "user",
            "name": "Ann" if at % 2 else "Ben",
            "content": f"On trip {session} we saw island number {at}, which has a lighthouse of {at} floors.",
            "created_at": f"2026-03-{session + 1:02}T10:{at:02}:00+00:00",
            "metadata": {"session": session},
        }
        for session in range(2)
        for at in range(30)
    ]
    asked = [{"question": "Which island did they see?", "category": 4, "evidence": ["D0:3", "D1:4"]}]
    (folder / "locomo" / "conv-1.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (folder / "locomo" / "conv-1.qa.json").write_text(json.dumps(asked), encoding="utf-8")
    turns = [[{"role": one["role"], "id": at, "content": one["content"]} for at, one in enumerate(lines)]]
    probes = {"event_ordering": [{"question": "Which trip was first?", "source_chat_ids": [1, 2]}]}
    beam = folder / "beam100k" / "7"
    (beam / "chat.json").write_text(json.dumps([{"turns": turns}]), encoding="utf-8")
    (beam / "probing_questions.json").write_text(json.dumps(probes), encoding="utf-8")
    return folder


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """The command; one that is still there in the end is told to end, so that it ends its own processes."""
    command = [sys.executable, "-m", "bench.recall", *map(str, arguments)]
    with forking.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate()


def run(*arguments: object) -> tuple[int, str, str]:
    """Its exit code, and what it printed as figures and as progress."""
    with started(*arguments) as process:
        printed, progress = process.communicate(timeout=SECONDS)
    return process.returncode, printed, progress


def test_the_command_prints_each_part_of_each_data_set(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    code, printed, progress = run(
        "--data", publish(tmp_path), "--quick", "--limits", 800, 900, "--json", file
    )
    assert code == 0, progress
    for title in (f"{LOCOMO}: R@10", f"{BEAM}: R@10", f"{LOCOMO}: sessions", f"{BEAM} at 800 tokens"):
        assert title in printed
    assert "900 tokens" not in printed
    assert f"{BEAM}: sessions" not in printed
    lines = json.loads(file.read_text(encoding="utf-8"))["lines"]
    methods = {one["method"] for one in lines if one["figure"] == GIVEN}
    assert {WORDS, EMBEDDER, BM25} <= methods
    assert len(methods) == 4 or "llamaindex: not measured" in progress


def test_a_stand_in_embeds_while_it_is_measured() -> None:
    before = dict(os.environ)
    with embedding_by("random"):
        embedder = build_embedder(load_settings(), "query_embedding")
        (vector,) = embedder.embed(["a boat"]).vectors
    assert embedder.model == "random"
    assert list(vector) == pytest.approx(random_vectors(["a boat"])[0].tolist())
    assert dict(os.environ) == before


def test_the_command_measures_what_its_options_name(tmp_path: Path) -> None:
    options = ("--only", "bm25", "--data-set", "locomo", "--conversations", "conv-1", "--limits", 800)
    code, printed, progress = run("--data", publish(tmp_path), *options)
    assert code == 0, progress
    assert [line for line in printed.splitlines() if line and not line.startswith(" ")] == [
        f"{LOCOMO} at 800 tokens: {GIVEN} / questions with {ALL_GIVEN}, per cent"
    ]
    assert BM25 in printed and WORDS not in printed


@pytest.mark.parametrize(
    ("options", "reason"),
    [(("--conversations", "conv-2"), "there are conv-1, beam-7"), (("--limits", "3"), "no message fits")],
)
def test_options_that_name_nothing_are_refused(tmp_path: Path, options: tuple[str, ...], reason: str) -> None:
    code, _, progress = run("--data", publish(tmp_path), *options)
    assert code == 2, progress
    assert reason in progress


def interrupt(process: subprocess.Popen[str]) -> str:
    """Its progress. A signal that comes just before a call that waits is seen only at the next one."""
    for _ in range(SECONDS // AGAIN_SECONDS):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            _, progress = process.communicate(timeout=AGAIN_SECONDS)
            return progress
    raise AssertionError("it does not end")


def test_an_interrupted_run_has_printed_the_tables_before(tmp_path: Path) -> None:
    # It stands still where it opens the pipe, for nobody reads it, with its first table printed.
    pipe = tmp_path / "figures.json"
    os.mkfifo(pipe)
    with started("--data", publish(tmp_path), "--json", pipe) as process:
        assert process.stdout is not None
        assert any("all questions" in line for line in process.stdout)
        progress = interrupt(process)
    assert process.returncode == 130, progress
    assert "interrupted" in progress and "Traceback" not in progress


# What searches find of real conversations: a floor under the figures of docs/performance.md.
SHARED = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"


def recalled(database_url: str, conversation: Conversation) -> tuple[float, float]:
    """R@10 in per cent, by words alone and with the local embedder."""
    scores = [one for one in measure_searches(database_url, conversation) if one.figure == RECALL]
    assert len(scores) == 2 * len(conversation.questions)
    words, embedder = (
        100 * mean(one.value for one in scores if one.method == method) for method in (WORDS, EMBEDDER)
    )
    return words, embedder


def sample() -> Conversation:
    folder = resources.files("strandline") / "samples"
    lines = (folder / "conversation.jsonl").read_text(encoding="utf-8").splitlines()
    sessions: dict[int, list[dict[str, object]]] = {}
    for line in map(json.loads, lines):
        sessions.setdefault(line["metadata"]["session"], []).append(line)
    asked = json.loads((folder / "conversation.qa.json").read_text(encoding="utf-8"))
    questions = [Question(one["question"], str(one["category"]), frozenset(one["evidence"])) for one in asked]
    return Conversation(
        "sample", "sample", list(sessions.values()), [one for one in questions if one.evidence]
    )


def test_the_sample_conversation_is_recalled(database_url: str) -> None:
    words, embedder = recalled(database_url, sample())
    assert words >= 65
    assert embedder >= 72
    # Weightings are tried outside of the database; the current one must find the same as the search.
    tried = try_all([prepare(sample(), WordLlamaEmbedder())], [STANDING[0]], math.inf)
    (standing,) = (one for one in tried if one.weighting == STANDING)
    assert 100 * standing.words.mean() == pytest.approx(words, abs=0.5)
    assert 100 * standing.embedder.mean() == pytest.approx(embedder, abs=0.5)


def test_a_conversation_of_friends_is_recalled(database_url: str) -> None:
    given = [one for one in conversations(SHARED) if one.collection == LOCOMO and one.name == "conv-30"]
    if not given:
        pytest.skip(
            "the conversations of LoCoMo are not there; python -m bench.recall says where to put them"
        )
    words, embedder = recalled(database_url, given[0])
    assert words >= 74
    assert embedder >= 74


def test_sessions_are_counted_by_the_first_messages_and_in_the_order_of_their_best() -> None:
    places = {f"{session}.{at}": session for session in range(20) for at in range(10)}
    question = Question("Where?", "single-hop", frozenset({"3.0", "4.0"}))

    def search(_: str, limit: int) -> list[str]:
        """Ten messages of session 3, and then of each other session one."""
        return [*(f"3.{at}" for at in range(10)), *(f"{session}.1" for session in range(20))][:limit]

    assert dict(judge_search(question, search, places)) == {
        RECALL: 0.5,
        "any@10": 1.0,
        "all@10": 0.0,
        "any, ten sessions": 1.0,
        "all, ten sessions": 1.0,
    }
    # Of messages that are in no session, as evidence that a data set names by mistake, nothing can be found.
    lost = Question("Where?", "single-hop", frozenset({"3.0", "absent"}))
    assert dict(judge_search(lost, search, places))["all, ten sessions"] == 0.0
    assert list(judge_search(question, search, dict.fromkeys(places, 0))) == [(RECALL, 0.5)]


def test_a_conversation_has_no_say_in_the_weighting_that_it_is_judged_by() -> None:
    def finding(share: float, *found: float) -> Tried:
        weighting = (STANDING[0], VectorWeighting(share, 10))
        return Tried(weighting, np.array(found), np.array(found))

    tried = [finding(0.3, 0, 1, 1, 0), finding(0.5, 1, 0, 0, 0.9)]
    chosen, words, embedder = left_out(tried, [0, 1, 1, 2])
    assert [vector.share for _, vector in chosen] == [0.3, 0.5, 0.3]
    assert words.tolist() == embedder.tolist() == [0, 0, 0, 0]


def test_no_weighting_is_begun_when_the_time_is_over(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(try_all([], [STANDING[0]], 0.0)) == []
    assert "0 of 1" in capfd.readouterr().err


@pytest.mark.parametrize("module", ["bench.recall.measure", "bench.recall.weighting"])
def test_without_conversations_the_commands_say_where_to_put_them(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", module, "--data", str(tmp_path)]
    done = forking.run(command, capture_output=True, check=False, timeout=300)
    assert done.returncode == 2
    assert "locomo/conv-NN.jsonl" in done.stderr


def test_conversations_are_read_as_they_are_published(tmp_path: Path) -> None:
    chat = [
        {
            "turns": [
                [
                    {"role": "user", "id": 0, "content": "Hello"},
                    {"role": "assistant", "id": 1, "content": "Hi"},
                ]
            ]
        }
    ]
    asked = {
        "event_ordering": [{"question": "Who?", "source_chat_ids": {"first": [0], "second": [[1]]}}],
        "abstention": [{"question": "What?"}],
    }
    (tmp_path / "beam100k" / "7").mkdir(parents=True)
    (tmp_path / "beam100k" / "7" / "chat.json").write_text(json.dumps(chat))
    (tmp_path / "beam100k" / "7" / "probing_questions.json").write_text(json.dumps(asked))
    (one,) = conversations(tmp_path)
    assert (one.collection, one.name) == (BEAM, "beam-7")
    assert [message["id"] for message in one.sessions[0]] == ["0", "1"]
    assert one.questions == [Question("Who?", "event ordering", frozenset({"0", "1"}))]
    assert conversations(tmp_path / "nowhere") == []


def test_sets_in_the_form_of_locomo_are_named_by_their_folder(tmp_path: Path) -> None:
    message = {"id": "m", "role": "user", "content": "Hello"}
    for place, category in (("locomo", 4), ("diary", "moods"), ("others/locomo", 7)):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "conv-1.jsonl").write_text(json.dumps(message))
        asked = [{"question": "Who?", "category": category, "evidence": ["m"]}]
        (folder / "conv-1.qa.json").write_text(json.dumps(asked))
    found = {one.collection: one for one in conversations(tmp_path)}
    assert list(found) == ["diary", LOCOMO, "others"]
    assert [one.questions[0].category for one in found.values()] == ["moods", "single-hop", "7"]
    # Messages that name no session are of one.
    assert found["diary"].sessions == [[message]]
