"""Statements for tests, by name, from the files beside this one."""

from __future__ import annotations

import re
from pathlib import Path


def named_statements(file: str) -> dict[str, str]:
    """The statements of an SQL file beside the tests, by name."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    pieces = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))
