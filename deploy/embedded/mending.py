"""Mending: a thread that restarts embedded servers that ended while they were in use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType

from strandline.deploy.supervisor import RestartPolicy

logger = logging.getLogger("strandline.embedded")

# How long its end waits for a server that is being started.
STOP_SECONDS = 10.0


class Mending:
    """Calls ``mend``, which restarts ended servers, every half second; ever more rarely while it fails."""

    def __init__(self, mend: Callable[[], bool], waits: RestartPolicy | None = None) -> None:
        self._mend = mend
        self._waits = waits or RestartPolicy()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strandline-mend", daemon=True)

    def __enter__(self) -> Mending:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        failures = 0
        while not self._stop.wait(self._waits.wait_seconds(failures + 1)):
            try:
                failures = 0 if self._mend() else failures + 1
            except Exception:
                # The outermost edge of this thread: a defect, or a home that was removed.
                failures += 1
                logger.exception("embedded servers cannot be looked after", extra={"action": "mending_broke"})
