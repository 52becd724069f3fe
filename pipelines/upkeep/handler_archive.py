"""An archive of one's own: a callable from an installed package that is given what leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points

from strandline.pipelines.upkeep.archive import LeavingRange, ReadMessages
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ArchiveError
from strandline.schemas.values.message import Message

GROUP = "strandline.archives"


@dataclass(frozen=True, slots=True)
class LeavingMessages:
    """What a handler is given: a range of one session's messages.

    Attributes:
        step_id: names the range and its content; a repeated attempt has the same id.
        cause: why they leave: ``ttl``, ``age`` or ``number``.
        messages: in order; those that are marked as important are among them, and stay in the log.
    """

    namespace: str
    session_id: str
    user_id: str | None
    step_id: str
    from_seq: int
    through_seq: int
    cause: str
    messages: Sequence[Message]


Handler = Callable[[LeavingMessages], object]
"""Called in a worker's upkeep, at least once for each range; if it raises, nothing is removed."""


class HandlerArchive:
    """A handler in the place of an archive.

    Args:
        name: of an entry point in the group ``strandline.archives``.

    Raises:
        ArchiveError: there is none, or it cannot be loaded.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._handler = _load(name)

    has_objects = False

    def store(self, leaving: LeavingRange, messages: ReadMessages) -> str | None:
        given = LeavingMessages(
            namespace=leaving.namespace,
            session_id=leaving.session_id,
            user_id=leaving.user_id,
            step_id=str(leaving.step_id),
            from_seq=leaving.from_seq,
            through_seq=leaving.through_seq,
            cause=leaving.cause,
            messages=tuple(messages()),
        )
        try:
            self._handler(given)
        except Exception as error:  # the application's code, whose failure keeps the messages
            raise ArchiveError(
                f"The archive handler {quote(self._name)} failed ({type(error).__name__}); nothing was"
                " removed, and it is called again."
            ) from error
        return None

    def check(self, name: str, digest: str) -> None:
        """Nothing to read back: the handler has answered for it."""

    def read(self, name: str, digest: str) -> bytes:
        raise ArchiveError(f"What went to the archive handler {quote(self._name)} cannot be read back here.")

    def delete(self, name: str) -> None:
        raise ArchiveError(f"What went to the archive handler {quote(self._name)} cannot be deleted here.")


def _load(name: str) -> Handler:
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise ArchiveError(
            f"No installed package has an archive handler {quote(name)}, an entry point in the group"
            f" {GROUP}. Install it wherever workers run."
        )
    try:
        handler = next(iter(found)).load()
    except Exception as error:  # whatever a package does when it is imported
        raise ArchiveError(
            f"The archive handler {quote(name)} cannot be loaded ({type(error).__name__})."
        ) from error
    if not callable(handler):
        raise ArchiveError(f"The archive handler {quote(name)} is not callable.")
    typed: Handler = handler
    return typed
