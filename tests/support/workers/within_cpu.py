"""Runs work in a child process that the system ends once it has used far more processor time than it needs.

What grows with the length of its input needs a fraction of a second for what is given here, and what grows
with the square of it minutes or hours: so no figure of the machine's speed decides.
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
from collections.abc import Callable, Iterator
from math import ceil
from pathlib import Path

from tests.support.processes import forking

Steps = Callable[[], Iterator[tuple[str, Callable[[], object]]]]


def stuck_in(work: Steps, seconds: int) -> str | None:
    """The name of the first step of ``work`` that takes so much processor time; None: all end before."""
    code = (
        f"import {__name__} as here, {work.__module__} as there; here.run(there.{work.__name__}, {seconds})"
    )
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


def run(work: Steps, seconds: int) -> None:
    """Print the name of each step before it begins, and null after the last."""
    for name, step in work():
        print(json.dumps(name), flush=True)
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = ceil(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + seconds, resource.RLIM_INFINITY))
        step()
    print("null")
