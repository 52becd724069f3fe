"""``strandline import`` names the option that a file needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.cli.entry import run

Capture = pytest.CaptureFixture[str]


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
