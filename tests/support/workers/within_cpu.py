"""Runs work in a child process that the system ends once it has used far more processor time than it needs.

What grows with the length of its input needs a fraction of a second for what is given here, and what grows
with the square of it minutes or hours: so no figure of the machine's speed decides.

Only steps that are slow among the others at a tenth of the length are tried at more.  What reaches the bound
by the square of the length takes a hundredth of it here: a hundred times as long as most do.  At twice that
length it takes four times as long, and what grows with the length twice, which is not tried at the whole.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path
from statistics import median

from tests.support.processes import forking

Steps = Callable[[int], Iterator[tuple[str, Callable[[], object]]]]
# A step is slow that takes so many times the median: a fifth of what one takes that would reach the bound.
SLOW = 20
# Such a part of the bound decides that a step might reach it.
MARGIN = 5


def stuck_in(work: Steps, length: int, seconds: int) -> str | None:
    """The name of the first step of ``work`` that takes so much processor time; None: all end before.

    Args:
        work: gives the same steps for every length of what they read.
    """
    call = f"here.run(there.{work.__name__}, {length}, {seconds})"
    code = f"import {__name__} as here, {work.__module__} as there; {call}"
    # As pytest does, which names the module of a test by its file alone.
    env = {**os.environ, "PYTHONPATH": str(Path(inspect.getfile(work)).parent)}
    done = forking.run([sys.executable, "-c", code], cwd=forking.ROOT, env=env, capture_output=True)
    assert not done.stderr, done.stderr
    step: str | None = json.loads(done.stdout.splitlines()[-1])
    return step


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Every pattern that a module has compiled which reads what people wrote, by name."""
    for module_name in ("strandline.schemas.display.shown_text", *_reading_modules()):
        for name, value in vars(importlib.import_module(module_name)).items():
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
                yield f"{module_name}.{name}", value


def _reading_modules() -> Iterator[str]:
    for package in ("strandline.pipelines", "strandline.producers"):
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            if ".adapters" not in found.name:  # which import what need not be installed
                yield found.name


def run(work: Steps, length: int, seconds: int) -> None:
    """Print the name of each step before it begins, and null after the last."""
    short = [_spend(*step, seconds) for step in work(length // 10)]
    slow = SLOW * median(short)
    for once, double, whole in zip(short, work(length // 5), work(length), strict=True):
        if once > slow and _may_take(once, _spend(*double, seconds)) > seconds / MARGIN:
            _spend(*whole, seconds)
    print("null")


def _may_take(once: float, twice: float) -> float:
    """What a step takes at the whole length, if it takes these at a tenth and a fifth of it."""
    by_square = max(0.0, twice - 2 * once) / 2
    return 10 * (once - by_square) + 100 * by_square


def _spend(name: str, step: Callable[[], object], seconds: int) -> float:
    """The processor seconds that a step takes."""
    print(json.dumps(name), flush=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    spent = ceil(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, resource.RLIM_INFINITY))
    begun = time.process_time()
    step()
    return time.process_time() - begun
