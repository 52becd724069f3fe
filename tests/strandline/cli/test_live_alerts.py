"""Alerts by a real Prometheus on a live system: each fires once its cause is made, and clears after it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from tests.conftest import Rig, wait_until
from tests.strandline.cli.test_exporter import RULES
from tests.support.processes import forking
from tests.support.workers.busy_workers import converse, environment

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed")
OPEN, UNCHAINED = "StrandlineBreakerOpen", "StrandlineTrailNotChained"


class Prometheus:
    """Scrapes each second, under the shipped rules with times of a second or two; targets may be added.

    Args:
        folder: for its configuration and its data.
        address: where it listens.
    """

    def __init__(self, folder: Path, address: str) -> None:
        self._targets = folder / "targets.json"
        self._address = address

    def scrape(self, *addresses: str) -> None:
        """Scrape these from now on."""
        changed = self._targets.with_suffix(".new")
        changed.write_text(json.dumps([{"targets": [*addresses]}]))
        changed.rename(self._targets)

    def is_firing(self, alert: str) -> bool:
        with urllib.request.urlopen(f"http://{self._address}/api/v1/alerts", timeout=60) as answer:
            alerts = json.load(answer)["data"]["alerts"]
        return (alert, "firing") in [(one["labels"]["alertname"], one["state"]) for one in alerts]


@contextmanager
def begun_prometheus(folder: Path) -> Iterator[Prometheus]:
    rules = yaml.safe_load(RULES.read_text())
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = rule["expr"].replace("> 600", "> 2")
        rule["for"] = "1s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules))
    found = {"files": [str(folder / "targets.json")], "refresh_interval": "1s"}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "strandline", "file_sd_configs": [found]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    with started([*command, "--web.listen-address=127.0.0.1:0"], r"Listening on.* address=(\S+)") as address:
        yield Prometheus(folder, address)


@contextmanager
def started(command: list[str], says: str, **variables: str) -> Iterator[str]:
    """A process until it is told to end; gives the address that its output names."""
    variables = {"PATH": "/usr/bin:/bin", "STRANDLINE_EMBEDDED": "never", **variables}
    with forking.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield next(match[1] for line in process.stdout if (match := re.search(says, line)))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def test_the_newest_alerts_fire_at_their_cause_and_clear_after_it(rig: Rig, tmp_path: Path) -> None:
    exporter = [sys.executable, "-m", "strandline", "exporter", "--port", "0"]
    metrics = r"http://(\S+)/metrics"
    with ExitStack() as running:
        exported = running.enter_context(started(exporter, metrics, STRANDLINE_DATABASE_URL=rig.url))
        prometheus = running.enter_context(begun_prometheus(tmp_path))
        prometheus.scrape(exported)
        rig.memory("kept", user_id="ana").facts.add("Keeps bees.")
        wait_until(lambda: prometheus.is_firing(UNCHAINED), timeout=60, what="an unchained act to be told")
        assert not prometheus.is_firing(OPEN)
        rig.model.behave(status=401, path="/chat/completions")
        worker = rig.start_worker(
            **environment(rig.model, STRANDLINE_PROVIDER_PROBE_SECONDS="0.2"), STRANDLINE_METRICS_PORT="0"
        )
        of_worker = re.search(metrics, "".join(worker.output))
        assert of_worker is not None, worker.output
        prometheus.scrape(exported, of_worker[1])
        converse(rig.memory, 1, 1, broker_url=rig.broker_url)
        wait_until(lambda: prometheus.is_firing(OPEN), timeout=60, what="the open breaker to be told")
        wait_until(lambda: not prometheus.is_firing(UNCHAINED), timeout=60, what="the chained trail to clear")
        rig.model.behave()
        wait_until(lambda: not prometheus.is_firing(OPEN), timeout=60, what="the closed breaker to clear")
