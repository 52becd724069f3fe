"""Progress: how far a replay is, for those who watch it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is.

    Attributes:
        phase: ``waiting`` for older transactions, ``filling`` from the log, ``deriving``, ``switching``,
            then ``held`` or ``done``.
        owners, events, tokens: made due so far.
        carried: events whose messages retention has removed: what they gave was taken over.
        due: events that workers have not done yet.
        switched, remaining: owners for whom it serves, and owners whom it does not cover yet.
        eta_seconds: until nothing is due, at the pace so far; None if unknown.
    """

    phase: str
    owners: int = 0
    events: int = 0
    tokens: int = 0
    due: int = 0
    switched: int = 0
    remaining: int = 0
    eta_seconds: float | None = None
    carried: int = 0


OnProgress = Callable[[Progress], None]
