"""Settings that contradict one another: each can be used by itself, and both together cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

PREFIX = "STRANDLINE_"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two settings of which ``lower`` has to be below ``upper``, or ``may_be_equal`` to it; and why."""

    lower: str
    upper: str
    why: str
    may_be_equal: bool = False

    def holds(self, values: Mapping[str, float]) -> bool:
        lower, upper = values[self.lower], values[self.upper]
        return lower < upper or (self.may_be_equal and lower == upper)

    def contradiction(self, values: Mapping[str, float], chosen: Collection[str]) -> str:
        """A sentence that names cause, reason and remedy; ``chosen`` are the settings that were set."""
        lower, upper = (_described(name, values[name], chosen) for name in (self.lower, self.upper))
        needed = "at most" if self.may_be_equal else "below"
        return f"{lower} must be {needed} {upper}: {self.why}; lower the first, or raise the second"


PAIRS = (
    Pair(
        "heartbeat_interval_seconds",
        "worker_dead_after_seconds",
        "otherwise a living worker counts as dead between two heartbeats, and others take its lanes",
    ),
    Pair(
        "model_timeout_seconds",
        "lease_deadline_seconds",
        "otherwise the lease ends while a slow model call may still run, and others repeat the call",
    ),
    Pair(
        "block_timeout_seconds",
        "lease_deadline_seconds",
        "otherwise the lease ends while a slow call of a block may still run, and others repeat the call",
    ),
    Pair(
        "retry_base_seconds",
        "retry_max_seconds",
        "the first wait after an error cannot be longer than the longest",
        may_be_equal=True,
    ),
)
PAIRED = frozenset(name for pair in PAIRS for name in (pair.lower, pair.upper))


def find_contradictions(values: Mapping[str, float]) -> list[Pair]:
    """The pairs that do not hold; ``values`` are at least those of ``PAIRED``, with time-outs of roles."""
    (of_models,) = (pair for pair in PAIRS if pair.lower == "model_timeout_seconds")
    of_roles = [replace(of_models, lower=name) for name in values if name.startswith("models__")]
    return [pair for pair in (*PAIRS, *of_roles) if not pair.holds(values)]


def _described(name: str, value: float, chosen: Collection[str]) -> str:
    by_default = "" if name in chosen else " by default"
    # All digits: a rounded number may look equal to the compared one.
    return f"{PREFIX}{name.upper()} ({str(value).removesuffix('.0')}{by_default})"
