"""Observes a process that is not our child: whether it runs, which program it is, when it ends."""

from __future__ import annotations

import os
import select
import subprocess
import time
from pathlib import Path

_PROC = Path("/proc/self/stat")
_POLL_SECONDS = 0.02


def is_running(pid: int) -> bool:
    """True while ``pid`` executes; a zombie, which only waits to be collected, does not count."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def command_name(pid: int) -> str | None:
    """The file name of the program that ``pid`` runs (the kernel cuts it at 15 bytes), or None."""
    if _PROC.exists():
        return _read(Path(f"/proc/{pid}/comm"))
    listing = subprocess.run(
        ["/bin/ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return Path(listing.stdout.strip()).name or None


def works_in(pid: int, directory: Path) -> bool | None:
    """Whether ``pid`` has ``directory`` as its working directory; None if that cannot be determined.

    macOS does not tell, and Linux not of another account's process, to root without CAP_SYS_PTRACE.
    """
    if not _PROC.exists():
        return None
    try:
        return Path(f"/proc/{pid}/cwd").samefile(directory)
    except PermissionError:
        return None
    except OSError:
        return False


def wait_gone(pid: int, *, timeout_seconds: float) -> bool:
    """Wait until ``pid`` no longer runs; False when the time is over first."""
    deadline = time.monotonic() + timeout_seconds
    if hasattr(os, "pidfd_open"):
        _wait_on_handle(pid, timeout_seconds)
    while is_running(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _wait_on_handle(pid: int, timeout_seconds: float) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:  # already gone, or a kernel without it: the caller's check decides
        return
    try:
        poller = select.poll()  # select() refuses descriptors above 1023
        poller.register(handle, select.POLLIN)
        poller.poll(max(0, int(timeout_seconds * 1000)))
    finally:
        os.close(handle)


def _is_zombie(pid: int) -> bool:
    if _PROC.exists():
        # The name is in brackets and may contain spaces; the state follows the last bracket.
        state = (_read(Path(f"/proc/{pid}/stat")) or "").rpartition(")")[2].split()
        return bool(state) and state[0] == "Z"
    listing = subprocess.run(
        ["/bin/ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listing.stdout.strip().startswith("Z")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
