"""The site of the documents builds strictly, loads nothing from elsewhere, and has every page and name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import pytest

import strandline
from tests.strandline.service.pages.browsing import AXE, CHROMIUM, VIOLATIONS, opened_browser
from tools.site.__main__ import CONFIG, GENERATED, OUTSIDE, main

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Parts of the site that its users need not read, and pages that are written from the code.
OF_DEVELOPERS = {"Developers", "Concepts", "Architecture"}
NOT_PROSE = {*GENERATED, "api.md", "changelog.md"}
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


def pages_of_users(entries: list[Any]) -> Iterator[Path]:
    for entry in entries:
        ((title, value),) = entry.items() if isinstance(entry, Mapping) else [("", entry)]
        if isinstance(value, list):
            yield from () if title in OF_DEVELOPERS else pages_of_users(value)
        elif title not in OF_DEVELOPERS and value not in NOT_PROSE:
            yield OUTSIDE.get(value, DOCS / value)


def test_the_pages_of_users_are_short_and_hold_no_proofs() -> None:
    parts = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["nav"]
    texts = {page: page.read_text(encoding="utf-8") for page in pages_of_users(parts)}
    assert len(texts) > 20
    assert sum(len(text.split()) for text in texts.values()) <= 60_000
    assert [page.name for page, text in texts.items() if re.search(r"`tests/[\w/]+\.py", text)] == []


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """The site on a static server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=site)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.skipif(not CHROMIUM.exists(), reason=f"needs Chromium as {CHROMIUM}")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_finds_no_barrier_and_asks_nobody_else(
    address: str, scheme: Literal["light", "dark"]
) -> None:
    asked: set[str] = set()
    with opened_browser() as browser:
        page = browser.new_context(color_scheme=scheme).new_page()
        page.on("request", lambda request: asked.add(request.url))
        for name in ("", "tutorial/", "operations/", "python/", "contributing/"):
            page.goto(f"{address}/{name}")
            page.evaluate(AXE)
            assert page.evaluate(VIOLATIONS) == [], name
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
