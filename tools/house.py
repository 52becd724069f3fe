"""``python -m tools.house``: print the size of the project, by room and in all.

``code`` counts lines that hold a token: no blanks, comments or docstrings.  ``handed on`` is the share of
parameters that a function passes to another under their own name, and ``passing`` counts functions of three
or more parameters that do nothing else with any of them.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("schemas", "pipelines", "producers", "workers", "deploy", "strandline")
WRITTEN_BY_A_TOOL = ("schemas/queries", "schemas/migrations/versions")
_WITHOUT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Size:
    """The size of some modules: lines, lines of code, and functions with their parameters."""

    lines: int = 0
    code: int = 0
    functions: int = 0
    parameters: int = 0
    handed: int = 0
    passing: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Size)))

    def describe(self, name: str) -> str:
        share = 100 * self.handed / max(self.parameters, 1)
        return (
            f"{name:<12} {self.lines:>8,} lines {self.code:>8,} code {self.functions:>6,} functions"
            f" {share:>5.1f} % handed on {self.passing:>4} passing"
        )


def main() -> None:
    """Print a line for each room, for all rooms, and for what is counted apart."""
    rooms = {room: sum(map(size_of, hand_written(room)), Size()) for room in ROOMS}
    for room, size in rooms.items():
        print(size.describe(room))
    print(sum(rooms.values(), Size()).describe("in all"))
    for name, files in {
        "written by tools": [path for one in WRITTEN_BY_A_TOOL for path in (ROOT / one).rglob("*.py")],
        "SQL": (ROOT / "schemas").rglob("*.sql"),
        "tests": (ROOT / "tests").rglob("*.py"),
    }.items():
        print(f"{name}: {sum(len(path.read_text().splitlines()) for path in files):,} lines")


def hand_written(room: str) -> Iterator[Path]:
    """The modules of a room that people write; the package's links to the rooms are left out."""
    for path in sorted((ROOT / room).rglob("*.py")):
        name = path.relative_to(ROOT)
        is_linked = any((ROOT / parent).is_symlink() for parent in (name, *name.parents))
        if not is_linked and not str(name).startswith(WRITTEN_BY_A_TOOL):
            yield path


def size_of(path: Path) -> Size:
    """The size of a module."""
    text = path.read_text()
    tree = ast.parse(text)
    size = Size(lines=len(text.splitlines()), code=len(_lines_of_code(text, tree)))
    return sum((_size_of_function(node) for node in ast.walk(tree) if isinstance(node, Function)), size)


def _lines_of_code(text: str, tree: ast.Module) -> set[int]:
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _WITHOUT_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            held.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return held


def _size_of_function(function: Function) -> Size:
    given = function.args
    names = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self", "cls"}
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    handed = set(_names_handed_on(calls)) & names
    is_passing = len(names) >= 3 and handed == names
    return Size(functions=1, parameters=len(names), handed=len(handed), passing=int(is_passing))


def _names_handed_on(calls: Iterable[ast.Call]) -> Iterator[str]:
    for call in calls:
        yield from (one.id for one in call.args if isinstance(one, ast.Name))
        for keyword in call.keywords:
            if isinstance(keyword.value, ast.Name) and keyword.value.id == keyword.arg:
                yield keyword.arg


if __name__ == "__main__":
    main()
