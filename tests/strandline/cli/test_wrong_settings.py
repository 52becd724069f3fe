"""Settings that are misspelt or cannot be used: doctor and workers name them, and doctor goes on looking."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from strandline import ConfigurationError, Memory
from strandline.cli import entry
from strandline.cli.doctor.models import check_models
from strandline.cli.doctor.servers import check_broker
from strandline.cli.servers.targets import Servers
from strandline.deploy.embedded.stack import start_stack
from strandline.pipelines.models.factory import build_embedder
from strandline.producers.search.ranking import Vectors, prepare_query
from strandline.schemas.misspelt import unknown_settings
from strandline.schemas.postgres.operations import Run
from strandline.schemas.settings import Settings, load_settings
from tests.conftest import Rig, StartWorker, wait_until
from tests.support.servers.model_server import ModelServer

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> Any:
    """Runs doctor with variables set; gives its exit code, its lines and what stood on stderr."""

    def run(*arguments: str, **environment: str) -> tuple[int, list[str], str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = entry.run(["doctor", *arguments])
        said = capfd.readouterr()
        return code, said.out.splitlines(), said.err

    return run


def test_doctor_names_a_setting_that_cannot_be_used_and_looks_at_the_rest(rig: Rig, doctor: Any) -> None:
    rig.start_worker()  # so that there are generations to compare the settings with
    code, lines, _ = doctor(
        "--no-model-call",
        STRANDLINE_DATABASE_URL=rig.url,
        STRANDLINE_BROKER_URL=rig.broker_url,
        STRANDLINE_PROMPTS_DIR="/nowhere",
        OPENAI_BASE_URL="http://127.0.0.1:9",
    )
    (problem,) = [line for line in lines if line.startswith("problem")]
    assert "settings: STRANDLINE_PROMPTS_DIR names /nowhere" in problem
    assert "STRANDLINE_DATABASE_URL" not in problem
    assert code == 1
    for name in ("database", "tables", "workers", "broker"):
        assert any(line.startswith(f"ok       {name}:") for line in lines), lines


def test_doctor_names_settings_of_a_wrong_type_and_looks_at_the_rest(doctor: Any, database_url: str) -> None:
    code, lines, complaints = doctor(
        "--no-model-call",
        STRANDLINE_DATABASE_URL=database_url,
        STRANDLINE_POOL_MAX_SIZE="many",
        STRANDLINE_MODEL_PRICES="cheap",
        STRANDLINE_BROKER_URL="ftp://h",
    )
    problems = [line for line in lines if line.startswith("problem  settings:")]
    assert len(problems) == 3
    for name in ("POOL_MAX_SIZE", "MODEL_PRICES", "BROKER_URL"):
        assert any(f"STRANDLINE_{name}: " in line for line in problems), problems
    assert any(line.startswith("ok       database:") for line in lines), lines
    assert "warning  broker: not checked, since its settings cannot be used" in lines
    assert (code, complaints) == (1, "")


@pytest.mark.parametrize("value", ["inf", "nan", "1e20", "-1"])
def test_a_time_that_no_clock_can_count_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for it would end by an OverflowError, and Postgres would refuse the connection."""
    for name, field in Settings.model_fields.items():
        if name.endswith("_seconds"):
            variable = f"STRANDLINE_{name.upper()}"
            with monkeypatch.context() as patch:
                patch.setenv(variable, value)
                with pytest.raises(ConfigurationError, match=variable):
                    load_settings()
            assert field.annotation is float


def test_doctor_looks_for_no_server_whose_url_cannot_be_used(doctor: Any) -> None:
    code, lines, complaints = doctor("--no-model-call", "--database-url", "mysql://h/d")
    (problem,) = [line for line in lines if line.startswith("problem")]
    assert "settings: --database-url: the database URL begins with 'mysql'" in problem
    assert "warning  database: not checked, since its settings cannot be used" in lines
    assert (code, complaints) == (1, "")


def test_doctor_lists_misspelt_settings_with_the_nearest_name(doctor: Any) -> None:
    _, lines, _ = doctor("--no-model-call", STRANDLINE_DATABSE_URL="postgresql://u:opensesame@h/d")
    (warning,) = [line for line in lines if " settings:" in line]
    assert warning.startswith("warning")
    assert "'STRANDLINE_DATABSE_URL' is not a setting" in warning
    assert "Did you mean STRANDLINE_DATABASE_URL?" in warning
    assert "opensesame" not in warning


def test_every_setting_is_known_whatever_its_case() -> None:
    names = [f"STRANDLINE_{name}" for name in Settings.model_fields]
    assert not list(unknown_settings(dict.fromkeys([*names, *map(str.upper, names), "OPENAI_X"], "1")))
    (far,) = unknown_settings({"STRANDLINE_ZYZZYVA_QQQ": "1"})
    assert "Did you mean" not in far


def test_a_worker_says_once_that_a_setting_is_misspelt(start_worker: StartWorker) -> None:
    worker = start_worker(STRANDLINE_WORKER_CONCURENCY="4", STRANDLINE_HOMEE="/x")
    wait_until(lambda: "is ready" in "".join(worker.output), timeout=20, what="the worker to be ready")
    (said,) = [line for line in worker.output if "unknown_settings" in line]
    assert "STRANDLINE_WORKER_CONCURRENCY" in said
    assert "STRANDLINE_HOMEE" in said


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_that_embedded_servers_are_forbidden_is_said(command: str, capfd: Capture) -> None:
    assert os.environ["STRANDLINE_EMBEDDED"] == "never"
    assert entry.run([command]) == 1
    said = capfd.readouterr()
    assert "STRANDLINE_EMBEDDED=never forbids the embedded one" in said.out + said.err
    assert "runs in" not in said.out + said.err


def test_doctor_tells_a_model_server_that_refuses_from_one_that_does_not_answer(
    model_server: ModelServer, doctor: Any
) -> None:
    model_server.behave(status=401)
    _, lines, complaints = doctor(OPENAI_BASE_URL=model_server.base_url, OPENAI_API_KEY="sk-secret")
    told = [line for line in lines if "model:" in line]
    assert len(told) == 2
    for line in told:
        assert "answered 401: the key was refused (401); check OPENAI_API_KEY" in line
        assert "does not answer" not in line
        assert ".;" not in line
        assert line.count("check ") == 1
    assert complaints == "", "what is logged stands in the report"
    silent = load_settings(openai_api_key="sk-secret", openai_base_url="http://127.0.0.1:9")
    text, embedding = check_models(silent, call=True)
    assert "cannot be reached" in text.found
    assert "cannot be reached" in embedding.found


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis://127.0.0.1:1/0", "refuses connections: nothing listens there"),
        ("amqp://127.0.0.1:1//", "refuses connections: nothing listens there"),
        ("redis://no-such-host.invalid/0", "cannot be found: its host has no address"),
        ("kafka://127.0.0.1:1", "cannot be used as a broker"),
    ],
)
def test_doctor_says_in_words_why_the_broker_cannot_be_used(url: str, says: str) -> None:
    report = check_broker(Servers("", url, "configured", "configured"))
    assert report.result == "problem"
    assert says in report.found
    assert "Error" not in report.found


def test_a_wrong_password_of_redis_is_said(broker_url: str) -> None:
    report = check_broker(Servers("", broker_url.replace("://:", "://:not"), "configured", "configured"))
    assert "refuses the user or the password" in report.found


def test_a_home_that_is_a_file_is_called_one(doctor: Any, tmp_path: Path) -> None:
    home = tmp_path / "taken"
    home.write_text("")
    _, lines, _ = doctor("--no-model-call", STRANDLINE_HOME=str(home), STRANDLINE_EMBEDDED="auto")
    (line,) = [line for line in lines if "home:" in line]
    assert f"{home} is a file" in line
    with pytest.raises(
        ConfigurationError, match=r"taken cannot be written \(it is a file, not a directory\)"
    ):
        start_stack(home, with_broker=False)


def test_a_block_of_a_module_that_is_not_there_is_named_so(doctor: Any) -> None:
    _, lines, _ = doctor("--no-model-call", STRANDLINE_BLOCKS="nope.inner:Nope")
    (line,) = [line for line in lines if " settings:" in line]
    assert "there is no module named 'nope'" in line
    assert "ModuleNotFoundError" not in line


def test_a_wrong_url_is_named_as_it_was_given(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    with pytest.raises(ConfigurationError, match="database_url=: the database URL begins with 'mysql'"):
        Memory.from_defaults("s", database_url="mysql://h/d")
    assert entry.run(["status", "--database-url", "mysql://h/d"]) == 1
    assert "--database-url: the database URL begins with 'mysql'" in capfd.readouterr().err
    monkeypatch.setenv("STRANDLINE_DATABASE_URL", "mysql://h/d")
    with pytest.raises(ConfigurationError, match="STRANDLINE_DATABASE_URL: the database URL begins with"):
        Memory.from_defaults("s")


def test_a_database_that_is_not_there_is_to_be_checked(capfd: Capture) -> None:
    assert entry.run(["status", "--database-url", "postgresql://u@127.0.0.1:1/d"]) == 1
    assert "refused; check that it runs, and that the database URL is right" in capfd.readouterr().err


def test_a_memory_made_by_its_class_is_pointed_to_from_defaults() -> None:
    with pytest.raises(TypeError, match=r"Memory\.from_defaults\(\"a-session\""):
        Memory("q")


def test_a_query_that_is_not_embedded_for_a_wrong_key_says_so(model_server: ModelServer) -> None:
    model_server.behave(status=401)
    settings = load_settings(openai_api_key="sk-secret", openai_base_url=model_server.base_url)

    def embed(text: str, _config: Mapping[str, Any]) -> str | None:
        return str(build_embedder(settings, "query_embedding").embed([text], timeout_seconds=5.0).vectors[0])

    (working,) = prepare_query("Where is Bern?", Vectors(1, {}), embed)
    assert isinstance(working, Run)
    problem = working.call().problem
    assert "the key was refused (401); check OPENAI_API_KEY" in problem
    assert "Error" not in problem
