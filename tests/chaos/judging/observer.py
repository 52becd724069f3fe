"""The observer: follows the journals, times recoveries, and starts again what ended by itself."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.chaos.faults.faults import WORKERS
from tests.chaos.judging.journal import Ack, Complaint, JournalReader, Read
from tests.chaos.judging.recoveries import Recovery
from tests.chaos.judging.timeline import Interval
from tests.chaos.stack import Stack

LOOK_EVERY_SECONDS = 0.1
COUNT_EVERY_SECONDS = 1.0
# Systemd's default, too: a worker that finds Postgres away when it starts is tried again.
REVIVE_AFTER_SECONDS = 0.5

BEATING = "SELECT pid FROM strandline.worker WHERE heartbeat_at > clock_timestamp() - interval '3 seconds'"
DUE = "SELECT count(*) FROM strandline.due"


@dataclass
class Seen:
    """The entries of the journals so far."""

    acks: list[Ack] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    last_ack: dict[int, float] = field(default_factory=dict)
    due: int | None = None


class Observer:
    """A thread with a separate connection; ``seen`` and ``recoveries`` may be read at any time."""

    def __init__(self, stack: Stack) -> None:
        self.seen = Seen()
        self.recoveries: list[Recovery] = []
        self._stack = stack
        self._readers = [JournalReader(stack.journal_path(slot)) for slot in range(len(stack.producers))]
        self._connection: psycopg.Connection[Any] | None = None
        self._counted_at = 0.0
        self._came_up: set[int] = set()
        self._nobody: Interval | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after a last look at the journals."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._follow_journals()

    def expect(self, recovery: Recovery) -> None:
        self.recoveries.append(recovery)

    def last_ack(self, slot: int) -> float:
        return self.seen.last_ack.get(slot, 0.0)

    def pending(self) -> list[Recovery]:
        return [recovery for recovery in list(self.recoveries) if recovery.seconds is None]

    def _run(self) -> None:
        while not self._stop.wait(LOOK_EVERY_SECONDS):
            self._follow_journals()
            for child in self._stack.children:
                if time.monotonic() > child.started_at + REVIVE_AFTER_SECONDS:
                    child.revive()
            try:
                self._look(self._connected())
            except psycopg.Error:
                self._disconnect()
        self._disconnect()

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        for recovery in self.pending():
            recovery.look(connection, self._stack.timeline)
        if time.monotonic() > self._counted_at + COUNT_EVERY_SECONDS:
            self._counted_at = time.monotonic()
            self.seen.due = connection.execute(DUE).fetchall()[0][0]
        beating = {pid for (pid,) in connection.execute(BEATING)}
        self._note_whether_somebody_works(beating)

    def _note_whether_somebody_works(self, beating: set[int]) -> None:
        """A worker counts from its first beat until it is killed, stopped or frozen.

        A worker that lives but no longer beats does not excuse anything: that is a defect, not a fault.
        """
        self._came_up |= beating
        at_work = any(
            worker.pid in self._came_up and not worker.frozen and not worker.away
            for worker in self._stack.workers
        )
        if not at_work and self._nobody is None:
            self._nobody = self._stack.timeline.begin(WORKERS)
        elif at_work and self._nobody is not None:
            self._stack.timeline.end(self._nobody)
            self._nobody = None

    def _follow_journals(self) -> None:
        for slot, reader in enumerate(self._readers):
            for entry in reader.new_entries():
                if isinstance(entry, Ack):
                    self.seen.acks.append(entry)
                    self.seen.last_ack[slot] = entry.at
                elif isinstance(entry, Read):
                    self.seen.reads.append(entry)
                elif isinstance(entry, Complaint):
                    self.seen.complaints.append(entry.sentence)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._stack.postgres.url, autocommit=True, connect_timeout=2, application_name="chaos"
            )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
