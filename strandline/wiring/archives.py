"""Opens the archives that acts on retention name; the library of object stores is loaded with the first."""

from __future__ import annotations

from strandline.pipelines.upkeep.archive import Archive
from strandline.schemas.errors import ArchiveError
from strandline.schemas.values.acts.retention import HANDLER


def open_archive(name: str) -> Archive:
    """The archive of this name, as ``Retention.archive`` has it.

    Raises:
        ArchiveError: it cannot be opened, or the extra ``archive`` is not installed.
    """
    scheme, _, rest = name.partition(":")
    if scheme == HANDLER:
        from strandline.pipelines.upkeep.handler_archive import HandlerArchive

        return HandlerArchive(rest)
    try:
        from strandline.pipelines.upkeep.object_archive import ObjectArchive
    except ImportError as error:
        raise ArchiveError(
            f"The archive {name} needs obstore: pip install obstore, wherever workers run."
        ) from error
    return ObjectArchive(name)
