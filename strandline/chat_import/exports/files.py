"""The files of an export: ``conversations.json``, or its numbered parts, in a folder, in a zip, or alone."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from strandline.schemas.errors import ConfigurationError

# Large exports are cut into conversations-000.json and so on.
_CONVERSATIONS = re.compile(r"conversations(-\d+)?\.json")
_ZIP_BEGINS = b"PK\x03\x04"


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
