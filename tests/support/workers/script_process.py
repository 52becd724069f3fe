"""Scripts in separate processes: they and their children end with the test, even if they hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.processes import forking

ROOT = Path(__file__).parent.parent.parent.parent
GENEROUS_SECONDS = 240.0


def run_script(script: str, **environment: str) -> str:
    """The script's output, once it and all its children have ended well."""
    return _run(forking.Popen, script, environment)


def run_fresh_script(script: str) -> str:
    """The same, begun by an interpreter that has imported nothing."""
    return _run(subprocess.Popen, script, {})


def _run(start: type[subprocess.Popen[str]], script: str, environment: dict[str, str]) -> str:
    process = start(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, complaints = process.communicate(timeout=GENEROUS_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, complaints
    return printed
