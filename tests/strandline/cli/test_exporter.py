"""``strandline exporter``: the numbers of ``status`` for Prometheus, and the alerts on them."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from strandline.administration.metrics import DatabaseCollector
from strandline.administration.status import read_standing, read_status
from strandline.schemas.errors import DatabaseUnavailableError
from strandline.schemas.postgres.database import Database
from strandline.schemas.settings import load_settings
from strandline.workers.metrics import ProcessMetrics
from tests.conftest import MakeMemory
from tests.support.messages import user
from tests.support.processes import forking
from tests.support.workers.draining import drain_everything

RULES = Path(__file__).resolve().parents[3] / "deploy/prometheus/rules.yaml"
CANARY = "xylophone-4711"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples_of(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(database: Database) -> str:
    settings = load_settings(database_url=None)
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(lambda: read_standing(database, settings)))
    return generate_latest(registry).decode()


def value(samples: Samples, name: str, **labels: str) -> list[float]:
    wanted = set(labels.items())
    return [number for (found, of), number in samples.items() if found == name and wanted <= of]


def test_numbers_agree_with_status_and_name_nobody(
    database: Database, database_url: str, make_memory: MakeMemory
) -> None:
    memory = make_memory(f"s-{CANARY}", user_id=f"u-{CANARY}", memory_blocks=["facts", "vectors"])
    memory.put(user(f"I keep a {CANARY} in Husum."))
    memory.flush(all=True)
    text = scrape(database)
    samples = samples_of(text)
    status = read_status(database, load_settings(database_url=None))
    of_status = {
        (pipeline.name, stage.name): stage.due for pipeline in status.pipelines for stage in pipeline.stages
    }
    assert sum(of_status.values()) > 0
    for (pipeline, stage), due in of_status.items():
        assert value(samples, "strandline_due", pipeline=pipeline, stage=stage) == [due]
    assert max(value(samples, "strandline_due_oldest_age_seconds", stage="extract")) > 0
    assert value(samples, "strandline_audit_unchained_age_seconds") == [0]
    memory.facts.add("I sail.")
    assert value(samples_of(scrape(database)), "strandline_audit_unchained_age_seconds")[0] > 0
    assert value(samples, "strandline_pipeline_unserved", pipeline="facts") == [1]
    assert CANARY not in text
    local = load_settings(database_url=database_url, embedding_backend="local", text_backend="local")
    drain_everything(database, database_url, local)
    after = samples_of(scrape(database))
    assert not any(value(after, "strandline_due"))
    assert not any(value(after, "strandline_due_oldest_age_seconds"))


def test_a_database_that_is_away_is_a_number_and_no_error() -> None:
    def read() -> Any:
        raise DatabaseUnavailableError("It is away.")

    registry = CollectorRegistry()
    registry.register(DatabaseCollector(read))
    assert value(samples_of(generate_latest(registry).decode()), "strandline_database_up") == [0]


def test_the_process_serves_metrics_until_a_signal(database_url: str, database: Database) -> None:
    with forking.Popen(
        [sys.executable, "-m", "strandline", "exporter", "--port", "0"],
        env={
            "PATH": "/usr/bin:/bin",
            "STRANDLINE_DATABASE_URL": database_url,
            "STRANDLINE_EMBEDDED": "never",
        },
        stdout=subprocess.PIPE,
        text=True,
    ) as exporter:
        assert exporter.stdout is not None
        address = re.search(r"http://\S+/metrics", exporter.stdout.readline())
        assert address is not None
        with urllib.request.urlopen(address[0], timeout=60) as answer:
            samples = samples_of(answer.read().decode())
        assert value(samples, "strandline_database_up") == [1]
        exporter.send_signal(signal.SIGTERM)
        assert exporter.wait(60) == 0


def rules() -> Iterator[dict[str, Any]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from group["rules"]


def test_every_name_in_alerts_and_dashboard_is_a_metric(database: Database) -> None:
    of_worker = generate_latest(ProcessMetrics().registry).decode()
    families = text_string_to_metric_families(scrape(database) + of_worker)
    exported = {
        f"{family.name}{suffix}" for family in families for suffix in SUFFIXES.get(family.type, ("",))
    }
    panels = json.loads((RULES.parent / "dashboard.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules()]
    asked += [target["expr"] for panel in panels for target in panel["targets"]]
    named = {name for expr in asked for name in re.findall(r"strandline_\w+", expr)}
    assert named <= exported, named - exported


SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",)}
FIRES = {
    "StrandlineLagBurnsBudget": [
        'strandline_apply_lag_seconds_count{stage="extract"} 0+10x90',
        'strandline_apply_lag_seconds_bucket{stage="extract",le="60.0"} 0+5x90',
    ],
    "StrandlineDatabaseDown": ["strandline_database_up 0x20"],
    "StrandlineWorkPutAndNoneTaken": [
        'strandline_due{pipeline="facts",stage="extract",state="serving"} 5x20',
        'strandline_leased_lanes{pipeline="facts",stage="extract",state="serving"} 0x20',
        'strandline_due_oldest_age_seconds{pipeline="facts",stage="extract",state="serving"} 100+0x20',
    ],
    "StrandlineWorkIsOld": [
        'strandline_due_oldest_age_seconds{pipeline="facts",stage="extract",state="serving"} 400+0x20'
    ],
    "StrandlinePipelineUnserved": ['strandline_pipeline_unserved{pipeline="facts"} 1x20'],
    "StrandlineModelRefuses": ['strandline_stage_waits{pipeline="facts",stage="extract"} 1x20'],
    "StrandlineBreakerOpen": ['strandline_breaker_open{role="facts",reason="ProviderSetupError"} 1x20'],
    "StrandlineTrailNotChained": ["strandline_audit_unchained_age_seconds 700+60x20"],
    "StrandlineDeadLetters": ['strandline_dead_letters{pipeline="facts",stage="extract"} 2x20'],
    "StrandlineWorkerWithoutBroker": ["strandline_workers_without_broker 1x20"],
    "StrandlineKeysMissing": ["strandline_key_waiting_events 3x20"],
}


def test_each_alert_leads_to_its_entry_in_the_run_book() -> None:
    text = (RULES.parents[2] / "docs/operations.md").read_text()
    entries = dict(re.findall(r"^#### (Strandline\w+)\n\n(.+?)\n\n", text, re.MULTILINE | re.DOTALL))
    assert entries.keys() == {rule["alert"] for rule in rules()}
    assert all(len(entry.split("\n")) > 1 for entry in entries.values())
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"


def test_each_alert_is_tried() -> None:
    assert {rule["alert"] for rule in rules()} == FIRES.keys()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
@pytest.mark.parametrize("alert", FIRES)
def test_an_alert_fires_at_its_cause_and_not_without_it(alert: str, tmp_path: Path) -> None:
    def series(text: str, *, is_well: bool) -> dict[str, str]:
        name, _, values = text.rpartition(" ")
        well = {"StrandlineDatabaseDown": "1x20", "StrandlineLagBurnsBudget": "0+10x90"}.get(alert, "0x20")
        return {"series": name, "values": well if is_well else values}

    def case(*, is_well: bool) -> dict[str, Any]:
        rule = {"alertname": alert, "eval_time": "80m" if alert == "StrandlineLagBurnsBudget" else "15m"}
        given = [series(text, is_well=is_well) for text in FIRES[alert]]
        return {"interval": "1m", "input_series": given, "alert_rule_test": [rule]}

    tests = tmp_path / "tests.yaml"
    tests.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [case(is_well=True)]}))
    assert subprocess.run(["promtool", "test", "rules", str(tests)], check=False).returncode == 0
    tests.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [case(is_well=False)]}))
    ill = subprocess.run(
        ["promtool", "test", "rules", str(tests)], check=False, capture_output=True, text=True
    )
    assert ill.returncode == 1
    assert alert in ill.stderr + ill.stdout
