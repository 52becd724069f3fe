"""Runs work in a child process that the system ends once it has used far more processor time than it needs.

What grows with the length of its input needs a fraction of a second for what is given here, and what grows
with the square of it minutes or hours: so no figure of the machine's speed decides.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pkgutil
import re
import resource
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

CPU_SECONDS = 15


def stuck_in(work: Callable[[], Iterator[tuple[str, Callable[[], object]]]]) -> str | None:
    """The name of the first step of ``work`` that does not come to an end; None: all do."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_run, args=(there, work))
    child.start()
    there.close()
    step: str | None = "the beginning"
    try:
        while step is not None:
            step = here.recv()
    except EOFError:
        return step
    finally:
        child.join()
        here.close()
    return None


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


def _run(told: Connection, work: Callable[[], Iterator[tuple[str, Callable[[], object]]]]) -> None:
    for name, step in work():
        told.send(name)
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_SECONDS, resource.RLIM_INFINITY))
        step()
    told.send(None)
    sys.stdout.flush()
