"""Files that only their owner may read, replaced whole so that no reader sees half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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
