"""Merge: candidates folded into the owner's facts, as the model's operations say, with their history."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.pipelines.inspect.verify import verify
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import EXTRACT_STAGE, MERGE_STAGE
from strandline.schemas.values.normal_form import fingerprint
from strandline.wiring.assembly import prepare_stages
from tests.conftest import MakeMemory, Rig, nothing_due, rows_of
from tests.support.servers.model_server import ModelServer, RecordedRequest, answer_to
from tests.support.stored import dead_letters
from tests.support.workers.draining import drain_everything, due_lanes
from tests.support.workers.hand_worker import HandWorker, say

Tell = Callable[..., None]
FACTS_STAGES = (EXTRACT_STAGE, MERGE_STAGE)


@pytest.fixture
def tell(make_memory: MakeMemory, database: Database, database_url: str, model_settings: Settings) -> Tell:
    """Say things in one event of a session of the user ``maren``, and have them extracted and merged."""

    def told(*texts: str, session: str = "s", **fields: str) -> None:
        memory = make_memory(session, user_id="maren", memory_blocks=["facts"])
        memory.put_messages([{"role": "user", "content": text, **fields} for text in texts])
        memory.flush(all=True)
        drain_everything(database, database_url, model_settings, FACTS_STAGES)
        assert nothing_due(database_url)

    return told


def rows_in(prompt: str, tag: str) -> list[dict[str, Any]]:
    section = prompt.rpartition(f"<{tag}>\n")[2].partition(f"</{tag}>")[0]
    return [json.loads(row) for row in section.splitlines()]


def decide(server: ModelServer, *operations: tuple[str, str, str | None, str | None]) -> list[str]:
    """Answer merges by text: (operation, candidate, known fact or None, new wording or None).

    Returns the prompts that were answered.
    """
    seen: list[str] = []

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        if "<candidates>" not in prompt:
            return None
        seen.append(prompt)
        candidates = {row["text"]: row["n"] for row in rows_in(prompt, "candidates")}
        known = {row["text"]: row["n"] for row in rows_in(prompt, "known")}
        made = [
            {"op": op, "candidate": candidates[said], "fact": known[fact] if fact else None, "text": text}
            for op, said, fact, text in operations
        ]
        return json.dumps({"operations": made})

    server.behave(responder=respond)
    return seen


def facts(url: str) -> list[tuple[str, bool, str | None]]:
    """Text, whether it is live, and the text of what took its place."""
    return rows_of(
        url,
        "SELECT f.text, f.live, by.text FROM strandline.fact f LEFT JOIN strandline.fact by"
        " ON by.shard_key = f.shard_key AND by.fact_id = f.invalidated_by ORDER BY f.created_at, f.text",
    )


def history(url: str, text: str) -> list[tuple[str, str, list[int]]]:
    """Operation, wording and messages of the fact that was once worded so, in order."""
    return rows_of(
        url,
        "SELECT operation, text, seqs FROM strandline.fact_revision WHERE fact_id ="
        " (SELECT fact_id FROM strandline.fact_revision WHERE text = %s AND revision = 1)"
        " ORDER BY revision",
        text,
    )


def test_one_candidate_for_an_owner_without_facts_needs_no_decision(rig: Rig, tell: Tell) -> None:
    tell("I live in Bergen")
    assert facts(rig.url) == [("I live in Bergen", True, None)]
    assert history(rig.url, "I live in Bergen") == [("add", "I live in Bergen", [1])]
    assert len(rig.model.requests) == 1, "the extraction; nothing was to be decided"


def test_an_update_keeps_what_was(tell: Tell, database_url: str, model_server: ModelServer) -> None:
    tell("I have a boat")
    decide(model_server, ("update", "my boat is blue", "I have a boat", "I have a blue boat"))
    tell("my boat is blue")
    assert facts(database_url) == [("I have a blue boat", True, None)]
    assert history(database_url, "I have a boat") == [
        ("add", "I have a boat", [1]),
        ("update", "I have a blue boat", [2]),
    ]


def test_an_invalidated_fact_ends_and_stays_on_record(rig: Rig, tell: Tell) -> None:
    tell("I live in Bergen")
    decide(rig.model, ("invalidate", "I live in Oslo now", "I live in Bergen", None))
    tell("I live in Oslo now")
    assert facts(rig.url) == [
        ("I live in Bergen", False, "I live in Oslo now"),
        ("I live in Oslo now", True, None),
    ]
    assert [row[0] for row in history(rig.url, "I live in Bergen")] == ["add", "invalidate"]
    ended = "SELECT invalidated_at IS NOT NULL FROM strandline.fact ORDER BY created_at"
    assert rows_of(rig.url, ended) == [(True,), (False,)]
    true_while = "SELECT valid_from, valid_until, said_at FROM strandline.fact ORDER BY created_at"
    (since, until, said), (then, still, _said_then) = rows_of(rig.url, true_while)
    assert (since, until, still) == (said, then, None), "it was true until the other was said"


def test_an_older_statement_that_would_end_several_facts_is_added_once_as_past(rig: Rig, tell: Tell) -> None:
    newer = ["I live in Bergen", "I moved to Bergen for work", "my flat is in Bergen"]
    for text in newer:
        tell(text, created_at="2026-03-01T10:00:00Z")
    decide(rig.model, *(("invalidate", "I live in Oslo", text, None) for text in newer))
    tell("I live in Oslo", created_at="2019-03-01T10:00:00Z")
    assert facts(rig.url) == [*((text, True, None) for text in newer), ("I live in Oslo", False, newer[0])]


def test_two_candidates_for_one_fact_lose_neither(rig: Rig, tell: Tell) -> None:
    """The model words each update from what was known, so the second knows nothing of the first."""
    tell("I have a boat")
    decide(
        rig.model,
        ("update", "my boat is blue", "I have a boat", "I have a blue boat"),
        ("update", "my boat is new", "I have a boat", "I have a new boat"),
    )
    tell("my boat is blue", "my boat is new")
    assert facts(rig.url) == [("I have a blue boat", True, None), ("my boat is new", True, None)]


def test_a_duplicate_adds_a_source_only(tell: Tell, database_url: str, model_server: ModelServer) -> None:
    tell("I like herring")
    decide(model_server, ("duplicate", "herring is what I like", "I like herring", None))
    tell("herring is what I like", session="other")
    assert facts(database_url) == [("I like herring", True, None)]
    assert [row[0] for row in history(database_url, "I like herring")] == ["add", "duplicate"]
    assert rows_of(database_url, "SELECT count(DISTINCT session_key) FROM strandline.fact_revision") == [(2,)]


def test_a_candidate_that_repeats_another_is_that_ones_source(rig: Rig, tell: Tell) -> None:
    """Not the source of whatever candidate happened to be folded in last."""
    first, between, again = "Lars is my brother", "I like herring", "my brother is called Lars"
    decide(
        rig.model,
        ("add", first, None, None),
        ("add", between, None, None),
        ("duplicate", again, None, None),
    )
    tell(first, between, again)
    assert history(rig.url, first) == [("add", first, [1]), ("duplicate", again, [3])]
    assert history(rig.url, between) == [("add", between, [2])]


def test_a_long_name_is_shown_to_the_model_as_far_as_an_answer_may_repeat_it(
    rig: Rig, model_settings: Settings
) -> None:
    shown: list[str] = []

    def respond(request: RecordedRequest) -> str | None:
        prompt = request.body["messages"][-1]["content"]
        if "<transcript>" not in prompt:
            return None
        shown.extend(row["by"].removesuffix(" (user)") for row in rows_in(prompt, "transcript"))
        found = [{"text": "The boat is red.", "messages": [1, 2], "said_by": shown[0]}]
        return json.dumps({"facts": found})

    rig.model.behave(responder=respond)
    memory = rig.memory("s", user_id="maren", memory_blocks=["facts"])
    memory.put_messages(
        [{"role": "user", "content": f"My boat, {n}", "name": letter * 500} for n, letter in enumerate("ab")]
    )
    memory.flush(all=True)
    drain_everything(rig.database, rig.url, model_settings, FACTS_STAGES)
    assert shown == ["a" * 119 + "…", "b" * 119 + "…"]
    assert rows_of(rig.url, "SELECT said_by FROM strandline.fact") == [(shown[0],)]


def test_one_candidate_may_end_several_facts(rig: Rig, tell: Tell) -> None:
    tell("I eat fish")
    tell("I eat meat, not fish")
    said = "I no longer eat fish or meat"
    decide(
        rig.model,
        ("invalidate", said, "I eat fish", "no longer eat meat or fish"),
        ("invalidate", said, "I eat meat, not fish", "eat fish or meat no longer"),
    )
    tell(said)
    assert facts(rig.url) == [
        ("I eat fish", False, "no longer eat meat or fish"),
        ("I eat meat, not fish", False, "no longer eat meat or fish"),
        ("no longer eat meat or fish", True, None),
    ]
    added = ("add", "no longer eat meat or fish", [3])
    assert history(rig.url, "no longer eat meat or fish") == [added]


def test_a_fact_never_ends_itself(tell: Tell, database_url: str, model_server: ModelServer) -> None:
    """One candidate rewords a fact, and the next ends it by saying what it says by then."""
    tell("I have a boat")
    decide(
        model_server,
        ("update", "my boat is blue", "I have a boat", "has a blue boat"),
        ("invalidate", "a blue boat it is", "I have a boat", "has a blue boat"),
    )
    tell("my boat is blue", "a blue boat it is")
    assert facts(database_url) == [("has a blue boat", True, None)]


def test_an_update_to_the_words_of_another_fact_leaves_one(rig: Rig, tell: Tell) -> None:
    tell("I have a boat")
    tell("I have a blue boat")
    decide(rig.model, ("update", "my boat is blue", "I have a boat", "I have a blue boat"))
    tell("my boat is blue, and I live elsewhere", "my boat is blue")
    live = [text for text, is_live, _by in facts(rig.url) if is_live]
    assert live.count("I have a blue boat") == 1
    assert "I have a boat" not in live, "what was reworded is not said any more"
    assert ("I have a boat", False, "I have a blue boat") in facts(rig.url)


def test_the_same_words_make_no_second_fact_whatever_the_model_says(rig: Rig, tell: Tell) -> None:
    tell("I like herring")
    decide(rig.model, ("add", "I LIKE  herring!", None, None))
    tell("I LIKE  herring!")
    assert facts(rig.url) == [("I like herring", True, None)]
    assert [row[0] for row in history(rig.url, "I like herring")] == ["add", "duplicate"]


def test_a_candidate_that_the_model_leaves_out_is_added(rig: Rig, tell: Tell) -> None:
    decide(rig.model)
    tell("I like herring", "I live in Bergen")
    assert {text for text, live, _by in facts(rig.url) if live} == {"I like herring", "I live in Bergen"}


def test_an_answer_is_not_applied_to_other_facts_than_it_was_asked_about(
    rig: Rig, tell: Tell, model_settings: Settings
) -> None:
    """Numbers in a stored answer point into a list; a reset in between must not make them mean others."""
    tell("herring is good", session="forgotten")
    tell("herring is dear", session="kept")
    prompts = decide(rig.model, ("update", "herring was good", "herring is good", None))

    forgotten: list[str] = []

    def forget(point: str) -> None:
        if point == "stored" and not forgotten:
            forgotten.extend(prompts)
            decide(rig.model)
            rig.memory("forgotten", user_id="maren", memory_blocks=["facts"]).reset(derived=True)

    memory = rig.memory("kept", user_id="maren", memory_blocks=["facts"])
    say(memory, "herring was good")
    stages = prepare_stages(rig.database, model_settings, FACTS_STAGES)
    HandWorker(rig.database, stages).drain_all(rig.url)
    first, second = (HandWorker(rig.database, stages, reach=forget) for _ in range(2))
    assert first.drain_all(rig.url) == ["lost"]
    assert second.drain_all(rig.url) == ["drained"]
    assert [fact for fact in facts(rig.url) if fact[1]] == [
        ("herring is dear", True, None),
        ("herring was good", True, None),
    ]


def test_five_hundred_candidates_are_merged(rig: Rig, model_settings: Settings) -> None:
    memory = rig.memory("s", user_id="maren", memory_blocks=["facts"])
    for part in range(25):
        memory.put_messages(
            [{"role": "user", "content": f"harbour {part * 20 + n % 18} was fine"} for n in range(20)]
        )
        memory.flush(all=True)
    drain_everything(rig.database, rig.url, model_settings, FACTS_STAGES)
    assert nothing_due(rig.url)
    ((candidates,),) = rows_of(rig.url, "SELECT count(*) FROM strandline.fact_candidate")
    assert candidates >= 450
    assert len(facts(rig.url)) == 450
    assert dead_letters(rig.url) == 0
    ((merges,),) = rows_of(
        rig.url, "SELECT count(*) FROM strandline.batch WHERE stage = 'merge' AND state = 'applied'"
    )
    assert merges < 25, "a backlog costs fewer merges than extractions"


@pytest.mark.parametrize("most", [1, 4, 7, 15])
def test_a_merge_whose_answers_are_cut_decides_on_every_candidate(
    rig: Rig, tell: Tell, model_settings: Settings, most: int
) -> None:
    """A server that has room for so many decisions in an answer."""
    told = [f"harbour {n} was fine" for n in range(24)]
    tell(*told)
    asked: list[int] = []

    def respond(request: RecordedRequest) -> dict[str, Any] | None:
        prompt = request.body["messages"][1]["content"]
        if "<candidates>" not in prompt:
            return None
        text = json.dumps(answer_to(prompt))
        asked.append(text.count('"op"'))
        is_cut = asked[-1] > most
        end = [found.start() for found in re.finditer('{"op"', text)][most] if is_cut else len(text)
        return {
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "length" if is_cut else "stop",
                    "message": {"role": "assistant", "content": text[:end]},
                }
            ]
        }

    rig.model.behave(responder=respond)
    tell(*(text.upper() if n % 2 else f"quay {n} was fine" for n, text in enumerate(told)), *told)
    live = sorted(text for text, is_live, _by in facts(rig.url) if is_live)
    assert live == sorted(told + [f"quay {n} was fine" for n in range(0, 24, 2)])
    assert asked[0] == 48 and max(asked[1:]) <= 20
    assert verify(rig.database, deep=True).violations == ()
    assert dead_letters(rig.url) == 0


def test_sessions_of_one_user_never_race(rig: Rig, model_settings: Settings) -> None:
    """Twenty sessions that say the same, worked off by four threads: one fact each, with every source."""
    texts = ["I like herring", "I live in Bergen"]
    for number in range(20):
        say(rig.memory(f"s{number}", user_id="maren", memory_blocks=["facts"]), *texts)
    stages = prepare_stages(rig.database, model_settings, FACTS_STAGES)
    while lanes := due_lanes(rig.url, FACTS_STAGES):
        workers = [HandWorker(rig.database, stages) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(lambda pair: pair[0].drain(pair[1]), zip(workers * len(lanes), lanes, strict=False))
            )
    assert sorted(text for text, live, _by in facts(rig.url) if live) == texts
    sources = "SELECT count(DISTINCT session_key) FROM strandline.fact_revision GROUP BY fact_id"
    assert rows_of(rig.url, sources) == [(20,), (20,)]
    assert verify(rig.database, deep=True).violations == ()


def test_facts_of_other_owners_are_never_shown(rig: Rig, tell: Tell, model_settings: Settings) -> None:
    tell("my secret is herring")
    prompts = decide(rig.model)
    other = rig.memory("theirs", user_id="tove", memory_blocks=["facts"])
    other.put_messages([{"role": "user", "content": text} for text in ("herring one", "herring two")])
    other.flush(all=True)
    drain_everything(rig.database, rig.url, model_settings, FACTS_STAGES)
    (prompt,) = prompts
    assert rows_in(prompt, "known") == []
    assert "my secret" not in prompt


@given(st.text(max_size=60))
def test_case_width_and_punctuation_make_no_other_fact(text: str) -> None:
    assert fingerprint(f"  {text} ") == fingerprint(f"{text}…!")
    assert fingerprint(text.casefold()) == fingerprint(text.casefold().casefold())


@given(st.lists(st.sampled_from(["herring", "Bergen", "blau", "海"]), min_size=1, max_size=5, unique=True))
def test_other_words_make_another_fact(words: Sequence[str]) -> None:
    assert fingerprint(" ".join(words)) != fingerprint(" ".join([*words, "not"]))
