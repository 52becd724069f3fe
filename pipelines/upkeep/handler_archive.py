"""An archive of one's own: a callable from an installed package that is given what leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from strandline.pipelines.own_code.bounded_calls import NoPlaceError, TimeLimitError, worker_calls
from strandline.pipelines.own_code.places import find_installed, import_object
from strandline.pipelines.upkeep.archive import LeavingRange, ReadMessages
from strandline.schemas.display.shown_text import quote
from strandline.schemas.errors import ArchiveError, ConfigurationError
from strandline.schemas.values.message import Message
from strandline.schemas.values.same_named import make_from

GROUP = "strandline.archives"
# Below BUSY_SECONDS of removal.py, after which another process may try the same step.
HANDLER_SECONDS = 50.0


@dataclass(frozen=True, slots=True)
class LeavingMessages:
    """A handler's input: a range of one session's messages.

    Attributes:
        step_id: names the range and its content; a repeated attempt has the same id.
        cause: why they leave: ``ttl``, ``age`` or ``number``.
        messages: in order; important ones are included, and stay in the log.
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
        name: of an entry point in the group ``strandline.archives``; never a place to import from, for an act
            is data, and chooses only among installed archives.
        seconds: how long a call may take.

    Raises:
        ArchiveError: there is no such handler, or it cannot be loaded.
    """

    def __init__(self, name: str, *, seconds: float = HANDLER_SECONDS) -> None:
        self._name = name
        self._seconds = seconds
        self._handler = _load(name)

    has_objects = False

    def store(self, leaving: LeavingRange, messages: ReadMessages) -> str | None:
        range_of_messages = make_from(
            LeavingMessages, leaving, step_id=str(leaving.step_id), messages=tuple(messages())
        )
        try:
            worker_calls.within(self._seconds, lambda: self._handler(range_of_messages))
        except (TimeLimitError, NoPlaceError) as error:
            raise self._failure(f"did not return within {self._seconds:g} s") from error
        except Exception as error:  # the application's code, whose failure keeps the messages
            raise self._failure(f"failed ({type(error).__name__})") from error
        return None

    def check(self, name: str, digest: str) -> None:
        """Nothing to read back: the handler has answered for it."""

    def read(self, name: str, digest: str) -> bytes:
        raise ArchiveError(f"What went to the archive handler {quote(self._name)} cannot be read back here.")

    def delete(self, name: str) -> None:
        raise ArchiveError(f"What went to the archive handler {quote(self._name)} cannot be deleted here.")

    def adopt(self, database_mark: str) -> None:
        """Nothing to adopt: no database deletes there."""

    def is_adopted_by(self, database_mark: str) -> bool:
        return False

    def _failure(self, what: str) -> ArchiveError:
        return ArchiveError(
            f"The archive handler {quote(self._name)} {what}; nothing was removed, and it is called again."
        )


def _load(name: str) -> Handler:
    try:
        place = find_installed(GROUP, name)
        if place is None:
            raise ArchiveError(
                f"No installed package has an archive handler {quote(name)}, an entry point in the group"
                f" {GROUP}. Install it wherever workers run."
            )
        handler: Handler = import_object(place, "archive handler", f"The entry point {quote(name)}")
    except ConfigurationError as error:
        raise ArchiveError(str(error)) from error
    if not callable(handler):
        raise ArchiveError(f"The archive handler {quote(name)} is not callable.")
    return handler
