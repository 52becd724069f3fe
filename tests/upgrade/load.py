"""Messages at a steady rate, over HTTP, to whichever process is ready; and how long they wait for locks."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import psycopg

from tests.support.processes.service_process import RoundRobin

SESSIONS = 20
AT_ONCE = 16
LOOK_SECONDS = 0.05
# A session is flushed every few messages.
POLICY = {"token_limit": 400, "token_flush_size": 150}

# Of everything but the migration itself, which gives way.
WAITS = """
SELECT coalesce(extract(epoch FROM max(clock_timestamp() - l.waitstart)), 0)::float8
FROM pg_locks l JOIN pg_stat_activity a USING (pid)
WHERE NOT l.granted AND l.locktype IN ('relation', 'tuple') AND a.datname = current_database()
    AND a.query !~ '^(ALTER|CREATE|DROP|COMMENT|LOCK)'
"""


@dataclass
class Load:
    """What was put: ids of acknowledged messages by session, the longest put, and what was refused."""

    balancer: RoundRobin
    key: str
    rate: float
    acknowledged: dict[str, list[str]] = field(default_factory=dict)
    longest: float = 0.0
    refused: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Load:
        self._sending = threading.Thread(target=self._send)
        self._sending.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sending.join()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def _send(self) -> None:
        began, number = time.monotonic(), 0
        with ThreadPoolExecutor(AT_ONCE) as threads:
            while not self._ended.is_set():
                if number < (time.monotonic() - began) * self.rate:
                    threads.submit(self._put, number)
                    number += 1
                else:
                    time.sleep(0.005)

    def _put(self, number: int) -> None:
        session, name = f"chat-{number % SESSIONS}", f"m{number}"
        text = f"{name}: my boat number {number} lies in harbour {number % 7}. " + "It is a fine day. " * 6
        role = "assistant" if number // SESSIONS % 2 else "user"
        body = {"messages": [{"role": role, "content": text, "id": name}], "policy": POLICY}
        request = urllib.request.Request(
            f"{self.balancer.next().url}/v1/sessions/{session}/messages",
            json.dumps(body).encode(),
            {
                "Content-Type": "application/json",
                "Authorization": f"Bearer {self.key}",
                "Strandline-User": session,
                "Connection": "close",
            },
        )
        began = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except OSError as error:
            self.refused.append(f"{name}: {error}")
        else:
            self.longest = max(self.longest, time.monotonic() - began)
            self.acknowledged.setdefault(session, []).append(name)


class LockWatch:
    """The longest wait for a lock on a table that any statement but a migration's had, as sampled."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.longest = 0.0

    def __enter__(self) -> LockWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._ended.wait(LOOK_SECONDS):
                row = connection.execute(WAITS.encode()).fetchone()
                self.longest = max(self.longest, row[0] if row else 0.0)
