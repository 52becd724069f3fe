"""The files that deploy the HTTP service agree with its settings, its routes and one another."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from starlette.routing import Route

from strandline.cli.serve.server import KEEP_ALIVE_SECONDS
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import STAGES
from strandline.service.events import PING_SECONDS
from strandline.service.routes import health

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
MANIFESTS = ["migrate.yaml", "network.yaml", "service.yaml", "worker.yaml"]
# After the last request: pools are closed, the interpreter ends.
LEAVE_SECONDS = 5.0


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def kinds() -> dict[str, Any]:
    return {document["kind"]: document for document in documents("kubernetes/service.yaml")}


def container() -> dict[str, Any]:
    (only,) = kinds()["Deployment"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def unit() -> configparser.ConfigParser:
    # systemd lets a name come again, which counts for no value that is read here.
    parser = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "systemd/strandline-service@.service").read_text())
    return parser


@cache
def environments() -> dict[str, dict[str, str]]:
    """What each way to run the service sets, by its name."""
    text = (DEPLOY / "systemd/strandline-service@.service").read_text()
    compose = documents("compose.yaml")[0]["services"]["service"]["environment"]
    return {
        "compose": {name: value for name, value in compose.items() if "SERVICE" in name},
        "kubernetes": {entry["name"]: entry["value"] for entry in container()["env"]},
        "systemd": dict(re.findall(r"^Environment=(STRANDLINE_SERVICE_\w+)=(\S+)$", text, re.MULTILINE)),
    }


def settings(way: str) -> Settings:
    """The settings of a process that is run this way, of which nothing else is set."""
    fields = {name.removeprefix("STRANDLINE_").lower(): value for name, value in environments()[way].items()}
    return Settings(**{name: field.default for name, field in Settings.model_fields.items()} | fields)


def stop_seconds(way: str) -> float:
    """How long a process is given from the signal until it is killed."""
    if way == "compose":
        service = documents("compose.yaml")[0]["services"]["service"]
        return float(service["stop_grace_period"].removesuffix("s"))
    if way == "systemd":
        return float(unit()["Service"]["TimeoutStopSec"])
    pod = kinds()["Deployment"]["spec"]["template"]["spec"]
    (_, waits) = container()["lifecycle"]["preStop"]["exec"]["command"]
    return float(pod["terminationGracePeriodSeconds"]) - float(waits)


def paths_of_health() -> set[str]:
    return {route.path for route in health.router.routes if isinstance(route, Route)}


@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_accepts_each_manifest(name: str) -> None:
    found = documents(f"kubernetes/{name}")
    checked = [each for each in found if not each["apiVersion"].startswith("keda.sh/")]
    assert checked
    for document in checked:
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def test_the_check_of_manifests_sees_a_field_that_does_not_exist() -> None:
    deployment = kinds()["Deployment"]
    deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailble"] = 0
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("way", ["compose", "kubernetes", "systemd"])
def test_a_stop_is_long_enough_for_all_that_a_process_does_in_it(way: str) -> None:
    of = settings(way)
    assert of.service_shutdown_seconds > of.service_request_seconds
    needed = of.service_drain_seconds + of.service_shutdown_seconds + LEAVE_SECONDS
    assert stop_seconds(way) > needed


def test_readiness_fails_before_a_process_stops_to_answer_and_liveness_never_does() -> None:
    ready, live, start = (container()[f"{name}Probe"] for name in ("readiness", "liveness", "startup"))
    assert ready["httpGet"]["path"] == "/healthz/ready"
    assert live["httpGet"]["path"] == start["httpGet"]["path"] == "/healthz/live"
    assert {"/healthz/ready", "/healthz/live"} <= paths_of_health()
    assert ready["periodSeconds"] * ready["failureThreshold"] < settings("kubernetes").service_drain_seconds
    # A process that waits for Postgres says so itself, before the probe gives up.
    assert ready["timeoutSeconds"] > health.READY_SECONDS


def test_the_composed_service_is_healthy_when_it_is_ready() -> None:
    service = documents("compose.yaml")[0]["services"]["service"]
    url = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w/]+)", service["healthcheck"]["test"][-1])
    assert url is not None
    assert url[1] == environments()["compose"]["STRANDLINE_SERVICE_PORT"]
    assert url[2] in paths_of_health()


def test_all_ports_are_the_one_that_the_service_listens_on() -> None:
    port = Settings.model_fields["service_port"].default
    (composed,) = documents("compose.yaml")[0]["services"]["service"]["ports"]
    host, outer, inner = composed.split(":")
    assert host == "127.0.0.1"
    assert settings("compose").service_port == settings("kubernetes").service_port == port
    assert {int(outer), int(inner)} == {port}
    (named,) = container()["ports"]
    (served,) = kinds()["Service"]["spec"]["ports"]
    assert (named["containerPort"], served["port"], served["targetPort"]) == (port, port, named["name"])
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert container()[probe]["httpGet"]["port"] == named["name"]
    (rule,) = policy("strandline-service")["ingress"]
    assert [each["port"] for each in rule["ports"]] == [port]
    assert f"EXPOSE {port}" in (DEPLOY / "Dockerfile").read_text()


def test_the_proxy_bears_what_the_service_allows_and_closes_first() -> None:
    text = (DEPLOY / "nginx/strandline.conf").read_text()
    named = dict(re.findall(r"^ *(\w+) (\d+)[sm];$", text, re.MULTILINE))
    of = Settings.model_fields
    assert int(named["client_max_body_size"]) * 2**20 == of["service_max_body_bytes"].default
    assert float(named["client_body_timeout"]) == of["service_body_seconds"].default
    longest = of["service_request_seconds"].default + of["service_queue_seconds"].default
    assert float(named["proxy_read_timeout"]) > max(longest, PING_SECONDS)
    assert float(named["keepalive_timeout"]) < KEEP_ALIVE_SECONDS
    # A body is whole before it is passed on, and no path is decoded on the way.
    assert "proxy_request_buffering" not in text
    assert re.findall(r"proxy_pass (\S+);", text) == ["http://strandline"] * 2


def policy(name: str) -> dict[str, Any]:
    found = {each["metadata"]["name"]: each["spec"] for each in documents("kubernetes/network.yaml")}
    return dict(found[name])


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {}).items() <= labels.items()
    return wanted and all(each["key"] in labels for each in selector.get("matchExpressions", ()))


def test_all_that_names_the_pods_names_those_of_the_service_alone() -> None:
    labels = kinds()["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        kinds()["Deployment"]["spec"]["selector"],
        kinds()["PodDisruptionBudget"]["spec"]["selector"],
        {"matchLabels": kinds()["Service"]["spec"]["selector"]},
        policy("strandline-service")["podSelector"],
    ]
    workers = [
        document["spec"]["template"]["metadata"]["labels"]
        for document in documents("kubernetes/worker.yaml")
        if document["kind"] == "Deployment"
    ]
    assert len(workers) == len(STAGES)
    for selector in selectors:
        assert selects(selector, labels)
        assert not any(selects(selector, each) for each in workers)
    of_workers = policy("strandline-workers")["podSelector"]
    assert all(selects(of_workers, each) for each in workers)
    assert not selects(of_workers, labels)


def test_nobody_reaches_a_worker_and_only_named_pods_reach_the_service() -> None:
    assert policy("strandline-workers")["ingress"] == []
    (rule,) = policy("strandline-service")["ingress"]
    assert rule["from"]
    assert all(each for each in rule["from"])
    for name in ("strandline-service", "strandline-workers"):
        assert policy(name)["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule["ports"] for rule in policy(name)["egress"])


def test_an_update_and_a_drained_node_leave_the_service_there() -> None:
    spec = kinds()["Deployment"]["spec"]
    assert "replicas" not in spec
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    scaler = kinds()["HorizontalPodAutoscaler"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == kinds()["Deployment"]["metadata"]["name"]
    assert scaler["minReplicas"] > kinds()["PodDisruptionBudget"]["spec"]["maxUnavailable"]


def test_the_secret_of_the_service_is_that_of_the_workers_and_no_value_is_written_down() -> None:
    assert container()["envFrom"] == [{"secretRef": {"name": "strandline"}}]
    secret = re.compile(r"URL|KEY|PASSWORD|TOKEN|SECRET")
    assert [name for name in environments()["kubernetes"] if secret.search(name)] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("name", ["strandline-service@.service", "strandline-worker@.service"])
def test_systemd_understands_the_unit(name: str, tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / name).read_text()
    copy = tmp_path / name
    # The program of the unit is not installed here.
    copy.write_text(text.replace("/opt/strandline/bin/strandline", sys.executable))
    verified = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [line for line in verified.stderr.splitlines() if name.partition("@")[0] in line]
    assert (verified.returncode, said) == (0, [])
