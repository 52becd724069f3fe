"""The table of promises (docs/promises.md), and which of its tests this run has collected."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "promises.md"

_PROOF = re.compile(r"`(tests/(?:\w+/)*test_\w+\.py)::(test_\w+)`")
_REASON = re.compile(r"(does not apply|open): (\w.+)")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page: a promise with its number, or an example with its document's name and number."""

    section: str
    number: str
    cells: tuple[str, ...]

    @property
    def is_example(self) -> bool:
        return not self.number[0].isdigit()

    @property
    def features(self) -> list[str]:
        return [] if self.is_example else self.cells[2].split(", ")

    @property
    def proofs(self) -> list[tuple[str, str]]:
        """The file and the name of each test that the row names."""
        return [(file, name) for file, name in _PROOF.findall(self.cells[-1])]

    @property
    def reason(self) -> str | None:
        """Why there is no proof: that it does not apply, or what it waits for."""
        return next((cell for cell in self.cells if _REASON.match(cell)), None)


@cache
def rows() -> tuple[Row, ...]:
    return tuple(_read(PAGE.read_text(encoding="utf-8")))


def _read(page: str) -> Iterator[Row]:
    section = ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line[3:]
        if line.startswith("| ") and not line.startswith(("| # |", "| example |")):
            number, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1])
            yield Row(section, number, tuple(cells))


def uncollected(session: pytest.Session, folder: str = "tests") -> list[str]:
    """The tests that the page names below ``folder``, in files that this run looked at, and did not find.

    A run of chosen tests says nothing about the others of their files.
    """
    chosen = session.config.option.keyword or session.config.option.markexpr
    if chosen or any("::" in argument for argument in session.config.args):
        return []
    found = {(_place(item), getattr(item, "originalname", item.name)) for item in session.items}
    files = {file for file, _ in found}
    named = {proof for row in rows() for proof in row.proofs if proof[0].startswith(f"{folder}/")}
    return sorted(f"{file}::{name}" for file, name in named if file in files and (file, name) not in found)


def _place(item: pytest.Item) -> str:
    return str(item.path.relative_to(ROOT))
