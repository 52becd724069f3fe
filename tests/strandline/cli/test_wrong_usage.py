"""Wrong names and missing arguments: told with what was meant, what is there and what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionMessage,
    ChatCompletionUserMessageParam,
)

from strandline import ConfigurationError, Memory, UnknownPipelineError
from strandline.cli.entry import run
from strandline.cli.sessions import set_policy_command
from strandline.pipelines.inspect.sessions import show_session
from strandline.schemas.misspelt import name_misspelt
from strandline.schemas.postgres.database import Database
from strandline.schemas.values.message import OWN_KEYS
from tests.conftest import MakeMemory
from tests.support.messages import user
from tests.support.processes import forking

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("many", [False, True])
def test_a_misspelt_pipeline_is_told_with_the_nearest_and_all_that_there_are(
    make_memory: MakeMemory, many: bool
) -> None:
    memory = make_memory("s", memory_blocks=["facs"])
    with pytest.raises(UnknownPipelineError) as told:
        memory.import_messages([user("a")]) if many else memory.put(user("a"))
    assert "registered are facts, summary, vectors" in str(told.value)
    assert "Check the spelling (did you mean 'facts'?)" in str(told.value)


def test_set_policy_tells_it_as_well(make_memory: MakeMemory, database_url: str, capfd: Capture) -> None:
    make_memory("s", memory_blocks=[]).put(user("a"))
    command = ["sessions", "set-policy", "s", "--pipelines", "fact", "--database-url", database_url]
    assert run(command) == 1
    said = capfd.readouterr().err
    assert "did you mean 'facts'?" in said
    assert "Nothing was changed" in said


def test_a_flush_size_that_does_not_fit_a_new_limit_is_said(
    make_memory: MakeMemory, database: Database, database_url: str, capfd: Capture
) -> None:
    make_memory("s", memory_blocks=[], token_limit=800, token_flush_size=60).put(user("a"))
    change = ["sessions", "set-policy", "s", "--database-url", database_url, "--token-limit"]
    assert run([*change, "50"]) == 0
    said = capfd.readouterr().out
    assert "the flush size of 60 does not fit the token limit and became 35" in said
    assert "--token-flush-size does" in said
    assert run([*change, "800"]) == 0
    assert "became" not in capfd.readouterr().out
    assert run([*change[:-1], "--token-flush-size", "900"]) == 0
    assert "the flush size of 900 does not fit the token limit and became 560" in capfd.readouterr().out
    first, *_ = show_session(database, "s").policy_changes
    assert (first.actor or "").startswith("cli:")
    assert run(["sessions", "show", "s", "--database-url", database_url]) == 0
    said = capfd.readouterr().out
    assert f"by {first.actor}" in said
    assert "a person" not in said
    assert "--actor" not in said


def test_set_policy_of_nothing_is_wrong_usage_and_lists_what_can_change(capfd: Capture) -> None:
    assert run(["sessions", "set-policy", "s", "--actor", "ana"]) == 2
    said = capfd.readouterr().err
    changing = {
        option
        for parameter in set_policy_command.params
        for option in parameter.opts
        if option.startswith("--")
    } - {
        "--namespace", "--user", "--actor", "--json", "--json-schema", "--database-url", "--broker-url",
        "--schema", "--max-facts", "--all", "--dry-run",
    }  # fmt: skip
    assert len(changing) == 12
    assert all(option in said for option in changing)


def test_a_limit_that_no_message_fits_is_refused_as_in_python(
    make_memory: MakeMemory, database: Database, database_url: str, capfd: Capture
) -> None:
    make_memory("s", memory_blocks=[]).put(user("a"))
    command = ["sessions", "set-policy", "s", "--database-url", database_url, "--token-limit", "3"]
    assert run(command) == 1
    with pytest.raises(ConfigurationError) as refused:
        make_memory("s", memory_blocks=[], token_limit=3)
    assert capfd.readouterr().err == f"strandline: {refused.value}\n"
    assert "which no message fits: the smallest counts 4 tokens; it must be at least 4" in str(refused.value)
    assert not show_session(database, "s").policy_changes


@pytest.mark.parametrize("command", [["facts", "list"], ["search", "tea"]])
def test_whose_is_missing_is_wrong_usage(command: list[str], database_url: str, capfd: Capture) -> None:
    assert run([*command, "--database-url", database_url]) == 2
    assert "--user" in capfd.readouterr().err


def test_a_misspelt_command_is_told_with_the_nearest(capfd: Capture) -> None:
    assert run(["statsu"]) == 2
    assert "Did you mean 'status'?" in capfd.readouterr().err
    assert run(["zzzzzz"]) == 2
    assert "Did you mean" not in capfd.readouterr().err


def test_an_import_that_fails_says_what_it_stored(
    make_memory: MakeMemory, database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    def imported(*lines: dict[str, str]) -> str:
        file = tmp_path / "part.jsonl"
        file.write_text("".join(json.dumps({"session_id": "s"} | line) + "\n" for line in lines))
        assert run(["import", str(file), "--database-url", database_url]) == 1
        return capfd.readouterr().err

    wrong = {"role": "usr", "content": "x"}
    said = imported(user("a"), wrong)
    assert "line 2: message.role: 'usr' is unknown" in said
    assert said.rstrip().endswith("Nothing of the file was stored.")
    said = imported(*(user(str(number)) for number in range(2_000)), wrong)
    assert "2,000 messages of the file are stored; run the same import again: it adds" in said
    said = imported(user("a") | {"session_id": "x" * 600})
    assert "line 1: session_id: is longer than 512 bytes" in said


def test_another_users_session_names_the_option_too(
    make_memory: MakeMemory, database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    make_memory("s", user_id="ana", memory_blocks=[]).put(user("a"))
    file = tmp_path / "part.jsonl"
    file.write_text(json.dumps(user("b")))
    command = ["import", str(file), "--session", "s", "--user", "bob", "--database-url", database_url]
    assert run(command) == 1
    assert "--user on the command line" in capfd.readouterr().err


def test_unknown_fields_of_a_message_are_kept_as_extra_and_a_misspelt_one_is_named(
    make_memory: MakeMemory, caplog: pytest.LogCaptureFixture
) -> None:
    memory: Memory = make_memory("s", memory_blocks=[])
    given = user("x") | {
        "refusal": "no",
        "reasoning_content": "r",
        "meta_data": {"k": 1},
        "creatd_at": "2020",
    }
    for _ in range(2):
        memory.put(given)
    said = [record.getMessage() for record in caplog.records if "did you mean" in record.getMessage()]
    assert said == [
        "a message has the field 'meta_data', which is kept in extra; did you mean 'metadata'?",
        "a message has the field 'creatd_at', which is kept in extra; did you mean 'created_at'?",
    ]
    message, _ = memory.get_all()
    assert message.extra == {name: value for name, value in given.items() if name not in user("x")}
    assert message.to_dict() == given


def test_an_import_names_a_misspelt_field(database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    file.write_text("".join(json.dumps(user(text) | {"contnt": 1}) + "\n" for text in "ab"))
    argv = ["import", str(file), "--session", "s", "--database-url", database_url]
    done = forking.run([sys.executable, "-m", "strandline", *argv], capture_output=True, check=True)
    assert done.stderr.splitlines() == [
        "a message has the field 'contnt', which is kept in extra; did you mean 'content'?"
    ]


def test_the_fields_of_openais_own_messages_are_never_taken_for_misspelt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replies = (ChatCompletionMessage, ChatCompletionUserMessageParam, ChatCompletionAssistantMessageParam)
    name_misspelt({name: 1 for reply in replies for name in reply.__annotations__ if name not in OWN_KEYS})
    name_misspelt({"reasoning_content": 1, "reasoning": 1, "created": 1, "model": 1, "x" * 10**6: 1})
    assert not caplog.records
    name_misspelt({"tool_call": 1})
    assert "did you mean 'tool_calls'?" in caplog.text


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1"])
def test_a_rate_that_is_no_number_of_calls_is_refused(rate: str, database_url: str, capfd: Capture) -> None:
    assert run(["replay", "--new", "--force", "--rate", rate, "--database-url", database_url]) == 2
    assert "--rate" in capfd.readouterr().err
