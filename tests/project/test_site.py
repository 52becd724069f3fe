"""The site of the documents builds strictly, loads nothing from elsewhere, and has every page and name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import strandline
from tools.site.__main__ import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
# What a browser fetches by itself.
FETCHED = re.compile(r"""<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=["']?(https?:|//)""")
IMPORTED = re.compile(r"""(?:url\(|@import )["']?(https?:|//)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site; a broken link or anchor ends its building."""
    out = tmp_path_factory.mktemp("site") / "site"
    main(out)
    return out


def test_every_page_is_there_and_in_the_list_for_models(site: Path) -> None:
    pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md") if path.name != "README.md"]
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    for page in pages:
        assert (site / page.with_suffix("") / "index.html").is_file(), page
        assert f"({page.with_suffix('')}/)" in listed, page
    whole = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert "# A chat that remembers" in whole
    assert "# Operations" in whole


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    found = [
        f"{path.relative_to(site)}: {match[0]}"
        for path in site.rglob("*")
        if path.suffix in (".html", ".css")
        for match in (FETCHED if path.suffix == ".html" else IMPORTED).finditer(
            path.read_text(encoding="utf-8")
        )
    ]
    assert found == []


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "python" / "index.html").read_text(encoding="utf-8")
    missing = [name for name in strandline.__all__ if f'<h2 id="{name.lower()}"' not in page]
    assert missing == []
