"""How many cases are tried, and what may come of one."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_ASKED_FOR = os.environ.get("FUZZ_CASES")
FEW = 150


def fuzzed(share: float = 1.0) -> settings:
    """Settings of a test: a few fixed cases, or a ``share`` of the ``FUZZ_CASES`` that are asked for."""
    return settings(
        max_examples=max(1, int(share * int(_ASKED_FOR or FEW))),
        derandomize=_ASKED_FOR is None,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
