"""Seals the audit trail about once a second, and hands its anchors over to be kept elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from strandline.pipelines.audit.anchors import Anchor, Export
from strandline.pipelines.audit.keys import keys_of
from strandline.pipelines.audit.sealing import seal_once
from strandline.pipelines.own_code.bounded_calls import BoundedCalls
from strandline.pipelines.own_code.places import load_function
from strandline.schemas.postgres.database import Database
from strandline.schemas.private_files import open_private
from strandline.schemas.settings import Settings

logger = logging.getLogger("strandline.audit")

ENTRY_POINT_GROUP = "strandline.anchors"
# Code of the application may hang; it is then called no more until one of its calls has come back.
MAX_CALLS_AT_ONCE = 2
CALL_SECONDS = 10.0

_calls = BoundedCalls(MAX_CALLS_AT_ONCE)


class Anchoring:
    """Keeps the newest anchor of each chain, and hands them over together, every so many seconds.

    Anchors that could not be handed over stay, and go with the next ones.

    Args:
        exports: where they go, each by a name for the log.
        clock: seconds, from any start.
    """

    def __init__(
        self,
        exports: Sequence[tuple[str, Export]],
        every_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exports = exports
        self._every_seconds = every_seconds
        self._clock = clock
        self._waiting: dict[str, dict[str, Anchor]] = {name: {} for name, _export in exports}
        self._last = clock()

    def add(self, anchors: Iterable[Anchor]) -> None:
        """Note new anchors; of each chain the newest stays."""
        for anchor in anchors:
            for waiting in self._waiting.values():
                waiting[anchor.namespace] = anchor

    def hand_over(self, *, at_once: bool = False) -> None:
        """Hand over what waits, if it is time."""
        if not at_once and self._clock() - self._last < self._every_seconds:
            return
        self._last = self._clock()
        for name, export in self._exports:
            anchors = tuple(self._waiting[name].values())
            if anchors and _is_kept(name, export, anchors):
                self._waiting[name].clear()


def _is_kept(name: str, export: Export, anchors: Sequence[Anchor]) -> bool:
    try:
        _calls.within(CALL_SECONDS, lambda: export(anchors))
    except Exception as error:  # noqa: BLE001  # the edge to foreign code; sealing goes on without it
        logger.error(
            "anchors of the audit trail could not be handed over",
            extra={"action": "anchors_failed", "place": name, "error": type(error).__name__},
        )
        return False
    return True


def append_to(path: Path) -> Export:
    """An export that appends to a file, a line each."""

    def export(anchors: Sequence[Anchor]) -> None:
        with open_private(path, "a", encoding="utf-8") as file:
            file.writelines(f"{anchor.as_line()}\n" for anchor in anchors)

    return export


class Sealing:
    """The sealer of one worker; several workers seal in turns."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._keys = keys_of(settings)
        self._anchoring = Anchoring(list(_exports(settings)), settings.audit_anchor_seconds)

    def tick(self) -> None:
        """Seal visible unsealed entries, and hand anchors over if it is time.

        Later entries are left to the next tick: a pass costs much the same however little it takes, and
        continuous passes would take a processor from puts.
        """
        try:
            while True:
                done = self._database.run(seal_once(self._keys))
                self._anchoring.add(done.anchors)
                if not done.is_full:
                    break
        finally:
            self._anchoring.hand_over()

    def close(self) -> None:
        """Hand over the anchors that are left."""
        self._anchoring.hand_over(at_once=True)


def _exports(settings: Settings) -> Iterable[tuple[str, Export]]:
    if settings.audit_anchors_file is not None:
        yield str(settings.audit_anchors_file), append_to(settings.audit_anchors_file)
    if settings.audit_anchors:
        yield (
            settings.audit_anchors,
            load_function(
                settings.audit_anchors, setting="STRANDLINE_AUDIT_ANCHORS", group=ENTRY_POINT_GROUP
            ),
        )
