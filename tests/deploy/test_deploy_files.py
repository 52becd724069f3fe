"""The files for servers parse, and name only commands, options, settings and queues that exist."""

from __future__ import annotations

import configparser
import fnmatch
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from strandline.schemas.model_roles import PREFIX, ModelRoles, variable
from strandline.schemas.settings import Settings
from strandline.schemas.tables.work import due
from strandline.schemas.values.lanes import STAGES, queue_name
from strandline.workers.celery_app.shutdown import LEAVE_SECONDS

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
ROOT = DEPLOY.parent
COMMANDS = {"migrate", "serve", "worker"}
OPTIONS = {"--port", "--queues"}
QUEUES = {queue_name(stage) for stage in STAGES}
FILES = [
    "compose.yaml",
    "Dockerfile",
    "kubernetes/migrate.yaml",
    "kubernetes/network.yaml",
    "kubernetes/service.yaml",
    "kubernetes/worker.yaml",
    "systemd/strandline-service@.service",
    "systemd/strandline-worker@.service",
]


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def unit(name: str = "strandline-worker@.service") -> configparser.ConfigParser:
    parser = configparser.ConfigParser(
        interpolation=None, strict=False, delimiters=("=",), comment_prefixes=("#",)
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "systemd" / name).read_text())
    return parser


def commands() -> list[list[str]]:
    services = documents("compose.yaml")[0]["services"].values()
    found = [service["command"] for service in services if "build" in service]
    found += [container["command"] for _, pod in pods() for container in pod["containers"]]
    found += [re.findall(r'"([^"]+)"', (DEPLOY / "Dockerfile").read_text().split("CMD")[1])]
    start = unit()["Service"]["ExecStart"]
    found += [shlex.split(start.replace("%i", stage)) for stage in STAGES]
    found += [shlex.split(unit("strandline-service@.service")["Service"]["ExecStart"].replace("%i", "8420"))]
    return found


def test_every_command_exists() -> None:
    for program, command, *options in commands():
        assert Path(program).name == "strandline"
        assert command in COMMANDS
        named = dict(zip(options[::2], options[1::2], strict=True))
        assert set(named) <= OPTIONS
        assert {value for option, value in named.items() if option == "--queues"} <= QUEUES


@pytest.mark.parametrize("name", ["compose.yaml", "kubernetes/worker.yaml"])
def test_every_queue_has_a_worker(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert set(re.findall(r'"--queues", "([^"]+)"', text)) == QUEUES


@pytest.mark.parametrize("name", FILES)
def test_every_setting_exists(name: str) -> None:
    known = {f"STRANDLINE_{field.upper()}" for field in Settings.model_fields}
    known |= {
        variable(role, field)
        for role, default in ModelRoles.model_fields.items()
        for field in type(default.default).model_fields
    }
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
    longest = Settings.model_fields["shutdown_grace_seconds"].default + LEAVE_SECONDS
    compose = documents("compose.yaml")[0]["services"]
    graces = [float(compose[stage]["stop_grace_period"].removesuffix("s")) for stage in STAGES]
    graces += [float(unit()["Service"]["TimeoutStopSec"])]
    for document in documents("kubernetes/worker.yaml"):
        if document["kind"] == "Deployment":
            graces.append(float(document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]))
    assert min(graces) > longest


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("worker.yaml", "migrate.yaml", "service.yaml"):
        for document in documents(f"kubernetes/{name}"):
            if document["kind"] in ("Deployment", "Job"):
                yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def test_each_pod_is_bounded_and_has_no_rights_that_it_does_not_use() -> None:
    for name, pod in pods():
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        (container,) = pod["containers"]
        assert set(container["resources"]["limits"]) == {"cpu", "memory"}, name
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/tmp"], name  # noqa: S108


def test_workers_do_not_have_the_password_of_the_tables_owner() -> None:
    secrets = {name: pod["containers"][0]["envFrom"][0]["secretRef"]["name"] for name, pod in pods()}
    assert secrets.pop("strandline-migrate") == "strandline-owner"
    assert set(secrets.values()) == {"strandline"}


def test_what_derives_and_reads_has_the_settings_of_models_and_no_file_holds_a_key() -> None:
    services = documents("compose.yaml")[0]["services"]
    files = {name: service.get("env_file") for name, service in services.items()}
    asking = {*STAGES, "service"}
    assert {name for name, file in files.items() if file} == asking
    assert all(files[name] == [{"path": "models.env", "required": False}] for name in asking)
    for service in services.values():
        own = service.get("environment", {})
        assert not [name for name in own if name.startswith(PREFIX)]
    assert "models.env" in (DEPLOY / "compose.yaml").read_text().split("\nname:")[0]
    assert not admitted("deploy/models.env")
    assert "/deploy/*.env" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.mark.parametrize("name", [name for name in FILES if "worker" in name or "service" in name])
def test_the_other_files_say_where_the_settings_of_models_go(name: str) -> None:
    head = (DEPLOY / name).read_text().split("apiVersion:")[0].split("[Unit]")[0]
    assert "docs/models.md" in head and PREFIX in head


@pytest.mark.parametrize("name", ["strandline-worker@.service", "strandline-service@.service"])
def test_the_unit_is_bounded_and_has_no_capabilities(name: str) -> None:
    service = unit(name)["Service"]
    assert service["CapabilityBoundingSet"] == ""
    assert service["NoNewPrivileges"] == "yes"
    assert {"MemoryMax", "TasksMax", "CPUQuota"} <= set(service)


def admitted(path: str) -> bool:
    """Whether ``path`` enters the build's context: the last pattern that matches decides."""
    allowed = True
    names = [path, *(str(parent) for parent in PurePosixPath(path).parents if parent.name)]
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            if any(matches(name, pattern) for name in names):
                allowed = line.startswith("!")
    return allowed


def matches(name: str, pattern: str) -> bool:
    """As Docker does: from the root, one part for one part; a leading ``**`` is any number of folders."""
    parts, wanted = name.split("/"), pattern.split("/")
    if wanted[0] == "**":
        wanted, parts = wanted[1:], parts[-len(wanted[1:]) :]
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def test_the_build_has_all_that_it_reads() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    read = ["pyproject.toml", project["readme"], *project["license-files"]]
    read += ["deploy/locks/build.txt", "deploy/locks/image.txt"]
    folders = {link.readlink().name for link in (ROOT / "strandline").iterdir() if link.is_symlink()}
    assert folders >= {"schemas", "workers"}
    for folder in {"strandline", *folders}:
        files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
        read += [str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts]
    assert [path for path in read if not admitted(path)] == []


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "deploy/.env",
        "deploy/production.env",
        "workers/.env",
        ".git/config",
        ".venv/bin/python",
        "schemas/__pycache__/settings.cpython-311.pyc",
        "tests/conftest.py",
        "notes.txt",
        "id_rsa",
    ],
)
def test_the_build_has_no_secret_and_nothing_that_it_does_not_read(path: str) -> None:
    assert not admitted(path)


def test_images_can_be_named_by_digest_and_postgres_keeps_no_password_in_its_environment() -> None:
    compose = documents("compose.yaml")[0]
    named = [service["image"] for service in compose["services"].values() if service["image"] != "strandline"]
    assert named and all(re.fullmatch(r"\$\{[A-Z]+_IMAGE:-[^}]+\}", image) for image in named)
    bases = re.findall(r"^FROM (\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert set(bases) == {"${BASE_IMAGE}"}
    postgres = compose["services"]["postgres"]
    files = {name: value for name, value in postgres["environment"].items() if "PASSWORD" in name}
    assert len(files) == 3 and all(name.endswith("_FILE") for name in files)
    assert set(files.values()) == {f"/run/secrets/{name}" for name in postgres["secrets"]}
    assert set(postgres["secrets"]) <= set(compose["secrets"])
