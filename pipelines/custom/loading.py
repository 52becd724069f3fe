"""Finding code of an application: custom blocks, and functions that settings name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from strandline.pipelines.custom.contract import BlockDefinition, place_in
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ConfigurationError

ENTRY_POINT_GROUP = "strandline.blocks"


@lru_cache(maxsize=16)
def load_blocks(named: str) -> Mapping[str, BlockDefinition]:
    """All custom blocks by name: those of installed packages, and those of the setting ``named``.

    Args:
        named: ``package.module:Class`` or ``package.module:instance``, several separated by commas.

    Raises:
        ConfigurationError: a block cannot be imported, is not a block, or has the name of another.
    """
    blocks: dict[str, BlockDefinition] = {}
    places: dict[str, str] = {}
    for place, source in (*_installed_blocks(), *_listed_blocks(named)):
        block = BlockDefinition.check(source, where=place)
        if block.name in blocks and type(block.code) is not type(blocks[block.name].code):
            raise ConfigurationError(
                f"Two memory blocks are called {block.name!r}: {places[block.name]} and {place};"
                " rename one of them."
            )
        blocks[block.name], places[block.name] = block, place
    return MappingProxyType(blocks)


@lru_cache(maxsize=16)
def load_function(name: str, *, setting: str, group: str) -> Callable[..., Any]:
    """The function that a setting names.

    Args:
        name: ``package.module:function``, or the name of an entry point.
        setting: the variable, for messages.
        group: the group of the entry points.

    Raises:
        ConfigurationError: there is none, it cannot be imported, or it cannot be called.
    """
    place = name if ":" in name else _place_of(name, setting, group)
    module, _colon, attribute = place.partition(":")
    if not module or not attribute:
        raise ConfigurationError(f"{setting} names {quote(name)}; write package.module:function.")
    function: Callable[..., Any] = _import_attribute(module, attribute, f"{setting}: {place}")
    if not callable(function):
        raise ConfigurationError(f"{setting}: {place} cannot be called; name a function.")
    return function


def _place_of(name: str, setting: str, group: str) -> str:
    for point in entry_points(group=group, name=name):
        return point.value
    raise ConfigurationError(
        f"{setting} is {quote(name)}, and no installed package has an entry point of this name in the group"
        f" {group}; name one that has, or write package.module:function."
    )


def _installed_blocks() -> Iterator[tuple[str, Any]]:
    for point in entry_points(group=ENTRY_POINT_GROUP):
        yield f"{point.value} (entry point {point.name!r})", _import_object(point.value)


def _listed_blocks(named: str) -> Iterator[tuple[str, Any]]:
    for place in named.split(","):
        if place.strip():
            yield place.strip(), _import_object(place.strip())


def _import_object(place: str) -> Any:
    module, colon, attribute = place.partition(":")
    if not colon or not module or not attribute:
        raise ConfigurationError(
            f"STRANDLINE_BLOCKS names {quote(place)}; write package.module:Class, several separated by"
            " commas."
        )
    return _import_attribute(module, attribute.strip(), f"The memory block {place}")


def _import_attribute(module: str, attribute: str, what: str) -> Any:
    try:
        value = importlib.import_module(module)
        for name in attribute.split("."):
            value = getattr(value, name)
    except Exception as error:
        raise ConfigurationError(
            f"{what} cannot be imported: {_problem(error, module)}."
            " Is its package installed in this environment, or its folder on PYTHONPATH?"
        ) from error
    return value


def _problem(error: Exception, module: str) -> str:
    """The reason of a failed import; never the message of an error in the application's code, which may quote
    anything.
    """
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return f"there is no module named {quote(str(error.name))}"
    return f"{type(error).__name__} at {place_in(error)}"
