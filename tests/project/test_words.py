"""Documents and docstrings keep to plain English: awkward phrases are counted, and never become more."""

from __future__ import annotations

import pytest

from tools.words import IDIOMS, RELATIVES, ROOT, Count, count, documents, modules, total

# Lower a number when the count falls.
MOST_IN_DOCUMENTS = Count(relatives=0, idioms=0)
MOST_IN_CODE = Count(relatives=89, idioms=14)


def _at_most(found: Count, most: Count) -> bool:
    return found.relatives <= most.relatives and found.idioms <= most.idioms


def test_documents_keep_to_their_count() -> None:
    found = total({path: count(path) for path in documents()})
    assert _at_most(found, MOST_IN_DOCUMENTS), f"{found}: see python -m tools.words --show"


def test_the_readme_has_none_of_the_phrases() -> None:
    assert count(ROOT / "README.md") == Count(0, 0)


def test_code_keeps_to_its_count() -> None:
    found = total({path: count(path) for path in modules()})
    assert _at_most(found, MOST_IN_CODE), f"{found}: see python -m tools.words --show"


@pytest.mark.parametrize(
    "text", ["what is not derived from yet", "those that wait", "made anew", "a seat beside the worker"]
)
def test_a_relative_is_found(text: str) -> None:
    assert RELATIVES.search(text)


@pytest.mark.parametrize("text", ["it carries on", "work goes on", "nobody reads it", "which is no address"])
def test_an_idiom_is_found(text: str) -> None:
    assert IDIOMS.search(text)


@pytest.mark.parametrize("text", ["The backlog grows.", "which is no longer served", "There is no session"])
def test_plain_english_is_not_found(text: str) -> None:
    assert not RELATIVES.search(text)
    assert not IDIOMS.search(text)
