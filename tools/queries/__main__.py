"""``python -m tools.queries``: write ``schemas/queries``, and the statements that follow from the tables."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

# The package without its faces: these import what calls the statements, which may not fit them yet.
_bare = ModuleType("strandline")
_bare.__path__ = [str(Path(__file__).resolve().parent.parent.parent / "strandline")]
sys.modules["strandline"] = _bare

from tools.queries import erasing, exporting, resealing  # noqa: E402
from tools.queries.modules import QUERIES, write_modules  # noqa: E402


def main() -> None:
    for of_tables in (resealing, exporting, erasing):
        of_tables.PATH.write_text(of_tables.write_statements(), encoding="utf-8")
    written = write_modules()
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in set(QUERIES.rglob("*.py")) - set(written):
        path.unlink()


if __name__ == "__main__":
    main()
