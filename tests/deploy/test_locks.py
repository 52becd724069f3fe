"""The locked packages: complete, within the bounds of pyproject.toml, each with its digests."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent.parent
LOCKS = ROOT / "deploy/locks"
RUNTIME_EXTRAS = (
    "embedded",
    "multilingual",
    "llamaindex",
    "agents",
    "langchain",
    "langgraph",
    "mcp",
    "pydantic-ai",
)
IMAGE_EXTRAS = ("service", "mcp", "encryption", "erasure", "archive", "metrics")
ALL = ["build.txt", "core.txt", "extras.txt", "image.txt"]
DIGEST = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def declared(lock: str) -> list[Requirement]:
    """The requirements that the lock is made from."""
    if lock == "build.txt":
        return [Requirement(line) for line in project()["build-system"]["requires"]]
    lines = list(project()["project"]["dependencies"])
    for extra in {"extras.txt": RUNTIME_EXTRAS, "image.txt": IMAGE_EXTRAS}.get(lock, ()):
        lines += project()["project"]["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


def entries(lock: str) -> list[tuple[Requirement, list[str]]]:
    """Each locked package, and what follows its name."""
    logical = (LOCKS / lock).read_text().replace("\\\n", " ").splitlines()
    lines = [line for line in logical if line.strip() and not line.lstrip().startswith("#")]
    return [(Requirement(line.partition("--hash=")[0]), DIGEST.findall(line)) for line in lines]


def locked_here(lock: str) -> dict[str, Requirement]:
    """The packages that the lock installs on this machine, by name."""
    here = [entry for entry, _ in entries(lock) if entry.marker is None or entry.marker.evaluate()]
    return {canonicalize_name(entry.name): entry for entry in here}


def needed(requirement: Requirement) -> Iterator[Requirement]:
    """What an installed package asks for, on this machine and with the extras that are asked of it."""
    try:
        lines = requires(requirement.name) or []
    except PackageNotFoundError:
        return
    for wanted in map(Requirement, lines):
        extras = ("", *requirement.extras)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in extras):
            yield wanted


@pytest.mark.parametrize("lock", ALL)
def test_every_locked_package_has_one_version_and_its_digests(lock: str) -> None:
    assert entries(lock)
    for entry, digests in entries(lock):
        assert re.fullmatch(r"==[\w.!+]+", str(entry.specifier)), entry
        assert digests, entry


@pytest.mark.parametrize("lock", ALL)
def test_a_lock_names_no_index_no_address_and_no_folder(lock: str) -> None:
    for line in (LOCKS / lock).read_text().splitlines():
        assert not re.search(r"://|--(extra-)?index|--find-links|--trusted|file:|^-| @ |/tmp|/home", line), (
            line
        )


@pytest.mark.parametrize("lock", ALL)
def test_a_lock_covers_what_the_project_declares_within_its_bounds(lock: str) -> None:
    versions = {name: entry.specifier for name, entry in locked_here(lock).items()}
    for requirement in declared(lock):
        (version,) = (pin.version for pin in versions[canonicalize_name(requirement.name)])
        assert requirement.specifier.contains(version, prereleases=True), requirement


@pytest.mark.parametrize("lock", ["core.txt", "extras.txt", "image.txt"])
def test_a_lock_covers_what_its_packages_need_in_turn(lock: str) -> None:
    locked = locked_here(lock)
    waiting, seen = declared(lock), set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key not in seen:
            seen.add(key)
            assert key[0] in locked, requirement
            waiting += needed(requirement)
    assert len({name for name, _ in seen}) > len(declared(lock))


@pytest.mark.parametrize("lock", ["extras.txt", "image.txt"])
def test_the_extras_add_to_the_core_and_change_nothing_of_it(lock: str) -> None:
    core, extras = (
        {name: entry.specifier for name, entry in locked_here(each).items()} for each in ("core.txt", lock)
    )
    assert core.items() < extras.items()


def test_the_image_installs_nothing_that_is_not_locked() -> None:
    text = (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", " ")
    assert {"build.txt", "image.txt"} == set(re.findall(r"deploy/locks/(\S+\.txt)", text))
    installs = re.findall(r"pip (?:install|wheel) [^&\n]*", text)
    assert len(installs) == 4
    for install in installs:
        locked = "--require-hashes --requirement deploy/locks/" in install
        assert locked or "--no-deps" in install, install
        assert "pip wheel" not in install or "--no-build-isolation" in install
