"""What searches find of real conversations: a floor under the figures of docs/performance.md."""

from __future__ import annotations

import json
import math
import sys
from importlib import resources
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from bench.recall.data import BEAM, LOCOMO, Conversation, Question, conversations
from bench.recall.scoring import VectorWeighting, prepare
from bench.recall.searches import RECALL, judge_search, measure_searches
from bench.recall.tables import EMBEDDER, WORDS
from bench.recall.weighting import STANDING, Tried, left_out, try_all
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from tests.support.processes import forking

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
