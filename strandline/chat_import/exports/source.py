"""An export of ChatGPT or Claude, conversation by conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from strandline.chat_import.exports.files import ExportFile, export_files
from strandline.chat_import.exports.json_array import MAX_ELEMENT_BYTES, MAX_ELEMENT_VALUES, read_elements
from strandline.chat_import.records import Omission, Place, Portion, Record
from strandline.schemas.foreign_json import read_json

Node = TypeVar("Node")


def branch_to(leaf: str, nodes: Mapping[str, Node], parents: Mapping[str, str]) -> list[Node]:
    """The nodes from the root to ``leaf``; a circle ends where it closes."""
    branch: list[Node] = []
    seen: set[str] = set()
    at: str | None = leaf
    while at is not None and at in nodes and at not in seen:
        seen.add(at)
        branch.append(nodes[at])
        at = parents.get(at)
    branch.reverse()
    return branch


def newest_leaf(times: Mapping[str, float], parents: Mapping[str, str]) -> str | None:
    """The latest of the nodes without children; the last one of equal times."""
    inner = set(parents.values())
    leaves = [node for node in times if node not in inner]
    return max(reversed(leaves), key=lambda node: times[node]) if leaves else None


ReadConversation = Callable[[Mapping[str, Any], Place], Iterator[Record]]

TABLE = "conversations"


class ExportSource:
    """The conversations of an export.

    Args:
        path: the zip as it was sent, its folder, or one of its files with conversations.
        name: the system that it comes from.
        id_fields: the fields of a conversation that may hold its id.
        read: reads the messages of a conversation.
    """

    def __init__(self, path: Path, name: str, id_fields: tuple[str, ...], read: ReadConversation) -> None:
        self._path = path
        self._name = name
        self._id_fields = id_fields
        self._read = read
        with export_files(path) as files:
            self._portion = Portion(0, sum(file.size for file in files))

    @property
    def portion(self) -> Portion:
        return self._portion

    def close(self) -> None:
        """Nothing is open between two conversations' files."""

    def records(self) -> Iterator[Record]:
        with export_files(self._path) as files:
            for file in files:
                yield from self._read_file(file)

    def _read_file(self, file: ExportFile) -> Iterator[Record]:
        number = 0
        try:
            with file.open() as opened:
                elements = read_elements(opened, self._count, MAX_ELEMENT_BYTES)
                for number, element in enumerate(elements, start=1):
                    yield from self._read_element(element, f"{file.name}[{number - 1}]")
        except ValueError as error:
            yield Omission(Place(self._name, TABLE, f"{file.name}[{number}]"), f"the file {error}")

    def _count(self, size: int) -> None:
        self._portion = Portion(self._portion.done + size, self._portion.total)

    def _read_element(self, element: bytes | None, position: str) -> Iterator[Record]:
        place = Place(self._name, TABLE, position)
        if element is None:
            most = f"{MAX_ELEMENT_BYTES:,} bytes, or has more than {MAX_ELEMENT_VALUES:,} values"
            yield Omission(place, f"is longer than {most}")
            return
        try:
            conversation = read_json(element)
        except (ValueError, RecursionError) as error:
            yield Omission(place, f"is not JSON ({error})")
            return
        listed = conversation.get("conversations") if isinstance(conversation, dict) else None
        for one in listed if isinstance(listed, list) else [conversation]:
            yield from self._read_conversation(one, place)

    def _read_conversation(self, conversation: object, place: Place) -> Iterator[Record]:
        if not isinstance(conversation, dict):
            yield Omission(place, "is not a conversation")
            return
        ids = (conversation.get(field) for field in self._id_fields)
        conversation_id = next((one for one in ids if isinstance(one, str) and one), None)
        if conversation_id is None:
            yield Omission(place, f"has no {self._id_fields[0]}")
            return
        yield from self._read(conversation, Place(self._name, TABLE, conversation_id))
