"""``strandline eval``: one's own questions, in what serves, in generations, and against an earlier result."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.encrypted.enabling import VARIABLE, encrypt
from strandline import Memory
from strandline.cli.entry import run
from strandline.cli.evaluation import EvalReport, Question, read_lines
from strandline.cli.generations import read_questions as asked_in_diffs
from strandline.pipelines.replay.new_generation import begin_generation, derive_generation
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import Settings, load_settings
from strandline.schemas.values.lanes import VECTORS, VECTORS_STAGE
from strandline.wiring.assembly import prepare_stages
from strandline.workers.in_process import BackgroundRunner
from tests.conftest import MakeMemory, rows_of
from tests.support.processes import forking
from tests.support.servers.embedder_servers import embedder_server, settings_of
from tests.support.workers.draining import drain_everything

SAID = {
    "boat": "My boat is called <Selkie> and lies at pier seven.",
    "dog": "Our dog eats nothing but herring on Mondays.",
    "tea": "I drink black tea with milk at breakfast.",
    "work": "At work we count the gulls on the harbour wall.",
}
Eval = Callable[..., tuple[int, str, str]]


@pytest.fixture
def settings(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("STRANDLINE_TEXT_BACKEND", "local")
    monkeypatch.setenv("STRANDLINE_EMBEDDING_BACKEND", "local")
    return load_settings(database_url=database_url)


@pytest.fixture
def talk(make_memory: MakeMemory, database: Database, settings: Settings, database_url: str) -> Memory:
    """A user's session of which all but the last message is flushed and derived."""
    memory = make_memory("talk", user_id="ana", token_limit=600, token_flush_size=50)
    for key, text in SAID.items():
        memory.put({"role": "user", "content": text, "id": key})
    memory.flush(all=True)
    drain_everything(database, database_url, settings)
    memory.put({"role": "user", "content": "The ferry leaves at nine.", "id": "ferry"})
    return memory


@pytest.fixture
def evaluate(talk: Memory, database_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Eval:
    def evaluate_lines(lines: list[Any], *options: str) -> tuple[int, str, str]:
        file = tmp_path / "questions.jsonl"
        file.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines))
        code = run(["eval", str(file), *options, "--database-url", database_url])
        out, err = capfd.readouterr()
        return code, out, err

    return evaluate_lines


def report_of(printed: str) -> EvalReport:
    return EvalReport.model_validate_json(printed)


BOAT = {"question": "Where is my boat?", "evidence": ["boat"], "session_id": "talk"}
WORDS = {"question": "What does the dog eat?", "expected": ["HERRING", "caviar"], "user_id": "ana"}


def test_questions_are_searched_and_read(evaluate: Eval, database_url: str) -> None:
    tables = "SELECT (SELECT count(*) FROM strandline.message), (SELECT count(*) FROM strandline.session)"
    before = rows_of(database_url, tables)
    code, out, _ = evaluate([BOAT, WORDS], "--json")
    assert code == 0
    report = report_of(out)
    (figures,) = report.figures
    boat, dog = report.questions
    # The message stands in what a read gives as memory shows it, with its brackets escaped.
    assert (boat.measured[0].recall, boat.measured[0].context_recall) == (1, 1)
    assert (dog.measured[0].recall, dog.measured[0].context_recall) == (0.5, 0.5)
    assert (figures.recall, figures.any_found, figures.all_found) == (0.75, 1, 0.5)
    assert (figures.context_recall, figures.any_given, figures.all_given) == (0.75, 1, 0.5)
    assert (figures.generation, figures.by_words, figures.over_limit) == (None, 0, 0)
    # A search and a read of each question; the local embedder costs nothing.
    assert (figures.embedding_calls, figures.cost_usd) == (4, 0)
    assert 0 < figures.search_ms_p50 <= figures.search_ms_p95
    assert 0 < figures.read_ms_p50 <= figures.read_ms_p95
    assert rows_of(database_url, tables) == before


def test_only_the_first_hits_count_and_the_limit_holds(evaluate: Eval) -> None:
    asked = {"question": "Where is my boat, and what does our dog eat?", "evidence": ["boat", "dog"]}
    _, out, _ = evaluate([asked], "--json", "--k", "1", "--session", "talk", "--token-limit", "300")
    report = report_of(out)
    assert report.questions[0].measured[0].recall == 0.5
    assert report.questions[0].measured[0].tokens <= 300
    assert (report.k, report.token_limit) == (1, 300)


def test_the_table_names_each_figure(evaluate: Eval) -> None:
    code, out, err = evaluate([BOAT])
    assert (code, err) == (0, "")
    assert [line.split("  ")[0] for line in out.splitlines()] == [
        "1 question",
        "R@10, found",
        "any, all of it found",
        "context recall, given",
        "any, all of it given",
        "tokens of a read",
        "reads over the limit",
        "ms of a search, p50, p95",
        "ms of a read, p50, p95",
        "embedding calls",
        "cost, USD",
        "questions by words alone",
    ]


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        ("[1]", None, "JSON object"),
        ("{", None, "JSON object"),
        ('{"question": "a", "question": "b"}', None, "twice"),
        ({"evidence": ["boat"]}, "question", "missing"),
        ({"question": "", "evidence": ["boat"]}, "question", "empty"),
        ({"question": "a", "evidence": [1]}, "evidence.0", "must be text"),
        ({"question": "a", "evidence": ["a\0"]}, "evidence.0", "NUL"),
        ({"question": "a", "expected": {}}, "expected", "list"),
        ({"question": "a"}, None, "evidence"),
        ({"question": "a", "evidence": ["boat"], "sesion_id": "talk"}, "sesion_id", "not a known field"),
        ({"question": "a", "evidence": ["boat"], "session_id": "tlk"}, "session_id", "'tlk' does not exist"),
        ({"question": "a", "evidence": ["boat"], "user_id": "bo"}, "session_id", "of user 'bo'"),
        ({"question": "a", "evidence": ["boat"], "namespace": "acme"}, "session_id", "'acme'"),
        ({"question": "a", "evidence": ["boat"], "session_id": " talk"}, "session_id", "white space"),
        ({"question": "a", "evidence": ["boat", "boot"]}, "evidence", "'boot'"),
    ],
)
def test_a_bad_line_is_named_and_costs_no_other(
    evaluate: Eval, line: Any, field: str | None, reason: str
) -> None:
    code, out, _ = evaluate([BOAT, "", line, BOAT], "--json", "--session", "talk")
    assert code == 1
    report = report_of(out)
    (problem,) = report.problems
    assert (problem.line, problem.field) == (3, field)
    assert reason in problem.reason
    assert [one.line for one in report.questions] == [1, 4]
    code, out, err = evaluate([line], "--session", "talk")
    assert code == 1
    assert err.startswith(f"not measured: line 1: {field + ': ' if field else ''}")


def test_a_question_of_nobody_is_named(evaluate: Eval) -> None:
    _, _, err = evaluate([{"question": "a", "expected": "b"}])
    assert "line 1: user_id: neither a session nor a user" in err


@given(
    content=st.binary()
    | st.text().map(str.encode)
    | st.builds(
        lambda value: json.dumps(value).encode(),
        st.dictionaries(
            st.sampled_from(["question", "evidence", "expected", "session_id"]) | st.text(max_size=3),
            st.text(max_size=3) | st.none() | st.integers() | st.lists(st.text(max_size=3), max_size=2),
        ),
    )
)
def test_any_file_is_read_line_by_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("any") / "questions.jsonl"
    file.write_bytes(content)
    for number, line in read_lines(file, Question):
        assert content.split(b"\n")[number - 1].strip()
        if isinstance(line, Question):
            assert line.question.strip() and (line.evidence or line.expected)
        else:
            assert line and all(one.line == number and one.reason for one in line)


def test_generations_are_asked_side_by_side(
    evaluate: Eval, database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that does not serve: by its own vectors, and its own embedder."""
    serving, *_ = rows_of(
        database_url_of(settings),
        "SELECT generation_id FROM strandline.generation WHERE pipeline = 'vectors' AND state = 'serving'",
    )
    with embedder_server("random") as server:
        for name, value in settings_of(server, "random").items():
            monkeypatch.setenv(name, value)
        other = load_settings(database_url=database_url_of(settings))
        runner = BackgroundRunner(database, prepare_stages(database, other, [VECTORS_STAGE]), other)
        runner.start()
        try:
            held = begin_generation(database, VECTORS, other, hold=True)
            assert derive_generation(database, held).phase == "held"
        finally:
            runner.stop()
        numbers = [str(serving[0]), str(held.generation_id)]
        options = [word for number in numbers for word in ("--generation", number)]
        asked = {"question": "sailing vessel", "evidence": ["boat"], "session_id": "talk"}
        code, out, _ = evaluate([asked], "--json", "--k", "1", *options)
        assert code == 0
        (report,) = report_of(out).questions
        assert [one.generation for one in report.measured] == [int(number) for number in numbers]
        assert [one.recall for one in report.measured] == [1, 0]
        assert [one.problem for one in report.measured] == [None, None]
        code, out, _ = evaluate([asked], "--k", "1", *options)
        assert f"worse in generation {held.generation_id}: found 100% -> 0%" in out
        calls = report_of(evaluate([asked], "--json", *options)[1]).figures
        assert [one.embedding_calls for one in calls] == [2, 2]
        # No price is set for the other one.
        assert [one.cost_usd for one in calls] == [0, None]
    # Its server is away.
    code, out, err = evaluate([asked], *options)
    assert code == 0 and "compared by words alone: The query could not be embedded" in err
    assert out.splitlines()[11].split()[-2:] == ["0", "1"]


def database_url_of(settings: Settings) -> str:
    assert settings.database_url is not None
    return settings.database_url.get_secret_value()


def test_a_generation_of_another_pipeline_is_refused(evaluate: Eval, database_url: str) -> None:
    (facts,) = rows_of(
        database_url, "SELECT generation_id FROM strandline.generation WHERE pipeline = 'facts'"
    )
    code, _, err = evaluate([BOAT], "--generation", str(facts[0]))
    assert code == 1 and "is of facts" in err
    code, _, err = evaluate([BOAT], "--generation", "999")
    assert code == 1 and "Generation 999 does not exist" in err


def test_a_generation_that_is_being_filled_is_refused(
    evaluate: Eval, database: Database, settings: Settings
) -> None:
    begun = begin_generation(database, VECTORS, settings, force=True)
    code, out, err = evaluate([BOAT], "--generation", str(begun.generation_id))
    assert (code, out) == (1, "") and "is still being filled" in err


def test_an_earlier_result_is_held_against_question_by_question(evaluate: Eval, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier.json"
    far = BOAT | {"evidence": ["boat", "tea"]}
    _, out, _ = evaluate([far, WORDS], "--json", "--k", "1")
    earlier.write_text(out)
    # The line has moved, and one is new.
    code, out, _ = evaluate([WORDS, BOAT, BOAT | {"question": "pier"}], "--k", "1", "--against", str(earlier))
    assert code == 0
    assert "before" in out.splitlines()[0]
    assert "better in what serves: found 50% -> 100%, given 100% -> 100%: Where is my boat?" in out
    assert "pier" not in out and "dog" not in out
    code, _, err = evaluate([BOAT], "--against", str(earlier))
    assert code == 1 and "give the same --k" in err
    earlier.write_text("{}")
    code, _, err = evaluate([BOAT], "--against", str(earlier))
    assert code == 1 and "is not what `strandline eval --json` printed" in err


def test_a_long_run_shows_its_progress_and_keeps_what_was_measured(
    talk: Memory, database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text((json.dumps(BOAT) + "\n") * 10_000)
    command = [
        sys.executable,
        "-m",
        "strandline",
        "eval",
        str(file),
        "--json",
        "--database-url",
        database_url,
    ]
    with (tmp_path / "out").open("w+") as out:
        process = forking.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        told = process.stderr.readline()
        assert re.match(r"asking: [\d,]+ of 10,000 asked; \d+ %, [\d,]+ questions a second, about", told)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=300)
        out.seek(0)
        report = report_of(out.read())
    assert process.returncode == 130
    assert report.interrupted and 0 < len(report.questions) < 10_000
    assert report.figures[0].recall == 1


def test_a_diff_of_generations_names_line_and_field_as_well(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    for line, reason in (
        ({"question": "a", "user": 7}, "user: it must be text"),
        ({"question": "a", "user": "ana", "evidence": [1]}, "session, or user without evidence"),
        ({"question": "a", "session": "s", "evidence": [0]}, "evidence.0: "),
    ):
        file.write_text("\n" + json.dumps(line))
        with pytest.raises(ConfigurationError, match=f"questions.jsonl, line 2: {reason}"):
            asked_in_diffs(file)


def test_an_encrypted_namespace_is_asked_as_any_other(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, f"bench {b64encode(bytes(32)).decode()}")
    encrypt(database_url)
    memory = Memory.from_defaults("talk", database_url=database_url, consume="background")
    seqs = memory.put_messages([{"role": "user", "content": text, "id": key} for key, text in SAID.items()])
    memory.flush(all=True)
    assert memory.get(wait_for=seqs[-1], timeout=60).caught_up
    memory.close()
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps(BOAT))
    capfd.readouterr()
    assert run(["eval", str(file), "--json", "--database-url", database_url]) == 0
    (asked,) = report_of(capfd.readouterr().out).questions
    assert (asked.measured[0].recall, asked.measured[0].context_recall) == (1, 1)
