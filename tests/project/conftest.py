"""What tests of the source share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.support.syntax_trees import tree_of


@pytest.fixture(scope="session")
def syntax_trees() -> Iterator[None]:
    """The trees are kept for the run, and go before pytest looks five times for what nobody closed.

    That takes a second for each million of objects each time, and there are no cycles among them.
    """
    yield
    tree_of.cache_clear()


@pytest.fixture(scope="module")
def without_collection(syntax_trees: None) -> Iterator[None]:
    """No garbage collection while trees are looked through, which took a quarter of the time."""
    gc.disable()
    yield
    gc.enable()
