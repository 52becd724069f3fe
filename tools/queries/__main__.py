"""``python -m tools.queries``: write ``schemas/queries`` anew."""

from __future__ import annotations

from tools.queries.modules import QUERIES, write_modules


def main() -> None:
    written = write_modules()
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in set(QUERIES.rglob("*.py")) - set(written):
        path.unlink()


if __name__ == "__main__":
    main()
