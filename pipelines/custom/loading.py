"""Finding code of an application: custom blocks, and functions that settings name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from strandline.pipelines.custom.contract import BlockDefinition
from strandline.pipelines.own_code.places import import_object
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


def _installed_blocks() -> Iterator[tuple[str, Any]]:
    for point in entry_points(group=ENTRY_POINT_GROUP):
        yield f"{point.value} (entry point {point.name!r})", _import(point.value)


def _listed_blocks(named: str) -> Iterator[tuple[str, Any]]:
    for place in named.split(","):
        if place.strip():
            yield place.strip(), _import(place.strip())


def _import(place: str) -> Any:
    form = "package.module:Class, several separated by commas"
    return import_object(place, "memory block", "STRANDLINE_BLOCKS", form)
