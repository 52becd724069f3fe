"""Finding code of an application: custom blocks, and functions that settings name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import entry_points
from types import MappingProxyType

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
    installed = entry_points(group=ENTRY_POINT_GROUP)
    sources = [(f"{point.value} (entry point {point.name!r})", point.value) for point in installed]
    sources += [(place, place) for place in map(str.strip, named.split(",")) if place]
    form = "package.module:Class, several separated by commas"
    for place, path in sources:
        source = import_object(path, "memory block", "STRANDLINE_BLOCKS", form)
        block = BlockDefinition.check(source, where=place)
        if block.name in blocks and type(block.code) is not type(blocks[block.name].code):
            raise ConfigurationError(
                f"Two memory blocks are called {block.name!r}: {places[block.name]} and {place};"
                " rename one of them."
            )
        blocks[block.name], places[block.name] = block, place
    return MappingProxyType(blocks)
