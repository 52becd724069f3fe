"""Gather the pages, write those that are made from the code, build, and add what language models read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tools.site.python_reference import python_reference

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs"
CONFIG = Path(__file__).with_name("zensical.toml")
# Pages that stand outside `docs`, by their name in the site.
OUTSIDE = {
    "index.md": ROOT / "README.md",
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "changelog.md": ROOT / "CHANGELOG.md",
    "writing-tests.md": ROOT / "tests" / "README.md",
    "security-policy.md": ROOT / ".github" / "SECURITY.md",
    "notices.md": ROOT / "strandline" / "NOTICE.md",
}
GENERATED = {"python.md": python_reference}
# Contrast and roles that the builder's pages lack (axe-core finds them).
MENDED = {
    "</head>": "<style>[data-md-color-scheme=default][data-md-color-accent]{--md-accent-fg-color:#3344c4}"
    "[data-md-color-scheme=slate][data-md-color-accent]{--md-accent-fg-color:#8c9eff}</style></head>",
    "<th></th>": "<td></td>",
    '<a id="__codelineno': '<a aria-hidden="true" tabindex="-1" id="__codelineno',
    '"nav",{class:"md-code__nav"}': '"div",{class:"md-code__nav"}',
}
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s#]+)")


def main(out: Path) -> None:
    """Build the site into ``out``; raises ``CalledProcessError`` for a broken link or anchor."""
    with tempfile.TemporaryDirectory(prefix="site-") as name:
        work = Path(name)
        pages = _gather(work / "docs")
        (work / "zensical.toml").write_text(_config(pages), encoding="utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--strict"]
        subprocess.run(command, cwd=work, check=True, env={**os.environ, "NO_COLOR": "1"})
        _mend(work / "site")
        _write_for_models(work / "site", work / "docs", pages)
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(work / "site", out)


def _gather(target: Path) -> list[str]:
    """Copy every page and file that a page links to; the names of the pages."""
    sources = {str(path.relative_to(DOCS)): path for path in sorted(DOCS.rglob("*.md"))} | OUTSIDE
    for name, source in sources.items():
        _write(target / name, _relinked(source, name, target))
    for name, make in GENERATED.items():
        _write(target / name, make())
    return [*sources, *GENERATED]


def _relinked(source: Path, name: str, target: Path) -> str:
    """A page's text, its links changed to places in the site; files that it links to are copied there."""

    def place(link: re.Match[str]) -> str:
        found = (source.parent / link[1]).resolve()
        if not found.exists():
            return link[1]  # of code, or broken: the build finds the latter
        return os.path.relpath(_place_of(found, target), (target / name).parent)

    return LINK.sub(place, source.read_text(encoding="utf-8"))


def _place_of(found: Path, target: Path) -> Path:
    for name, source in OUTSIDE.items():
        if found == source:
            return target / name
    if found.is_relative_to(DOCS):
        place = target / found.relative_to(DOCS)
        if found.suffix != ".md":
            _copy(found, place)
        return place
    return _copy_whole(found, target / "files" / found.relative_to(ROOT))


def _copy_whole(found: Path, place: Path) -> Path:
    """Copy a file, or a folder's files with a page that lists them."""
    if found.is_file():
        return _copy(found, place)
    files = sorted(path for path in found.iterdir() if path.is_file() and path.suffix != ".py")
    for path in files:
        _copy(path, place / path.name)
    lines = "".join(f"- [{path.name}]({path.name})\n" for path in files)
    _write(place / "index.md", f"# {found.relative_to(ROOT)}\n\n{lines}")
    return place / "index.md"


def _copy(source: Path, place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, place)
    return place


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _config(pages: list[str]) -> str:
    """The configuration, each ``FOLDER/*`` in it replaced by that folder's pages."""

    def listed(folder: re.Match[str]) -> str:
        return "[" + ", ".join(f'"{page}"' for page in _of_folder(pages, folder[1])) + "]"

    return re.sub(r'"([a-z]+)/\*"', listed, CONFIG.read_text(encoding="utf-8"))


def _of_folder(pages: list[str], folder: str) -> list[str]:
    found = [page for page in pages if page.startswith(f"{folder}/")]
    return sorted(found, key=lambda page: (not page.endswith("README.md"), page))


def _mend(site: Path) -> None:
    for path in (path for path in site.rglob("*") if path.suffix in (".html", ".js")):
        text = path.read_text(encoding="utf-8")
        for before, after in MENDED.items():
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")


def _write_for_models(site: Path, docs: Path, pages: list[str]) -> None:
    """``llms.txt``: a line per page; ``llms-full.txt``: all pages but the decisions."""
    config = tomllib.loads(_config(pages))["project"]
    lines, texts = [f"# {config['site_name']}", "", f"> {config['site_description']}"], []
    for part in config["nav"]:
        ((title, entries),) = part.items()
        lines += ["", f"## {title}", ""]
        for page in _pages_in(entries):
            text = (docs / page).read_text(encoding="utf-8")
            lines.append(f"- [{_title_of(text)}]({_address_of(page)})")
            if not page.startswith("decisions/"):
                texts.append(text)
    _write(site / "llms.txt", "\n".join([*lines, ""]))
    _write(site / "llms-full.txt", "\n\n".join(texts))


def _pages_in(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, Mapping) else entry
        if isinstance(value, str):
            yield value
        else:
            yield from _pages_in(value)


def _title_of(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("# "))[2:]


def _address_of(page: str) -> str:
    name = re.sub(r"(^|/)(index|README)\.md$", r"\1", page)
    return re.sub(r"\.md$", "/", name) or "./"


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
