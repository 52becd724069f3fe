"""What is written to disk is for its owner alone, whatever the umask."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import pytest

from strandline import Memory, Retention
from strandline.cli.doctor.servers import _archives
from strandline.cli.erasures.opening import receipts_kept
from strandline.cli.imports import _omissions
from strandline.pipelines.upkeep.archive import LeavingRange
from strandline.pipelines.upkeep.erasure.signing import make_key
from strandline.pipelines.upkeep.object_archive import ObjectArchive
from strandline.schemas.postgres.database import Database
from strandline.schemas.private_files import create_private, make_private_folder, open_private, write_private
from strandline.workers.upkeep.sealing import append_to
from tests.project.test_contracts import ALL, offenders

# Each with its reason.
ALLOWED = {
    "deploy/embedded/postgres_cluster.py": "in a folder of mode 0700; programs for the account of the server",
    "deploy/embedded/broker_keeper.py": "sets its umask first",
    "schemas/private_files.py": "is what others use",
    "strandline/cli/export.py": "a file of mkstemp",
    "strandline/cli/terminal/streams.py": "the null device",
}


@pytest.fixture(params=[0, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_each_file_that_is_written_is_for_its_owner_alone(tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    make_private_folder(place)
    create_private(place / "deep" / "archived", b"said")
    with pytest.raises(FileExistsError):
        create_private(place / "deep" / "archived", b"other")
    assert (place / "deep" / "archived").read_bytes() == b"said"
    with open_private(place / "opened", "a") as file:
        file.write("x")
    write_private(place / "replaced", "x")
    with receipts_kept(place / "receipts"):
        assert (place / "receipts").exists()
    with _omissions(place / "omissions"):
        pass
    append_to(place / "anchors")([])
    make_key(place / "key.pem")
    none = UUID(int=0)
    nothing = LeavingRange(none, none, "default", "s", None, none, 1, 2, "age", ())
    ObjectArchive(f"file://{tmp_path}/archives/one").store(nothing, list)
    (place / "key.pem.pub").unlink()  # for all
    assert modes(tmp_path / "new") | modes(tmp_path / "archives") == {0o600, 0o700}


def modes(folder: Path) -> set[int]:
    return {stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}


def writes_in(tree: ast.AST) -> list[str]:
    """What makes files or folders of the modes that the umask leaves."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [f"line {call.lineno}" for call in calls if makes_file(call)]


def makes_file(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    arguments = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    if name in ("write_text", "write_bytes") and isinstance(call.func, ast.Attribute):
        return True
    if name in ("mkdir", "makedirs"):
        return not any(keyword.arg == "mode" for keyword in call.keywords)
    modes = [mode for mode in arguments if isinstance(mode, str) and set(mode) <= set("wax+brt")]
    return name == "open" and any(set(mode) & set("wax+") for mode in modes)


def test_nothing_is_written_but_by_what_keeps_it_private() -> None:
    found = offenders([path for path in ALL if not str(path).endswith(tuple(ALLOWED))], writes_in)
    assert not found, found


def test_doctor_names_a_folder_of_an_archive_that_others_can_use(
    make_memory: Callable[..., Memory], database: Database, tmp_path: Path
) -> None:
    folder = tmp_path / "open archive"
    folder.mkdir()
    folder.chmod(0o755)
    make_memory("s", user_id="ana").set_retention(
        Retention(max_messages=1, archive=f"file://{quote(str(folder))}")
    )
    (report,) = _archives(database)
    assert report.advice == f"`chmod -R go= '{folder}'`" and "0755" in report.found
    folder.chmod(0o700)
    assert [*_archives(database)] == []
