"""Erasing what retention has put into an archive: what goes, and what another session still needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline import Memory, Retention
from strandline.erasure import Erasures
from strandline.schemas.postgres.database import Database
from tests.pipelines.upkeep.test_removal import (  # noqa: F401  # fixtures
    archived,
    database_url,
    filled,
    folder,
    memory,
    remove,
)
from tests.support.aging import DAY


@pytest.fixture
def forked(memory: Memory, database: Database, folder: str) -> Memory:  # noqa: F811
    """A session whose old messages are in the archive alone, and which has the fork "f"."""
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    assert remove(database).removed > 0
    memory.fork("f")
    return memory


@pytest.fixture
def erasures(database_url: str) -> Iterator[Erasures]:  # noqa: F811
    opened = Erasures.of_namespace(database_url=database_url)
    yield opened
    opened.close()


def objects(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "archive").rglob("*") if path.is_file()]


@pytest.mark.parametrize(("first", "second"), [("f", "s"), ("s", "f")])
def test_an_object_goes_with_the_last_session_that_names_it(
    first: str, second: str, forked: Memory, erasures: Erasures, database: Database, tmp_path: Path
) -> None:
    before = objects(tmp_path)
    assert before
    receipt = erasures.erase_session(first)
    assert objects(tmp_path) == before, "the other session has no other copy"
    if second == "s":
        assert archived(database)
    assert any("ranges of messages stay" in sentence for sentence in receipt.not_covered)
    receipt = erasures.erase_session(second)
    assert objects(tmp_path) == []
    assert not any("ranges of messages" in sentence for sentence in receipt.not_covered)


def test_all_sessions_of_a_user_leave_no_object(forked: Memory, erasures: Erasures, tmp_path: Path) -> None:
    assert objects(tmp_path)
    erasures.erase_user("ana")
    assert objects(tmp_path) == []
