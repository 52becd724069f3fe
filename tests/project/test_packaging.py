"""The built packages: the wheel and the sdist hold real files, and nothing but Strandline."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.release import build_twice

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = ("deploy", "pipelines", "producers", "schemas", "workers")

# One of each kind of file that is not a Python module and is read at run time.
DATA = (
    "strandline/py.typed",
    "strandline/pipelines/models/prompts/extract.md",
    "strandline/samples/conversation.jsonl",
    "strandline/samples/conversation.qa.json",
    "strandline/schemas/sql/migrations/0001_first.sql",
    "strandline/schemas/sql/functions/put_v1.sql",
    "strandline/schemas/sql/messages.sql",
    "strandline/producers/vocabularies/9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "strandline/NOTICE.md",
    "strandline/producers/vocabularies/fb374d419588a4632f3f557e76b4b70aebbca790",
)

# Kinds of file that are written here, if their lines can be read.
WRITTEN_HERE = {
    *".py .typed .md .sql .toml .jinja .json .jsonl .txt .html .css .svg .yaml .conf .service".split(),
    "Dockerfile",
}
LONGEST_LINE = 20_000
NOTICED = re.compile(r"^\| `(?P<file>[^`]+)` \|.*\| `(?P<digest>[0-9a-f]{64})` \|$", re.MULTILINE)
COPYRIGHT = re.compile(rb"\bcopyright \(c\)|\blicen[cs]ed under|@licen[cs]e\b", re.IGNORECASE)

NOT_SOURCE = (".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis")


@dataclass(frozen=True, slots=True)
class Built:
    """The two archives, and the copy of the sources that they were built from."""

    sources: Path
    wheel: Path
    sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Both archives, the wheel built from the sdist, offline, from a copy: a build leaves files behind."""
    folder = tmp_path_factory.mktemp("packaging")
    sources = folder / "sources"
    shutil.copytree(ROOT, sources, symlinks=True, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    output = folder / "dist"
    _run("-m", "build", "--no-isolation", "--outdir", str(output), cwd=sources)
    (wheel,) = output.glob("*.whl")
    (sdist,) = output.glob("*.tar.gz")
    return Built(sources, wheel, sdist)


@pytest.fixture(scope="module")
def in_wheel(built: Built) -> Mapping[str, zipfile.ZipInfo]:
    with zipfile.ZipFile(built.wheel) as archive:
        return {member.filename: member for member in archive.infolist()}


@pytest.fixture(scope="module")
def in_sdist(built: Built) -> Mapping[str, tarfile.TarInfo]:
    with tarfile.open(built.sdist) as archive:
        return {member.name.partition("/")[2]: member for member in archive.getmembers()}


def test_two_builds_of_a_commit_are_the_same_bytes(tmp_path: Path) -> None:
    in_git = shutil.which("git") and subprocess.run(
        ["git", "log", "-1"], cwd=ROOT, capture_output=True, check=False
    )
    if not in_git or in_git.returncode != 0:
        pytest.skip("builds the last commit of a checkout")
    archives = build_twice(tmp_path)
    assert [archive.suffix for archive in archives] == [".whl", ".gz"]


def test_wheel_holds_only_strandline(in_wheel: Mapping[str, zipfile.ZipInfo]) -> None:
    roots = {name.partition("/")[0] for name in in_wheel}
    assert "strandline" in roots
    assert all(root == "strandline" or root.endswith(".dist-info") for root in roots), roots


def test_sdist_has_no_folder_twice(in_sdist: Mapping[str, tarfile.TarInfo]) -> None:
    roots = {name.partition("/")[0] for name in in_sdist}
    assert "strandline" in roots
    assert roots.isdisjoint(FOLDERS), roots


def test_wheel_holds_files_not_links(in_wheel: Mapping[str, zipfile.ZipInfo]) -> None:
    assert not [name for name, member in in_wheel.items() if stat.S_ISLNK(member.external_attr >> 16)]


def test_sdist_holds_files_not_links(in_sdist: Mapping[str, tarfile.TarInfo]) -> None:
    assert not [name for name, member in in_sdist.items() if member.issym() or member.islnk()]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_module_of_a_folder_is_in_both(
    built: Built,
    in_wheel: Mapping[str, zipfile.ZipInfo],
    in_sdist: Mapping[str, tarfile.TarInfo],
    folder: str,
) -> None:
    modules = {
        f"strandline/{path.relative_to(built.sources)}" for path in (built.sources / folder).rglob("*.py")
    }
    assert modules
    assert not modules - in_wheel.keys()
    assert not modules - in_sdist.keys()


@pytest.mark.parametrize("name", DATA)
def test_data_is_in_both(
    in_wheel: Mapping[str, zipfile.ZipInfo], in_sdist: Mapping[str, tarfile.TarInfo], name: str
) -> None:
    size = (ROOT / name).stat().st_size
    assert in_wheel[name].file_size == size
    assert in_sdist[name].size == size


def test_the_notice_names_each_file_of_others(built: Built) -> None:
    """A file is another's if it is of no kind that is written here, is one long line, or says so itself."""
    notice = (ROOT / "strandline" / "NOTICE.md").read_text(encoding="utf-8")
    noticed = {row["file"]: row["digest"] for row in NOTICED.finditer(notice)}
    with zipfile.ZipFile(built.wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
        licences = {name for name in archive.namelist() if ".dist-info/licenses/" in name}
    foreign = {name for name, content in files.items() if _is_foreign(name, content)}
    assert foreign - {"strandline/NOTICE.md"} == noticed.keys()
    assert {name: hashlib.sha256(files[name]).hexdigest() for name in noticed} == noticed
    assert {name.partition("licenses/")[2] for name in licences} == {"LICENSE", "strandline/NOTICE.md"}


def _is_foreign(name: str, content: bytes) -> bool:
    kind = Path(name).suffix or Path(name).name
    longest = max(map(len, content.splitlines()), default=0)
    return kind not in WRITTEN_HERE or longest > LONGEST_LINE or bool(COPYRIGHT.search(content))


def test_installed_wheel_imports_and_counts_from_anywhere(built: Built, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    _run(
        "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(built.wheel)
    )
    code = (
        "import strandline, strandline.producers.tokens as tokens\n"
        "print(strandline.__file__)\n"
        "print(tokens.count_default('the line that the tide leaves'))\n"
    )
    file, count = _run("-c", code, cwd=elsewhere, PYTHONPATH=str(site)).splitlines()
    assert Path(file) == site / "strandline" / "__init__.py"
    assert 5 <= int(count) <= 8


def _run(*arguments: str, cwd: Path = ROOT, **variables: str) -> str:
    """Run this Python with ``arguments`` and return what it printed; a failure shows all of its output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_editable_installation_is_found_from_beside_its_checkout(built: Built, tmp_path: Path) -> None:
    """A script beside a folder called ``strandline`` that holds no modules means the package all the same."""
    checkout, output = tmp_path / "strandline", tmp_path / "dist"
    shutil.copytree(built.sources, checkout, symlinks=True)
    output.mkdir()
    build = "import sys; from setuptools.build_meta import build_editable; build_editable(sys.argv[1])"
    _run("-c", build, str(output), cwd=checkout)
    venv.create(tmp_path / "venv", with_pip=False)
    (site_packages,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    (wheel,) = output.glob("*.whl")
    shutil.unpack_archive(wheel, site_packages, "zip")
    script = tmp_path / "script.py"
    script.write_text("from importlib.util import find_spec\nprint(find_spec('strandline').origin)\n")
    found = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == str(checkout / "strandline" / "__init__.py")
