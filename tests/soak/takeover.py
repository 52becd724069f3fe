"""How long work waits after a fault: the bounds of docs/operations.md, with the settings as they come."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from strandline.schemas.settings import Settings
from tests.conftest import wait_until
from tests.soak.measuring.ground import Ground
from tests.soak.measuring.readings import Reading
from tests.support.servers.model_server import ModelServer, RecordedRequest

DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}

# Until the sweep of another worker looks, and its hint has gone through the broker.
SWEEP_SECONDS = DEFAULTS["sweep_interval_seconds"] * 1.25 + 0.5
# A machine that does other things as well.
SLACK_SECONDS = 2.0
PATIENCE_SECONDS = 120.0
SESSIONS = 3


def run(ground: Ground) -> Iterator[Reading]:
    """Time until others finish the work of a killed, paused or hanging worker, and after lost connections."""
    scene = Scene.of(ground)
    # Merge follows extract, and one hint may have gone to the paused worker's socket.
    dead = DEFAULTS["worker_dead_after_seconds"] + 2 * SWEEP_SECONDS + SLACK_SECONDS
    killed = scene.seconds_until_done("killed", signal.SIGKILL)
    yield Reading("another worker finishes what a killed worker held", killed, dead)
    paused = scene.seconds_until_done("paused", signal.SIGSTOP)
    yield Reading("another worker finishes what a paused worker held", paused, dead)
    hanging = scene.seconds_until_done("hanging", None)
    yield Reading(
        "another worker finishes what hangs in a living worker, after its lease's deadline",
        hanging,
        2 * SWEEP_SECONDS + SLACK_SECONDS,
    )
    yield Reading(
        "a worker goes on after Postgres has ended every connection",
        scene.seconds_after_lost_connections(),
        10 + SWEEP_SECONDS + SLACK_SECONDS,
    )


@dataclass
class Scene:
    """A model that does not answer workers with the key ``stuck``, and the calls that they wait for."""

    ground: Ground
    model: ModelServer
    calls: threading.Semaphore

    @classmethod
    def of(cls, ground: Ground) -> Scene:
        scene = cls(ground, ground.model(), threading.Semaphore(0))
        scene.model.behave(responder=scene._respond)
        return scene

    def seconds_until_done(self, name: str, number: signal.Signals | None) -> float:
        """Have a worker take work up, disturb it, and time how long another needs until all is done.

        Without a signal its leases' deadlines pass; it has no thread left to take the lanes up again.
        """
        threads = ("--concurrency", str(SESSIONS)) if number is None else ()
        stuck = self.ground.worker(*threads, **self._environment("stuck"))
        self._converse(name)
        assert all(self.calls.acquire(timeout=PATIENCE_SECONDS) for _ in range(SESSIONS))
        other = self.ground.worker(**self._environment("other"))
        if number is None:
            self.ground.rows(
                "UPDATE strandline.lane SET deadline_at = now() WHERE holder IN"
                " (SELECT worker_id FROM strandline.worker WHERE pid = %s) RETURNING stage",
                stuck.process.pid,
            )
        else:
            stuck.process.send_signal(number)
        took = self._wait(name)
        other.end()
        stuck.end()
        return took

    def seconds_after_lost_connections(self) -> float:
        """As a restart of Postgres does, in the middle of calls; here the server is there again at once."""
        self.model.behave(latency=1.0)
        asked = self.model.received
        self.ground.worker(**self._environment("key"))
        self._converse("connections")
        wait_until(
            lambda: self.model.received >= asked + SESSIONS, timeout=PATIENCE_SECONDS, what="calls in flight"
        )
        self.ground.rows(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        self.model.behave()
        return self._wait("connections")

    def _wait(self, name: str) -> float:
        began = time.monotonic()
        wait_until(self.ground.nothing_due, timeout=PATIENCE_SECONDS, what=f"the work of {name!r}")
        return time.monotonic() - began

    def _converse(self, name: str) -> None:
        for number in range(SESSIONS):
            memory = self.ground.memory(
                f"{name}-{number}", user_id=f"{name}-{number}", broker_url=self.ground.broker_url
            )
            memory.put({"role": "user", "content": f"harbour {number} of {name} was fine"})
            memory.flush(all=True)

    def _environment(self, key: str) -> dict[str, str]:
        """A worker's environment with nothing but its models set."""
        models = {"OPENAI_BASE_URL": self.model.base_url, "OPENAI_API_KEY": key}
        return models | {"STRANDLINE_EMBEDDING_BACKEND": "local"}

    def _respond(self, request: RecordedRequest) -> None:
        if request.authorization == "Bearer stuck":
            self.calls.release()
            self.model.closing.wait()
