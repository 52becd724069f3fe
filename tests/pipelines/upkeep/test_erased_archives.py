"""Erasing what retention has put into an archive: what goes, and what another session still needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from strandline import ArchiveError, Memory, Retention, retention
from strandline.deploy.embedded.stack import EmbeddedStack
from strandline.erasure import Erasures
from strandline.pipelines.upkeep.archive import LeavingRange
from strandline.pipelines.upkeep.object_archive import ObjectArchive
from strandline.pipelines.upkeep.removal import StepPoint
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.wiring.archives import open_archive
from tests.conftest import rows_of
from tests.pipelines.upkeep.test_removal import (  # noqa: F401  # fixtures
    Killed,
    archived,
    database_url,
    filled,
    folder,
    memory,
    remove,
)
from tests.support.aging import DAY
from tests.support.processes.commands import run_here
from tests.support.servers.databases import temporary_database


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


@pytest.mark.parametrize("ending", ["removal_planned", "removal_stored", "removal_archived"])
def test_an_erasure_while_a_step_is_archived_leaves_no_object(
    ending: StepPoint,
    memory: Memory,  # noqa: F811
    erasures: Erasures,
    database: Database,
    database_url: str,  # noqa: F811
    folder: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))

    def erase(point: StepPoint) -> None:
        if point == ending:
            erasures.erase_user("ana")

    assert remove(database, reach=erase).removed == 0
    assert objects(tmp_path) == []
    assert rows_of(database_url, "SELECT FROM strandline.retention_step") == []


def test_a_process_that_has_read_the_messages_puts_nothing_into_the_archive_after_the_erasure(
    memory: Memory,  # noqa: F811
    erasures: Erasures,
    database: Database,
    folder: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    """It is killed when it has stored them: no row names the object, so nobody would delete it."""
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))

    class Late:
        """Asked what it is after the messages were read, and before its object is named."""

        def __init__(self, archive: Any) -> None:
            self._archive = archive

        @property
        def has_objects(self) -> bool:
            erasures.erase_user("ana")
            return True

        def store(self, *given: Any) -> str:
            self._archive.store(*given)
            raise Killed

    assert remove(database, lambda name: Late(open_archive(name))).failed == 1
    assert objects(tmp_path) == []


def test_an_erasure_that_ends_before_the_archive_finds_its_objects_again(
    forked: Memory,
    erasures: Erasures,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends when all other rows are gone."""
    before = objects(tmp_path)

    def end(_archive: object, _name: str) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ObjectArchive, "delete", end)
        with pytest.raises(Killed):
            erasures.erase_user("ana")
    assert objects(tmp_path) == before != []
    receipt = erasures.erase_user("ana")
    assert objects(tmp_path) == []
    assert any(check.reader.startswith("archive ") and check.looked_at for check in receipt.checks)


def test_an_object_that_cannot_be_deleted_is_named_in_the_receipt(
    forked: Memory, erasures: Erasures, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_archive: object, name: str) -> None:
        raise ArchiveError(f"cannot delete {name}")

    monkeypatch.setattr(ObjectArchive, "delete", fail)
    receipt = erasures.erase_user("ana")
    (sentence,) = [one for one in receipt.not_covered if "ranges of messages" in one]
    assert any(str(path).endswith(sentence.rpartition(": ")[2].rstrip(".")) for path in objects(tmp_path))


def test_a_restored_copy_deletes_nothing_of_its_original_until_it_adopts_the_archive(
    forked: Memory,
    database: Database,
    stack: EmbeddedStack,
    database_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    before = objects(tmp_path)
    forked.close()
    database.close()
    with (
        temporary_database(stack.database_url, urlsplit(database_url).path[1:]) as copy,
        temporary_database(stack.database_url, urlsplit(copy).path[1:]) as second,
    ):
        refused = Erasures.of_namespace(database_url=copy).erase_user("ana")
        assert objects(tmp_path) == before != []
        (sentence,) = [one for one in refused.not_covered if "ranges of messages" in one]
        assert "delete these objects" in sentence and "`strandline retention adopt` before" in sentence
        assert all(path.name in sentence for path in before if path.suffix == ".jsonl")
        adopted = run_here("retention", "adopt", on=second)
        assert adopted.out == f"file://{tmp_path}/archive\n"
        receipt = Erasures.of_namespace(database_url=second).erase_user("ana")
        assert not any("ranges of messages" in one for one in receipt.not_covered)
        assert [path.name for path in objects(tmp_path)] == ["adopted-by"]


def test_the_original_deletes_its_own_objects_though_a_copy_adopted_them(
    forked: Memory,
    erasures: Erasures,
    folder: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    open_archive(folder).adopt("a copy")
    erasures.erase_user("ana")
    assert [path.name for path in objects(tmp_path)] == ["adopted-by"]


def test_an_object_from_before_databases_had_marks_is_its_databases_own(
    memory: Memory,  # noqa: F811
    erasures: Erasures,
    database: Database,
    folder: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))
    named: Callable[[LeavingRange], str] = vars(LeavingRange)["object_name"].fget

    def without_mark(leaving: LeavingRange) -> str:
        return named(leaving).replace(f"-{leaving.database_mark}.jsonl", ".jsonl")

    monkeypatch.setattr(LeavingRange, "object_name", property(without_mark))
    assert remove(database).removed > 0
    assert objects(tmp_path) != []
    erasures.erase_user("ana")
    assert objects(tmp_path) == []


@pytest.mark.parametrize("point", ["removal_planned", "removal_stored"])
def test_a_step_that_a_copy_finds_begun_leaves_the_original_its_object(
    point: StepPoint,
    memory: Memory,  # noqa: F811
    database: Database,
    stack: EmbeddedStack,
    database_url: str,  # noqa: F811
    folder: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Both resume it: their objects have other names, and each erases its own alone."""
    memory.set_retention(Retention(max_age_seconds=30 * DAY, archive=folder))

    def end(reached: StepPoint) -> None:
        if reached == point:
            raise Killed

    with pytest.raises(Killed):
        remove(database, reach=end)
    memory.close()
    database.close()
    with temporary_database(stack.database_url, urlsplit(database_url).path[1:]) as copy:
        original = retention.connect(load_settings(database_url=database_url))
        assert retention.run(original, at_once=True).removed > 0
        original.close()
        before = objects(tmp_path)
        copied = retention.connect(load_settings(database_url=copy))
        retention.run(copied, at_once=True)
        (step, *_) = [*retention.status(copied).steps, None]
        assert point == "removal_planned" or "is a copy of it" in str(step)
        copied.close()
        Erasures.of_namespace(database_url=copy).erase_user("ana")
        assert objects(tmp_path) == before != []
