"""The table of promises: complete, and each row with a proof that is run, or with a reason."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache

import pytest

from tests.documents.promises import ROOT, rows, uncollected

# What the five documents have of code examples; those that chain up count one by one.
EXAMPLES = {"guide": 13, "notebook": 15, "introduction": 3, "agno": 4, "tframex": 19}
# Rows of docs/features.md that the documents are about, and promises that only this page has.
NAMED = [
    *(f"{part}{n}" for part, count in (("A", 16), ("B", 12), ("C", 11)) for n in range(1, count + 1)),
    *(f"P{n}" for n in range(1, 21)),
]
# What a row may wait for.
OPEN = ("encryption", "erasure", "audit", "retention", "the HTTP service")
ONLY_HERE = "**Only here**"

IDS = [row.number for row in rows()]


def test_the_numbers_of_promises_are_each_used_once() -> None:
    assert [number for number, times in Counter(IDS).items() if times > 1] == []


def test_every_example_of_the_documents_has_a_row() -> None:
    examples = [row.number.split() for row in rows() if row.is_example]
    assert Counter(document for document, _ in examples) == EXAMPLES
    for document, count in EXAMPLES.items():
        assert [int(n) for name, n in examples if name == document] == list(range(1, count + 1))


def test_every_feature_and_every_small_promise_is_in_a_row() -> None:
    named = {feature for row in rows() for feature in row.features}
    assert [name for name in NAMED if name not in named] == []


def test_a_row_has_a_proof_or_a_reason() -> None:
    assert [row.number for row in rows() if not (row.proofs or row.reason)] == []
    assert [row.number for row in rows() if ONLY_HERE in str(row.cells) and not row.proofs] == []


def test_what_a_row_waits_for_is_a_subject_that_is_still_to_be_built() -> None:
    waits = [(row.number, text) for row in rows() for cell in row.cells for text in cell.split("open: ")[1:]]
    assert [(number, text) for number, text in waits if not text.startswith(OPEN)] == []


def test_a_proof_is_a_test() -> None:
    proofs = {proof for row in rows() for proof in row.proofs}
    assert sorted(f"{file}::{name}" for file, name in proofs if name not in _tests_of(file)) == []


def test_an_example_marks_the_lines_that_changed() -> None:
    files = {file for row in rows() if row.is_example for file, _ in row.proofs}
    assert [file for file in files if "# changed" not in (ROOT / file).read_text(encoding="utf-8")] == []


def test_every_proof_of_this_run_is_collected(request: pytest.FixtureRequest) -> None:
    assert uncollected(request.session) == []


@cache
def _tests_of(file: str) -> set[str]:
    """The names that pytest takes for tests in a file."""
    path = ROOT / file
    body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
    return {one.name for one in body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))}
