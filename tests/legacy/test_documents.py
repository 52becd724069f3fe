"""What the pages of Agno 1 and TFrameX show runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project import test_documentation as documentation

PAGES = ("docs/adapters/agno-1.md", "docs/adapters/tframex.md")
BLOCKS = [block for block in documentation.examples() if block.where.startswith(PAGES)]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_what_the_pages_show_runs(
    block: documentation.Block, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documentation.test_recipes_run(block, database_url, tmp_path, monkeypatch)


def test_their_examples_run_one_after_another(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in BLOCKS:
        documentation.test_recipes_run(block, database_url, tmp_path, monkeypatch)


def test_both_pages_show_something() -> None:
    assert {block.where.partition(":")[0] for block in BLOCKS} == set(PAGES)
