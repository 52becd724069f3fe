"""What a shell runs in place of a command: it has that forked with its own streams, and ends as that does.

It is a program of the standard library alone, which starts in a twentieth of the time of a command.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main(address: str, *arguments: str) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{address}")
        order = {"arguments": arguments, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109  # costs less
        socket.send_fds(connection, [json.dumps(order).encode()], [0, 1, 2])
        code = int(connection.recv(32))
    if code < 0:
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
