"""``python -m tools.release OUT``: build the release twice, hold that the bytes are the same, and try it.

The sources are those of the last commit, and every time in the archives is that commit's.  ``--check``
installs the wheel in fresh environments: on each Python from 3.11 on in PATH, with the newest and with the
lowest dependencies that it allows, and with each extra alone.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
# Extras that do not go together with others are tried as well, each alone.
TRIED_WITH = "embedded"

SCRIPT = """
from strandline import Memory
memory = Memory.from_defaults("release", user_id="ana")
memory.put({"role": "user", "content": "My dog Bolt is afraid of thunder."})
last = memory.put({"role": "assistant", "content": "Noted."})
memory.deliver()
assert memory.get(wait_for=last).caught_up
assert [fact.text for fact in memory.facts.list()] == ["User: My dog Bolt is afraid of thunder."]
memory.close()
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--check", action="store_true", help="install and try it in fresh environments")
    options = parser.parse_args()
    archives = build_twice(options.out.resolve())
    for archive in archives:
        print(f"{_digest(archive)}  {archive.name}")
    if options.check:
        (wheel,) = [archive for archive in archives if archive.suffix == ".whl"]
        for what in check(wheel):
            print(what, flush=True)


def build_twice(out: Path) -> list[Path]:
    """The sdist and the wheel, in ``out``; raises ``SystemExit`` if a second build differs."""
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        first, second = (_build(Path(name) / number) for number in ("1", "2"))
        for one, other in zip(first, second, strict=True):
            if _digest(one) != _digest(other):
                raise SystemExit(f"{one.name} differs between two builds of the same commit.")
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(archive, out)) for archive in first]


def _build(folder: Path) -> list[Path]:
    moment = int(_run("git", "log", "-1", "--format=%ct"))
    sources, dist = folder / "sources", folder / "dist"
    sources.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(sources, filter="tar")
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist))
    _run(*build, cwd=sources, SOURCE_DATE_EPOCH=str(moment))
    (sdist,) = dist.glob("*.tar.gz")
    _settle(sdist, moment)
    return sorted(dist.iterdir())


def _settle(sdist: Path, moment: int) -> None:
    """Write a source archive again: its members in order, of nobody, and of that moment."""
    with tarfile.open(sdist) as old:
        members = [(member, old.extractfile(member)) for member in old.getmembers()]
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as new:
            for member, content in sorted(members, key=lambda one: one[0].name):
                member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                member.pax_headers = {}
                new.addfile(member, content)
    with sdist.open("wb") as file, gzip.GzipFile("", "wb", mtime=moment, fileobj=file) as packed:
        packed.write(buffer.getvalue())


def check(wheel: Path) -> Iterator[str]:
    """Install and try the wheel in each way; a line for each that holds."""
    pythons = _pythons()
    for python in pythons:
        for resolution in ("highest", "lowest-direct"):
            with _environment(python, wheel, [TRIED_WITH], resolution) as found:
                _run(str(found), "-c", SCRIPT, STRANDLINE_HOME=str(found.parent.parent / "home"))
            yield f"{python}, {resolution} dependencies: a script puts, derives and reads"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra in sorted(extras["optional-dependencies"]):
        with _environment(pythons[0], wheel, [extra], "highest") as found:
            _run(str(found), "-m", "strandline", "--help")
        yield f"extra {extra} alone: installs, and the command line starts"


def _pythons() -> Sequence[str]:
    """The versions from the oldest allowed on, as uv finds them on this machine."""
    lines = _run(sys.executable, "-m", "uv", "python", "list", "--only-installed", "--no-python-downloads")
    names = {line.split("-")[1] for line in lines.splitlines() if line.startswith("cpython-")}
    versions = sorted(
        {tuple(int(part) for part in name.split(".")[:2]) for name in names if name[0].isdigit()}
    )
    return [f"{major}.{minor}" for major, minor in versions if (major, minor) >= OLDEST]


@contextmanager
def _environment(python: str, wheel: Path, extras: Sequence[str], resolution: str) -> Iterator[Path]:
    """A fresh environment with the wheel and extras; its Python."""
    with tempfile.TemporaryDirectory(prefix="release-environment-") as name:
        place = Path(name) / "venv"
        uv = (sys.executable, "-m", "uv", "--quiet")
        _run(*uv, "venv", "--python", python, "--no-python-downloads", str(place))
        wanted = f"strandline[{','.join(extras)}] @ {wheel.as_uri()}"
        _run(*uv, "pip", "install", "--python", str(place), "--resolution", resolution, wanted)
        yield place / "bin" / "python"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(*command: str, cwd: Path = ROOT, **variables: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
