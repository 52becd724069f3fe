"""Named points at which a test stops or kills a worker process exactly there.

``STRANDLINE_STOP_AT=applying:SIGSTOP`` sends this process that signal the first time it gets to the
point.  Nothing happens without the variable.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import get_args

from strandline.pipelines.engine.engine import StopPoint
from strandline.pipelines.upkeep.removal import StepPoint
from strandline.schemas.errors import ConfigurationError


def stop_at(spec: str | None) -> Callable[[StopPoint | StepPoint], None]:
    """A function for ``Engine.reach`` and for steps of retention that acts on ``POINT:SIGNAL`` once.

    None makes a no-op.

    Raises:
        ConfigurationError: there is no such point or signal.
    """
    if not spec:
        return lambda _point: None
    chosen, _, name = spec.partition(":")
    points = (*get_args(StopPoint), *get_args(StepPoint))
    if chosen not in points or name not in signal.Signals.__members__:
        raise ConfigurationError(
            f"STRANDLINE_STOP_AT is {spec!r}; it must be one of {', '.join(points)}, a colon,"
            " and a signal such as SIGKILL"
        )
    once = threading.Lock()

    def reach(point: StopPoint | StepPoint) -> None:
        if point == chosen and once.acquire(blocking=False):
            # To this very thread: sent to the process, another thread may take it while this one runs past
            # the point.
            signal.pthread_kill(threading.get_ident(), signal.Signals[name])

    return reach
