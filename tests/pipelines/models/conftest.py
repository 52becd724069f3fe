"""A model server, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.pipelines.models.openai.models import OpenAITextModel, text_model_from
from strandline.schemas.settings import load_settings
from tests.support.servers.model_server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


@pytest.fixture
def model(server: ModelServer) -> Iterator[OpenAITextModel]:
    settings = load_settings(openai_base_url=server.base_url, openai_api_key="k", facts_model="m")
    made = text_model_from(settings, purpose="facts")
    yield made
    made.close()
