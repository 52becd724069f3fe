"""What cannot be done is told with what to do instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.cli.entry import run
from strandline.pipelines.models.prompts.overrides import prompt_texts
from strandline.schemas.errors import ConfigurationError

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", [["prune", "99"], ["diff", "99"], ["promote", "99"]], ids=" ".join)
def test_a_generation_that_is_not_there_is_told_with_where_they_are_listed(
    command: list[str], database_url: str, capfd: Capture
) -> None:
    assert run(["generations", *command, "--database-url", database_url]) == 1
    said = capfd.readouterr().err
    assert "There is no generation 99" in said
    assert "; `strandline generations list` lists them." in said


def test_a_session_of_two_users_in_a_file_is_told_with_the_option(
    database_url: str, tmp_path: Path, capfd: Capture
) -> None:
    file = tmp_path / "two.jsonl"
    lines = ({"role": "user", "content": "a", "session_id": "s", "user_id": name} for name in ("ana", "bo"))
    file.write_text("\n".join(map(json.dumps, lines)))
    assert run(["import", str(file), "--database-url", database_url]) == 1
    said = capfd.readouterr().err
    assert "line 2 belongs to another user" in said
    assert "Name the field that has the user with --user-field" in said


def test_a_prompt_that_cannot_be_read_is_told_in_words(tmp_path: Path) -> None:
    prompt = tmp_path / "extract.md"
    prompt.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="it is not UTF-8 text; save it as UTF-8"):
        prompt_texts(tmp_path)
    prompt.unlink()
    prompt.mkdir()
    with pytest.raises(ConfigurationError, match="Is a directory; check its owner"):
        prompt_texts(tmp_path)
    with pytest.raises(ConfigurationError, match="not a directory; make it, or unset the variable"):
        prompt_texts(tmp_path / "nowhere")
