"""What searches find of real conversations: a floor under the figures of docs/performance.md."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib import resources
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from bench.recall.data import BEAM, LOCOMO, Conversation, Question, conversations
from bench.recall.measure import ALL, Found, as_json, as_text, measure, table
from bench.recall.scoring import VectorWeighting, prepare
from bench.recall.weighting import STANDING, Tried, left_out, try_all
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder

SHARED = Path(__file__).resolve().parent.parent.parent.parent / "shared" / "data"


def recalled(database_url: str, conversation: Conversation) -> tuple[float, float]:
    """R@10 in per cent, by words alone and with the local embedder."""
    found = list(measure(database_url, conversation))
    assert len(found) == len(conversation.questions)
    return 100 * mean(one.words for one in found), 100 * mean(one.embedder for one in found)


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
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert "locomo/conv-NN.jsonl" in done.stderr


def test_the_table_averages_over_questions() -> None:
    found = [
        Found(LOCOMO, "a", "temporal", 1.0, 0.5),
        Found(LOCOMO, "a", "multi-hop", 0.0, 1.0),
        Found(LOCOMO, "b", "temporal", 0.5, 0.5),
        Found(BEAM, "c", "summarization", 0.25, 1.0),
    ]
    lines = table(found)
    assert [(one.collection, one.category, one.questions, one.words, one.embedder) for one in lines] == [
        (LOCOMO, "multi-hop", 1, 0.0, 100.0),
        (LOCOMO, "temporal", 2, 75.0, 50.0),
        (LOCOMO, ALL, 3, 50.0, 66.7),
        (BEAM, "summarization", 1, 25.0, 100.0),
        (BEAM, ALL, 1, 25.0, 100.0),
    ]
    assert as_text(lines).splitlines()[3].split() == [LOCOMO, "all", "questions", "3", "50.0", "66.7"]
    written = json.loads(as_json(lines, found))
    assert [one["conversation"] for one in written["conversations"]] == ["a", "b", "c"]


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
