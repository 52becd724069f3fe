"""A file that is there whole, or not at all: for what takes long to write, and holds what people said."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from strandline.schemas.errors import ConfigurationError


@contextmanager
def new_file(path: Path) -> Iterator[IO[str]]:
    """A file written next to ``path``, and renamed in the end; only its owner can read it.

    It is removed if the writing fails, or is interrupted. A process that is killed leaves ``.NAME.….part``,
    which can be deleted.

    Raises:
        ConfigurationError: there is a file of this name, or it cannot be written.
    """
    if path.exists():
        raise _exists(path)
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent, text=True)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None
    part = Path(name)
    try:
        with open(number, "w", encoding="utf-8") as file:  # noqa: PTH123  # of the open file
            yield file
            file.flush()
            os.fsync(number)
        _give_name(part, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be written: {error.strerror}. Nothing of it was kept; run it again."
        ) from None
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _give_name(part: Path, path: Path) -> None:
    """Link it, so that a concurrent file is not replaced; rename it where links are impossible."""
    try:
        path.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:
        part.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _exists(path: Path) -> ConfigurationError:
    return ConfigurationError(f"{path} exists already; name another file.")
