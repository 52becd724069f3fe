"""A folder in memory for what a run of the tests writes.

Making and dropping a database is making and removing hundreds of files: on a disk's file system it cost ten
times the processor time that it costs in memory, and the suite does it more than a thousand times.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

RAM = Path("/dev/shm")  # noqa: S108  # the name that Linux gives it
# Twice what two runs used at once, beside one another.
MIN_FREE_BYTES = 8 * 1024**3
PREFIX = "strandline-tests-"


def make_ram_folder() -> Path | None:
    """A folder for this process; None where the machine has no such place, or too little of it.

    What earlier runs left there, as after a failure, is removed.
    """
    for left in RAM.glob(f"{PREFIX}*-*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists():
            remove(left)
    if not _is_spacious():
        return None
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=RAM))


def remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _is_spacious() -> bool:
    try:
        free = shutil.disk_usage(RAM).free
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    available = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), 0)
    return os.access(RAM, os.W_OK) and min(free, available * 1024) >= MIN_FREE_BYTES
