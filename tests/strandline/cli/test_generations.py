"""``strandline generations`` names where generations are listed if one does not exist."""

from __future__ import annotations

import pytest

from strandline.cli.entry import run

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("command", [["prune", "99"], ["diff", "99"], ["promote", "99"]], ids=" ".join)
def test_a_generation_that_is_not_there_is_told_with_where_they_are_listed(
    command: list[str], database_url: str, capfd: Capture
) -> None:
    assert run(["generations", *command, "--database-url", database_url]) == 1
    said = capfd.readouterr().err
    assert "There is no generation 99" in said
    assert "; `strandline generations list` lists them." in said
