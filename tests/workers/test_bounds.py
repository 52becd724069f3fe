"""After a fault, with the default settings, the work is taken up, and done once.

How long it waited is measured by ``make soak`` (``tests/soak/takeover.py``).
"""

from __future__ import annotations

import re
import signal
import threading
from pathlib import Path

import pytest

from strandline.schemas.postgres.database import Database
from strandline.schemas.postgres.options import ConnectionOptions
from strandline.schemas.settings import Settings
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer, RecordedRequest
from tests.support.stored import registered_workers
from tests.support.workers.busy_workers import check_done_once, converse

ROOT = Path(__file__).parent.parent.parent


def as_it_comes(server: ModelServer, key: str, **settings: str) -> dict[str, str]:
    """A worker's environment with nothing but its models set."""
    models = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": key}
    return models | {"STRANDLINE_EMBEDDING_BACKEND": "local"} | settings


@pytest.fixture
def waiting(model_server: ModelServer) -> threading.Semaphore:
    """Released for each call that the worker with the key ``stuck`` waits for in vain."""
    calls = threading.Semaphore(0)

    def respond(request: RecordedRequest) -> None:
        if request.authorization == "Bearer stuck":
            calls.release()
            model_server.closing.wait()

    model_server.behave(responder=respond)
    return calls


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_killed_or_paused_worker_held_is_taken_up(
    rig: Rig, number: signal.Signals, waiting: threading.Semaphore
) -> None:
    stuck = rig.start_worker(**as_it_comes(rig.model, "stuck"))
    converse(rig.memory, 3, 1, broker_url=rig.broker_url)
    assert all(waiting.acquire(timeout=150) for _call in range(3))
    rig.start_worker(**as_it_comes(rig.model, "other"))
    stuck.process.send_signal(number)
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="the other worker to finish")
    check_done_once(rig.database, rig.url, 3)


def test_what_hangs_in_a_living_worker_is_taken_up_at_its_deadline(
    rig: Rig, waiting: threading.Semaphore
) -> None:
    """It beats, so only the lease's deadline tells; whatever it is that hangs, here it is a model call."""
    # As many threads as calls that hang, so that it cannot take up the lanes again itself.
    rig.start_worker("--concurrency", "3", **as_it_comes(rig.model, "stuck"))
    converse(rig.memory, 3, 1, broker_url=rig.broker_url)
    assert all(waiting.acquire(timeout=150) for _call in range(3))
    rows_of(
        rig.url,
        "UPDATE strandline.lane SET deadline_at = now() WHERE holder IS NOT NULL RETURNING stage",
    )
    rig.start_worker(**as_it_comes(rig.model, "other"))
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="the other worker to finish")
    assert registered_workers(rig.url) == 2
    check_done_once(rig.database, rig.url, 3)


def test_workers_go_on_after_postgres_has_ended_every_connection(rig: Rig) -> None:
    """As a restart does, in the middle of calls; here the server is there again at once."""
    rig.model.behave(latency=1.0)
    worker = rig.start_worker(**as_it_comes(rig.model, "key"))
    converse(rig.memory, 3, 1, broker_url=rig.broker_url)
    wait_until(lambda: len(rig.model.requests) >= 3, timeout=15, what="calls to be in flight")
    rows_of(
        rig.url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    rig.model.behave()
    wait_until(lambda: nothing_due(rig.url), timeout=30, what="the worker to go on")
    assert worker.process.poll() is None
    afresh = Database.connect(ConnectionOptions.from_settings(rig.url, rig.settings))
    check_done_once(afresh, rig.url, 3)
    afresh.close()


def section() -> str:
    """What docs/operations.md says of how long anything can wait."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^## Longest waits\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    return str(found)


def test_bounds_follow_from_the_defaults_that_they_name() -> None:
    defaults = {f"STRANDLINE_{name.upper()}": field.default for name, field in Settings.model_fields.items()}
    named = re.findall(r"`(STRANDLINE_\w+)` \((\d+)\)", section())
    assert len(named) >= 3
    assert {name: float(value) for name, value in named} == {name: defaults[name] for name, _ in named}


def test_each_bound_names_a_test_that_there_is() -> None:
    named = re.findall(r"`(tests/(?:\w+/)*\w+\.py)::(\w+)`", section())
    assert len(named) >= 7
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
