"""How long processes take to end: workers within their grace time, scripts at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from strandline.workers.celery_app.shutdown import LEAVE_SECONDS
from tests.conftest import wait_until
from tests.soak.measuring.ground import ROOT, Ground
from tests.soak.measuring.readings import Reading
from tests.soak.measuring.timing import seconds_of
from tests.support.servers.broker_proxy import BrokerProxy
from tests.support.workers.busy_workers import environment
from tests.support.workers.worker_processes import WorkerProcess

# What Celery's loop, which looks about once a second whether it is to stop, and a busy machine may add.
SLACK_SECONDS = 6.0
GRACE_SECONDS = 0.5
PATIENCE_SECONDS = 120

SCRIPT = """
    import time
    from strandline import Memory

    memory = Memory.from_defaults("trip", user_id="maren", token_limit=2_000, token_flush_size=300)
    for number in range(300):
        speaker = "user" if number % 2 == 0 else "assistant"
        text = f"My cousin Tomke number {number} lives in Husum." if speaker == "user" else "I see."
        seq = memory.put({"role": speaker, "content": text})
    WAIT
    print(time.time(), flush=True)
"""
WAIT = "memory.get('Who lives in Husum?', wait_for=seq, timeout=60)"


def run(ground: Ground) -> Iterator[Reading]:
    """Workers whose calls hang, whose broker is away, and a script with embedded servers."""
    yield from _workers(ground)
    yield from _without_broker(ground)
    done, in_hand = _script_end(WAIT), _script_end("pass")
    yield Reading("a script whose work is done ends", done, 5.0)
    yield Reading("a script with work in hand ends, after 5 s for the work", in_hand, 8.0)


def _workers(ground: Ground) -> Iterator[Reading]:
    bound = LEAVE_SECONDS + SLACK_SECONDS
    grace = {"STRANDLINE_SHUTDOWN_GRACE_SECONDS": str(GRACE_SECONDS)}
    worker = _hanging_worker(ground, "grace", **grace)
    yield Reading(
        "a worker whose calls hang ends after its grace time",
        seconds_of(lambda: _end(worker, signal.SIGTERM)),
        GRACE_SECONDS + bound,
    )
    worker = _hanging_worker(ground, "second")
    took = seconds_of(lambda: _end(worker, signal.SIGTERM, signal.SIGTERM))
    yield Reading("a second signal ends a worker whose calls hang", took, bound)
    timeout = {"STRANDLINE_MODEL_TIMEOUT_SECONDS": "2"}
    worker = _hanging_worker(ground, "calls", **timeout)
    took = seconds_of(lambda: _end(worker, signal.SIGTERM))
    yield Reading("a worker ends with its calls, which time out after 2 s", took, 8.0)


def _without_broker(ground: Ground) -> Iterator[Reading]:
    """Also one that has only just registered, and whose Celery has not begun to consume."""
    with BrokerProxy(ground.broker_url) as proxy:
        settings = {"STRANDLINE_BROKER_URL": proxy.url, "STRANDLINE_SHUTDOWN_GRACE_SECONDS": "3"}
        worker = ground.worker(**environment(ground.model(), **settings))
        proxy.down()
        took = seconds_of(lambda: _end(worker, signal.SIGTERM))
        worker.end()
    yield Reading(
        "a worker without its broker ends, with 3 s of grace", took, 3 + LEAVE_SECONDS + SLACK_SECONDS
    )


def _hanging_worker(ground: Ground, name: str, **settings: str) -> WorkerProcess:
    """With calls in hand, none of which will be answered."""
    model = ground.model()
    model.behave(hang=True)
    worker = ground.worker("--log-level", "info", **environment(model, **settings))
    for number in range(3):
        memory = ground.memory(f"{name}{number}", user_id=f"{name}{number}", broker_url=ground.broker_url)
        memory.put({"role": "user", "content": f"harbour {number} was fine"})
        memory.flush(all=True)
    wait_until(lambda: model.received >= 3, timeout=15, what="calls to be in flight")
    return worker


def _end(worker: WorkerProcess, *numbers: signal.Signals) -> None:
    """Send signals, the second one when the first has been taken, and wait for the end."""
    for place, number in enumerate(numbers):
        if place:
            wait_until(
                lambda: any("worker is stopping" in line for line in worker.output),
                timeout=10,
                what="the first signal to be taken",
            )
        worker.process.send_signal(number)
    worker.process.wait(PATIENCE_SECONDS)


def _script_end(wait: str) -> float:
    """Seconds from a script's last line to the end of its process."""
    with TemporaryDirectory(prefix="soak-script-") as place:
        Path(place).chmod(0o755)
        home = str(Path(place) / "home")
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SCRIPT).replace("WAIT", wait)],
            env=Ground.plain_environment() | {"STRANDLINE_HOME": home, "PYTHONPATH": str(ROOT)},
            cwd=place,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        return time.time() - float(done.stdout)
