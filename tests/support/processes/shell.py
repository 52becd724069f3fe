"""Scripts of a shell, in which ``strandline`` is forked as the commands of tests are."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.support.processes import forking
from tests.support.processes.template import MAX_ORDER_BYTES

RELAY = Path(__file__).with_name("relay.py")


def run(script: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the script by bash, up to the first command that fails; options are those of ``forking.run``."""
    with _strandline() as command:
        functions = f'set -e\nstrandline() {{ {command} "$@"; }}\n'
        return forking.run(["bash", "-c", functions + script], **options)


@contextmanager
def _strandline() -> Iterator[str]:
    """How a shell starts ``strandline`` meanwhile."""
    if sys.platform != "linux":
        yield shlex.join([sys.executable, "-m", "strandline"])
        return
    address = f"strandline-tests-{uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"\0{address}")
        listener.listen()
        thread = threading.Thread(target=_accept, args=(listener,))
        thread.start()
        try:
            yield shlex.join([sys.executable, "-IS", str(RELAY), address])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _accept(listener: socket.socket) -> None:
    """Serve each relay in a thread, since commands in a pipe run at once."""
    threads = []
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            break
        threads.append(threading.Thread(target=_serve, args=(connection,)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _serve(connection: socket.socket) -> None:
    with connection:
        data, streams, _flags, _address = socket.recv_fds(connection, MAX_ORDER_BYTES, 3)
        order = json.loads(data)
        command = [sys.executable, "-m", "strandline", *order["arguments"]]
        stdin, stdout, stderr = streams
        with forking.Popen(
            command, stdin=stdin, stdout=stdout, stderr=stderr, env=order["env"], cwd=order["cwd"]
        ) as process:
            for stream in streams:
                os.close(stream)  # else a reader of the command's output would wait for this process as well
            process.wait()
        connection.send(str(process.returncode).encode())
