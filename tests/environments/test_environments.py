"""Variables that a host sets for others: a short scenario of put, derive and read goes on as without them.

The worker sweeps nothing, so the work is done only if hints go through the broker that is configured here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pytest

from strandline.cli import entry
from strandline.schemas.values.lanes import Lane
from strandline.workers.sweep import IN_VAIN_SECONDS, LostRings
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.processes import forking
from tests.support.servers.databases import temporary_database
from tests.support.workers.worker_processes import launch_worker

ELSEWHERE = "redis://127.0.0.1:1/0"
ENVIRONMENTS: Mapping[str, Mapping[str, str]] = {
    "Celery's and Django's variables": {
        "CELERY_BROKER_URL": ELSEWHERE,
        "CELERY_BROKER_READ_URL": ELSEWHERE,
        "CELERY_BROKER_WRITE_URL": ELSEWHERE,
        "CELERY_RESULT_BACKEND": "db+nonsense://",
        "CELERY_CONFIG_MODULE": "no_such.settings",
        "CELERY_LOADER": "no_such.loader:Loader",
        "DJANGO_SETTINGS_MODULE": "no_such.settings",
    },
    "Kubernetes's service links": {
        "STRANDLINE_SERVICE_PORT": "tcp://10.96.0.17:8420",
        "STRANDLINE_SERVICE_PORT_8420_TCP": "tcp://10.96.0.17:8420",
        "STRANDLINE_SERVICE_SERVICE_HOST": "10.96.0.17",
    },
    "proxies and authorities": {
        "ALL_PROXY": "socks5://127.0.0.1:1",
        "HTTPS_PROXY": "ftp://127.0.0.1:1",
        "NO_PROXY": "[::1],fd07::/64",
        "SSL_CERT_FILE": "/nonexistent/ca.pem",
        "SSL_CERT_DIR": "/nonexistent",
        "SSLKEYLOGFILE": "/nonexistent/keys",
    },
    "no home directory": {"HOME": "/nonexistent", "STRANDLINE_HOME": "/proc/nonexistent"},
}
DOCS = Path(__file__).parent.parent.parent / "docs"
SCENARIO = """
import json, sys
from strandline import Memory
memory = Memory.from_defaults("s", user_id="ana")
if sys.argv[1:]:
    memory.put({"role": "user", "content": f"My sister Nora lived in {sys.argv[1]}."})
    memory.flush(all=True)
else:
    memory.get("where does Nora live?")
    print(json.dumps([fact.text for fact in memory.facts.list()]))
memory.close()
"""


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_scenario_goes_on_in_each_environment(rig: Rig, name: str) -> None:
    variables = ENVIRONMENTS[name]

    def run(*arguments: str) -> str:
        servers = {"STRANDLINE_DATABASE_URL": rig.url, "STRANDLINE_BROKER_URL": rig.broker_url}
        done = forking.run(
            [sys.executable, *arguments],
            env={**os.environ, **servers, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        return str(done.stdout)

    for city in ("Lisbon", "Oslo"):  # the worker is restarted between them
        worker = rig.start_worker("--no-sweep", **variables)
        wait_until(lambda: "is ready" in "".join(worker.output), timeout=60, what="the worker")  # noqa: B023
        run("-c", SCENARIO, city)
        wait_until(lambda: nothing_due(rig.url), timeout=20, what="the work")
        assert any(city in text for text in json.loads(run("-c", SCENARIO)))
        assert rows_of(rig.url, "SELECT condition ->> 'no_broker' FROM strandline.worker") == [(None,)]
        if city == "Oslo":
            assert "broker" in run("-m", "strandline", "doctor", "--no-model-call")
        assert worker.stop() == 0
        assert "away" not in "".join(worker.output)


def table_of(page: str, heading: str, end: str) -> list[list[str]]:
    section = (DOCS / page).read_text().partition(heading)[2].partition(end)[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]


def test_the_table_in_the_docs_has_a_row_for_each_and_a_test_for_each_row() -> None:
    rows = table_of("operations.md", "## Environments", "\n## ")
    proofs = table_of("faults.md", "## Proofs of environments and waits", "| fault |")
    assert [row[0] for row in rows] == [row[0] for row in proofs]
    assert ENVIRONMENTS.keys() <= {row[0] for row in rows}
    for row in proofs:
        for test in row[-1].split(", "):
            file, _, function = test.strip("` ").partition("::")
            assert f"\ndef {function}(" in (DOCS.parent / file).read_text(), row


# Two installations that share a broker by mistake: each does its work in time, and is told.
DROPS = "SELECT (condition ->> 'drops_hints')::boolean FROM strandline.worker"
DROPPED = "SELECT coalesce(sum((condition ->> 'dropped_hints')::int), 0) FROM strandline.worker"


def test_work_whose_hints_another_installation_takes_is_done_and_told(
    rig: Rig, capfd: pytest.CaptureFixture[str]
) -> None:
    """The thief has no work of its own, and takes every hint that it can; our worker sweeps."""
    own = rig.start_worker()
    with temporary_database(rig.url) as other_url:
        thief = launch_worker(other_url, rig.broker_url, "--concurrency=1", "--no-sweep")
        try:
            wait_until(lambda: "is ready" in "".join(thief.output), timeout=60, what="the other worker")
            own.process.send_signal(signal.SIGSTOP)  # the thief has all hints
            memory = rig.memory("s", broker_url=rig.broker_url)

            def are_many_dropped() -> bool:
                memory.put({"role": "user", "content": "I live in Bern."})
                memory.flush(all=True)
                return rows_of(other_url, DROPS) == [(True,)]

            wait_until(are_many_dropped, timeout=30, what="the count")
            own.process.send_signal(signal.SIGCONT)
            wait_until(lambda: nothing_due(rig.url), timeout=12, what="the work")
            said = ("doctor", "--no-model-call", "--database-url", other_url, "--broker-url", rig.broker_url)
            entry.run(list(said))
            assert "its own Redis database or RabbitMQ virtual host" in capfd.readouterr().out
            lines = [line for line in thief.output if "hint_dropped" in line]
            assert len(lines) == 1
            assert "another installation may use this broker" in lines[0]
        finally:
            thief.end()
    assert rows_of(rig.url, DROPPED) == [(0,)]


def test_a_lane_that_was_rung_for_in_vain_is_drained_here() -> None:
    now = 0.0
    rings = LostRings(lambda: now)
    lanes = [Lane(uuid4(), uuid4(), 1, "summary") for _ in range(3)]
    assert rings.split(lanes[:2]) == (lanes[:2], [])
    now = 4.0
    assert rings.split(lanes) == (lanes[2:], lanes[:2])
    # Once drained here it begins anew; so does one that was rung for long ago.
    assert rings.split(lanes[:1]) == (lanes[:1], [])
    now += IN_VAIN_SECONDS + 1
    assert rings.split(lanes) == (lanes, [])
