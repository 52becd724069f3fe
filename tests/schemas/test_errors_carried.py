"""Errors on their way between processes: each arrives as what it was, with all that it says."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline
from strandline import InvalidMessageError
from strandline.schemas import errors as errors_module
from strandline.schemas.errors import StrandlineError
from tests.support.processes.pool_work import put_nowhere

# Of libraries that are not installed beside the others; tests/legacy imports them.
OF_THE_SECOND_ENVIRONMENT = (
    "strandline.adapters.agno_v1",
    "strandline.adapters.legacy",
    "strandline.adapters.tframex",
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": st.text(),
    "str | None": st.none() | st.text(),
    "int": st.integers(1),
    "int | None": st.none() | st.integers(1),
    "float": st.floats(0, 1e6),
    "float | None": st.none() | st.floats(0, 1e6),
}


def kinds(root: type[StrandlineError] = StrandlineError) -> Iterator[type[StrandlineError]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


def all_kinds() -> list[type[StrandlineError]]:
    """The whole tree, wherever in the package a branch of it is."""
    for module in pkgutil.walk_packages(strandline.__path__, "strandline."):
        is_elsewhere = module.name.startswith(OF_THE_SECOND_ENVIRONMENT)
        if not module.name.endswith("__main__") and ".migrations." not in module.name and not is_elsewhere:
            importlib.import_module(module.name)
    return sorted(set(kinds()), key=lambda kind: kind.__name__)


def errors(kind: type[StrandlineError]) -> st.SearchStrategy[StrandlineError]:
    """Errors of a kind, as its signature has them made, some with an attribute that was set later."""
    positional: list[st.SearchStrategy[Any]] = []
    named: dict[str, st.SearchStrategy[Any]] = {}
    for parameter in inspect.signature(kind).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional.append(st.text())
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            named[parameter.name] = VALUES[str(parameter.annotation)]
        else:
            positional.append(VALUES[str(parameter.annotation)])
    made = st.builds(kind, *positional, **named)
    return st.builds(_with_note, made, st.none() | st.text())


def _with_note(error: StrandlineError, note: str | None) -> StrandlineError:
    if note is not None:
        error.add_note(note)
    return error


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (errors_module.ConfigurationError, ValueError),
        (errors_module.InvalidMessageError, ValueError),
        (errors_module.EmbeddedUnavailableError, ValueError),
        (errors_module.NotFoundError, LookupError),
        (errors_module.UnknownPipelineError, LookupError),
        (errors_module.DatabaseTimeoutError, TimeoutError),
    ],
)
def test_an_error_of_a_common_kind_is_caught_as_that_kind(
    kind: type[StrandlineError], builtin: type[Exception]
) -> None:
    error = kind("messages[0]", "is late") if kind is InvalidMessageError else kind("It is late.")
    with pytest.raises(builtin, match="is late") as caught:
        raise error
    assert isinstance(caught.value, StrandlineError)
    assert not isinstance(errors_module.DatabaseUnavailableError("It is away."), TimeoutError)


def test_the_tree_of_errors_is_known_whole() -> None:
    assert len(all_kinds()) > 20


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.__name__)
@settings(max_examples=20)  # of each
@given(data=st.data(), protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_an_error_survives_pickling_and_copying_with_all_its_attributes(
    kind: type[StrandlineError], data: st.DataObject, protocol: int
) -> None:
    error = data.draw(errors(kind))
    pickled = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301
    for arrived in (pickled, copy.copy(error), copy.deepcopy(error)):
        assert type(arrived) is kind
        assert (str(arrived), arrived.args, vars(arrived)) == (str(error), error.args, vars(error))


def test_a_bad_message_in_a_pool_of_processes_is_its_callers_error_alone() -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        bad = pool.submit(put_nowhere, {"role": "user", "content": "a\0b"})
        with pytest.raises(InvalidMessageError, match="content") as raised:
            bad.result(timeout=120)
        assert "content" in raised.value.field
        assert pool.submit(len, "still there").result(timeout=120) == 11
