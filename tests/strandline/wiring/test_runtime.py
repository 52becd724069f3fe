"""A runtime passes on what its process's resources have, and nothing before it has its own fields."""

from __future__ import annotations

import copy
import pickle

import pytest

from strandline.schemas.settings import load_settings
from strandline.wiring.runtime import Runtime


def test_an_empty_runtime_has_no_private_names() -> None:
    empty = Runtime.__new__(Runtime)
    for read in (copy.copy, copy.deepcopy, pickle.dumps, lambda one: one._of_process):
        with pytest.raises(AttributeError, match=r"^_"):
            read(empty)


def test_no_look_at_a_private_name_makes_resources() -> None:
    runtime = Runtime(load_settings(), pool=None, consume=None, forget=lambda: None)
    assert not hasattr(runtime, "__array__") and not hasattr(runtime, "_repr_html_")
    assert not runtime._of_process
    assert runtime.own() is runtime.own()
