"""An export of ChatGPT or Claude, conversation by conversation."""

from __future__ import annotations

import re
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar, cast

from strandline.chat_import.records import Omission, Place, Portion, Record
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.foreign_json import read_json

Node = TypeVar("Node")
ReadConversation = Callable[[Mapping[str, Any], Place], Iterator[Record]]
TABLE = "conversations"
# Large exports are cut into conversations-000.json and so on.
_CONVERSATIONS = re.compile(r"conversations(-\d+)?\.json")
_ZIP_BEGINS = b"PK\x03\x04"
PIECE_BYTES = 1_000_000
# The longest conversation that is read; a longer one is left out.
MAX_ELEMENT_BYTES = 32_000_000
# The values of such a conversation: a small one takes twenty times its bytes when it is read.
MAX_ELEMENT_VALUES = 500_000
_OUTSIDE = re.compile(rb'["\[\]{},]')
_INSIDE = re.compile(rb'["\\]')
_OPENING, _CLOSING = frozenset(b"[{"), frozenset(b"]}")


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


class ExportSource:
    """The conversations of an export: the zip as it was sent, its folder, or one of its files."""

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


@dataclass(frozen=True, slots=True)
class ExportFile:
    """A file with conversations; ``size`` is in bytes."""

    name: str
    size: int
    open: Callable[[], BinaryIO]


@contextmanager
def export_files(path: Path) -> Iterator[list[ExportFile]]:
    """The files with conversations at ``path``, in the order of their names.

    Raises:
        ConfigurationError: it cannot be read, or has no conversations.
    """
    archive: zipfile.ZipFile | None = None
    try:
        if path.is_dir():
            names = sorted(path.rglob("conversations*.json"))
            files = [_plain(one) for one in names if _fits(one.name) and one.is_file()]
        elif zipfile.is_zipfile(path):
            archive = zipfile.ZipFile(path)
            files = _members(archive)
        else:
            _refuse_half_zip(path)
            files = [_plain(path)]
        if not files:
            raise ConfigurationError(f"{path} has no conversations.json; give the export as it was sent.")
        yield files
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise ConfigurationError(f"{path} cannot be unpacked: {error}.") from None
    finally:
        if archive is not None:
            archive.close()


def _refuse_half_zip(path: Path) -> None:
    with path.open("rb") as file:
        if file.read(len(_ZIP_BEGINS)) == _ZIP_BEGINS:
            raise ConfigurationError(f"{path} is a zip that is not complete; download it again.")


def _fits(name: str) -> bool:
    return _CONVERSATIONS.fullmatch(name) is not None


def _plain(path: Path) -> ExportFile:
    return ExportFile(path.name, path.stat().st_size, lambda: path.open("rb"))


def _members(archive: zipfile.ZipFile) -> list[ExportFile]:
    names = sorted(
        (info for info in archive.infolist() if _is_conversations(info.filename)),
        key=lambda info: info.filename,
    )
    return [
        ExportFile(info.filename, info.file_size, lambda info=info: cast(BinaryIO, archive.open(info)))  # type: ignore[misc]
        for info in names
    ]


def _is_conversations(name: str) -> bool:
    path = PurePosixPath(name)
    return _fits(path.name) and "__MACOSX" not in path.parts


class ElementScanner:
    """Cuts the bytes of a JSON document into the elements of its outermost array.

    A document that is an object is its only element.  An element that is too long is None.  None of them is
    checked here; each is when it is parsed.
    """

    def __init__(self, max_element_bytes: int) -> None:
        self._max_element_bytes = max_element_bytes
        self._element = bytearray()
        self._is_too_long = False
        self._values = 0
        self._depth = 0
        self._base: int | None = None
        self._in_string = False
        self._is_escaped = False

    @property
    def is_within(self) -> bool:
        """Whether the document is not at its end."""
        return self._base is None or self._depth > 0

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        """The elements that end in this piece."""
        at = kept = 0
        if self._is_escaped and piece:
            self._is_escaped, at = False, 1
        while match := (_INSIDE if self._in_string else _OUTSIDE).search(piece, at):
            token, at = piece[match.start()], match.end()
            if self._in_string:
                if token == 0x5C:  # a backslash: what follows is not the end
                    self._is_escaped, at = at >= len(piece), at + 1
                else:
                    self._in_string = False
            elif token == 0x22:
                self._in_string = True
            elif token in _OPENING:
                self._count()
                kept = self._open(token, match.start(), kept)
            elif token == 0x2C:
                self._count()
                if self._is_between:
                    yield from self._take_plain(piece[kept : match.start()])
                    kept = at
            elif token in _CLOSING:
                if self._is_between:
                    yield from self._take_plain(piece[kept : match.start()])
                self._depth -= 1
                if self._depth == self._base:
                    self._keep(piece[kept:at])
                    kept = at
                    yield self._take()
        if self._base is not None and self.is_within:
            self._keep(piece[kept:])

    @property
    def _is_between(self) -> bool:
        """Whether this is in the outermost array, in no object and no array of it."""
        return self._base == self._depth == 1

    def _open(self, token: int, start: int, kept: int) -> int:
        self._depth += 1
        if self._base is not None:
            return kept
        self._base = 1 if token == 0x5B else 0
        return start + self._base

    def _keep(self, part: bytes) -> None:
        if len(self._element) + len(part) > self._max_element_bytes:
            self._is_too_long = True
            self._element.clear()
        elif not self._is_too_long:
            self._element += part

    def _count(self) -> None:
        self._values += 1
        if self._values > MAX_ELEMENT_VALUES:
            self._is_too_long = True
            self._element.clear()

    def _take_plain(self, part: bytes) -> Iterator[bytes | None]:
        self._keep(part)
        element = self._take()
        if element is None or element:
            yield element

    def _take(self) -> bytes | None:
        element = None if self._is_too_long else bytes(self._element).strip()
        self._is_too_long = False
        self._values = 0
        self._element.clear()
        return element


def read_elements(
    file: BinaryIO, count: Callable[[int], None], max_element_bytes: int
) -> Iterator[bytes | None]:
    """The elements of a file; ``count`` gets the number of bytes of each piece whose elements were taken.

    Raises:
        ValueError: the file ends within the array; the text is worded to follow the file's name.
    """
    scanner = ElementScanner(max_element_bytes)
    is_first = True
    while piece := file.read(PIECE_BYTES):
        yield from scanner.feed(piece.removeprefix(BOM_UTF8) if is_first else piece)
        count(len(piece))
        is_first = False
    if scanner.is_within:
        raise ValueError("ends before its JSON does" if not is_first else "is empty")
