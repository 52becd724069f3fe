"""The measurement of facts: its rules, and a run through the real pipeline, with a model and without."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from bench.facts.data import Observation
from bench.facts.deriving import SourcedFact
from bench.facts.measure import Counts, add_up, as_text, spread
from bench.facts.rules import (
    count_cited,
    count_covered_by_words,
    count_duplicates,
    count_similar,
    names_a_day,
    stands_alone,
)
from strandline.pipelines.models.local.wordllama_embedder import WordLlamaEmbedder
from tests.support.processes import forking
from tests.support.servers.model_server import ModelServer, RecordedRequest

MONDAY = datetime(2024, 3, 11, 9, 30, tzinfo=UTC)


def fact(text: str, *sources: str, said: str = "", about: date | None = None) -> SourcedFact:
    return SourcedFact(text, about, frozenset(sources), [(MONDAY, said)])


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("Tom accepted the post in Graz.", True),
        ("Ann: I moved to Graz.", True),
        ("Ann's sister is ill.", True),
        ("The user has a boat.", True),
        ("The meeting was in Graz.", True),
        ("He said yes to Ann.", False),
        ("Ann: He said yes.", False),
        ("Yes, Ann did.", False),
        ("That was in Graz.", False),
        ("Their boat is blue, says Ann.", False),
        ("The boat is blue.", False),
        ("", False),
    ],
)
def test_a_fact_stands_alone_if_it_begins_with_no_pronoun_and_names_somebody(text: str, alone: bool) -> None:
    assert stands_alone(text, {"Ann"}) is alone


def test_a_day_that_a_message_names_is_the_facts_date_or_in_its_text() -> None:
    assert names_a_day(fact("x", said="We met last Saturday", about=date(2024, 3, 9))) == (1, 1)
    assert names_a_day(fact("Met on 2024-03-09", said="We met last Saturday")) == (1, 1)
    assert names_a_day(fact("They met", said="We met last Saturday")) == (1, 0)
    assert names_a_day(fact("They met", said="We met")) == (0, 0)


def test_observations_are_covered_by_messages_words_and_meaning() -> None:
    observations = [
        Observation("Ann moved to Graz for a post at the harbour office.", frozenset({"a"})),
        Observation("Ann keeps bees in her garden.", frozenset({"b"})),
    ]
    facts = [fact("Ann has moved to Graz, to work at the harbour office.", "a"), fact("Bob sails.", "c")]
    assert count_cited(observations, facts) == 1
    assert count_covered_by_words(observations, facts) == 1
    assert count_similar(observations, facts, WordLlamaEmbedder()) == 1
    assert count_similar(observations, [], WordLlamaEmbedder()) == 0


def test_facts_that_say_the_same_are_counted_once_more_each() -> None:
    said = [
        "Ann keeps bees in Graz",
        "In Graz Ann keeps bees",
        "Ann keeps a boat in Graz at the lake since May",
    ]
    assert count_duplicates([fact(text) for text in said]) == 1


def test_counts_add_up_and_shares_are_made_of_the_sums() -> None:
    one = Counts("a", 500, observations=10, cited=10, facts=2, usd=0.5)
    two = Counts("b", 500, observations=30, cited=0, facts=3)
    total = add_up([one, two])
    assert (total.conversation, total.observations, total.facts, total.usd) == ("all", 40, 5, 0.5)
    assert as_text([total]).splitlines()[1].split()[:4] == ["all", "500", "25.0", "0.0"]
    assert spread(["a", "b", "c", "d"], 2) == ["a", "c"]
    assert spread(["a"], 2) == ["a"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One conversation in LoCoMo's form: a question, and its answer behind a flush."""
    texts = [
        ("Ann", "Did Tom accept the post in Graz?"),
        ("Bob", "He said yes."),
        ("Ann", "I live in Oslo with my sister."),
    ]
    lines = [
        {
            "id": f"D1:{number}",
            "role": "user",
            "name": name,
            "content": text,
            "created_at": MONDAY.isoformat(),
            "metadata": {"session": 1},
        }
        for number, (name, text) in enumerate(texts, 1)
    ]
    (tmp_path / "locomo").mkdir()
    (tmp_path / "locomo" / "conv-1.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "locomo" / "conv-1.qa.json").write_text("[]")
    observed = [{"subject": "Tom", "fact": "Tom accepted the post in Graz.", "evidence": ["D1:2"]}]
    (tmp_path / "locomo" / "conv-1.observations.json").write_text(json.dumps(observed))
    return tmp_path


def measure(folder: Path, *arguments: str, **environment: str) -> tuple[str, list[dict[str, Any]], str]:
    """What the command prints, the figures that it writes, and the model that it names."""
    file = folder / "figures.json"
    command = [sys.executable, "-m", "bench.facts", "--data", str(folder), "--json", str(file), *arguments]
    done = forking.run(
        [*command, "--flush-every", "1"],
        capture_output=True,
        check=True,
        timeout=600,
        env={**os.environ, **environment, "STRANDLINE_EMBEDDED": "auto"},
    )
    written = json.loads(file.read_text())
    return done.stdout, written["figures"], written["model"]


def test_without_a_model_the_stand_in_is_measured_and_named(folder: Path) -> None:
    printed, (figures,), model = measure(folder)
    assert "No model is configured: the answers are those of the local stand-in" in printed
    assert model == "local-extractive"
    assert (figures["facts"], figures["context_tokens"], figures["judged"]) == (1, 0, 0)


def test_with_a_model_context_makes_facts_that_stand_alone(folder: Path, model_server: ModelServer) -> None:
    def answer(request: RecordedRequest) -> str | None:
        system, data = (str(message["content"]) for message in request.body["messages"])
        if "You get one note" in system:
            return json.dumps({"alone": "He" not in data})
        if "<candidates>" in data or "He said yes" not in data.rpartition("<transcript>")[2]:
            return None if "<candidates>" in data else '{"facts": []}'
        text = "Tom accepted the post in Graz." if "Did Tom" in data else "He said yes."
        return json.dumps({"facts": [{"text": text, "messages": [1]}]})

    model_server.behave(responder=answer)
    printed, figures, model = measure(
        folder, "--context", "0", "--context", "500", OPENAI_BASE_URL=model_server.base_url
    )
    assert "No model is configured" not in printed
    assert model == "gpt-4.1-mini"
    assert [one["context_tokens"] for one in figures] == [0, 500]
    assert [one["facts"] for one in figures] == [1, 1]
    for name in ("alone", "judged_alone", "in_words", "in_meaning"):
        assert [one[name] for one in figures] == [0, 1], name
    assert all(one["cited"] == one["judged"] == 1 and one["input_tokens"] > 0 for one in figures)


def test_without_conversations_the_command_says_where_to_put_them(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.facts", "--data", str(tmp_path)]
    done = forking.run(command, capture_output=True, check=False, timeout=300)
    assert done.returncode == 2
    assert "observations.json" in done.stderr
