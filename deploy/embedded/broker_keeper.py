"""The broker's parent: a small process that ends the broker when its last user is gone.

Run as a script (``python -I -S broker_keeper.py USERS_FILE LOG_FILE SERVER CONFIG``) and made of the standard
library only, so that it is small and starts at once.  It leaves its caller's session, starts the server,
prints both process ids as JSON and then waits in the kernel for an exclusive lock on the file on which every
user holds a shared one.  It gets the lock when all of them have ended, however they did: then it kills the
server, which keeps nothing on disk and so has nothing to lose.

A parent-death signal would be bound to the *thread* that started the server, and would end a broker that
other processes still use; a file of process ids would need a process that sweeps it.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from types import FrameType


def keep(users_file: str, log_file: str, server: str, config: str) -> None:
    """Start the server and stay until it ends; never returns."""
    os.setsid()
    os.umask(0o077)
    users = os.open(users_file, os.O_RDWR)
    with open(log_file, "ab") as log:  # noqa: PTH123  # pathlib would triple the start-up
        broker = subprocess.Popen(
            [server, config],
            cwd=os.path.dirname(config),  # noqa: PTH120
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        sys.stdout.write(json.dumps({"keeper_pid": os.getpid(), "server_pid": broker.pid}))
        sys.stdout.flush()
        # The caller reads to the end of its pipe: let go of it.
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        broker.kill()

    def on_last_user_gone() -> None:
        fcntl.flock(users, fcntl.LOCK_EX)
        broker.kill()

    signal.signal(signal.SIGTERM, on_signal)
    threading.Thread(target=on_last_user_gone, daemon=True).start()
    broker.wait()
    os._exit(0)


if __name__ == "__main__":
    if os.fork():  # the caller's child ends here, so that no process has to reap the keeper
        os._exit(0)
    keep(*sys.argv[1:])
