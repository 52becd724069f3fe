"""The files for servers parse, and name only commands, options, settings and queues that exist."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from strandline.schemas.lanes import STAGES, queue_name
from strandline.schemas.settings import Settings
from strandline.schemas.tables.work import due
from strandline.workers.shutdown import HAND_BACK_SECONDS

DEPLOY = Path(__file__).parent.parent / "deploy"
COMMANDS = {"migrate", "worker"}
WORKER_OPTIONS = {"--queues"}
QUEUES = {queue_name(stage) for stage in STAGES}
FILES = [
    "compose.yaml",
    "Dockerfile",
    "kubernetes/migrate.yaml",
    "kubernetes/worker.yaml",
    "systemd/strandline-worker@.service",
]


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "systemd/strandline-worker@.service").read_text())
    return parser


def commands() -> list[list[str]]:
    services = documents("compose.yaml")[0]["services"].values()
    found = [service["command"] for service in services if "build" in service]
    for document in documents("kubernetes/worker.yaml") + documents("kubernetes/migrate.yaml"):
        if document["kind"] in {"Deployment", "Job"}:
            found += [pod["command"] for pod in document["spec"]["template"]["spec"]["containers"]]
    found += [re.findall(r'"([^"]+)"', (DEPLOY / "Dockerfile").read_text().split("CMD")[1])]
    start = unit()["Service"]["ExecStart"]
    found += [shlex.split(start.replace("%i", stage)) for stage in STAGES]
    return found


def test_every_command_exists() -> None:
    for program, command, *options in commands():
        assert Path(program).name == "strandline"
        assert command in COMMANDS
        named = dict(zip(options[::2], options[1::2], strict=True))
        assert set(named) <= WORKER_OPTIONS
        assert set(named.values()) <= QUEUES


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes/worker.yaml"])
def test_every_queue_has_a_worker(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert set(re.findall(r'"--queues", "([^"]+)"', text)) == QUEUES


@pytest.mark.parametrize("name", FILES)
def test_every_setting_exists(name: str) -> None:
    known = {f"STRANDLINE_{field.upper()}" for field in Settings.model_fields}
    named = set(re.findall(r"STRANDLINE_[A-Z_]+", (DEPLOY / name).read_text()))
    assert named <= known


def test_each_deployment_is_scaled_by_its_own_due_work() -> None:
    queries = {}
    deployments = {}
    for document in documents("kubernetes/worker.yaml"):
        if document["kind"] == "Deployment":
            container = document["spec"]["template"]["spec"]["containers"][0]
            deployments[document["metadata"]["name"]] = container["command"][-1]
        else:
            target = document["spec"]["scaleTargetRef"]["name"]
            queries[target] = document["spec"]["triggers"][0]["metadata"]["query"]
    assert queries.keys() == deployments.keys()
    assert "stage" in due.columns
    for name, query in queries.items():
        stage = re.fullmatch(r"SELECT count\(\*\) FROM ([\w.]+) WHERE stage = '(\w+)'", query)
        assert stage is not None
        assert stage[1] == due.fullname
        assert queue_name(stage[2]) == deployments[name]


def test_a_stop_allows_for_the_grace_time() -> None:
    longest = Settings.model_fields["shutdown_grace_seconds"].default + HAND_BACK_SECONDS
    compose = documents("compose.yaml")[0]["services"]
    graces = [float(compose[stage]["stop_grace_period"].removesuffix("s")) for stage in STAGES]
    graces += [float(unit()["Service"]["TimeoutStopSec"])]
    for document in documents("kubernetes/worker.yaml"):
        if document["kind"] == "Deployment":
            graces.append(float(document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]))
    assert min(graces) > longest
