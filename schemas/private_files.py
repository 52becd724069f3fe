"""Files and folders that only their owner may use, with any umask."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO, Any

import platformdirs


def expanded(path: Path) -> Path:
    """The path with a leading ``~`` expanded, as shells do; ValueError: the user has no home directory."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError(f"the home directory that {path.parts[0]} stands for is not known") from None


def default_home() -> Path:
    """The user's folder for data; a path that cannot be created where the user has no home directory."""
    try:
        return expanded(platformdirs.user_data_path("strandline"))
    except (RuntimeError, ValueError):
        return Path(os.devnull, "strandline")


def open_private(path: Path, mode: str, **options: Any) -> IO[Any]:
    """Open a file as ``open`` does; a new one has the mode 0600."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600), **options)


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, with the mode 0700."""
    for one in (*reversed(folder.parents), folder):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


def create_private(path: Path, content: bytes) -> None:
    """Make a file of mode 0600 whole, in a folder that is made too if it is missing.

    Raises:
        FileExistsError: there is one.
    """
    make_private_folder(path.parent)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        path.hardlink_to(temporary)
    finally:
        Path(temporary).unlink()


def write_private(path: Path, text: str, *, owner: tuple[int, int] | None = None) -> None:
    """Replace ``path`` by a file of mode 0600 with ``text``.

    A symbolic link at ``path`` is replaced and not followed: the directory may belong to a less
    trusted account than ours.  ``owner`` is the (uid, gid) to give it to.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
