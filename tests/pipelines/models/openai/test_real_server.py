"""A model server does what any model must: answers have their form, all work ends, and nothing is lost.

``STRANDLINE_TEST_MODEL_URL`` names a real server, up to ``/chat/completions``; else it is the stand-in.
How good answers are is not judged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from strandline.cli.doctor.models import check_role
from strandline.pipelines.inspect.verify import verify
from strandline.pipelines.models.factory import build_embedder
from strandline.schemas.model_roles import TEXT_ROLES, TextPurpose
from strandline.schemas.settings import Settings, load_settings
from tests.conftest import Rig, nothing_due, rows_of, wait_until
from tests.support.servers.model_server import ModelServer

# Read here, since no test sees the variables of the machine's user.
URL = os.environ.get("STRANDLINE_TEST_MODEL_URL")
MODEL = os.environ.get("STRANDLINE_TEST_MODEL")
KEY = os.environ.get("STRANDLINE_TEST_MODEL_KEY", "")

# Ten times as long is waited: a small model on two processors reads and writes for minutes.
SECONDS = 360.0
SAID = (
    ("user", "My cat is called Mio, and I live in Bern."),
    ("assistant", "Mio is a lovely name. What do you do in Bern?"),
    ("user", "I am a nurse, and on Sundays I go rowing on the Aare."),
    ("assistant", "That sounds like a good balance."),
    ("user", "Next month I move to Porto, with Mio."),
    ("assistant", "Good luck with the move!"),
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ModelServer() as stand_in:
        yield (URL or stand_in.base_url).rstrip("/")


@pytest.fixture(scope="module")
def model(url: str) -> str:
    """The one that is named, or the first that the server lists."""
    return MODEL or str(ask(f"{url}/models")["data"][0]["id"])


def ask(url: str, body: dict[str, object] | None = None) -> Any:
    """What the server answers, without any client of ours."""
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    sent = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data=sent, headers=headers), timeout=SECONDS) as answer:
        return json.load(answer)


@pytest.fixture
def settings(database_url: str, url: str, model: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    variables = {
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": KEY,
        "STRANDLINE_FACTS_MODEL": model,
        "STRANDLINE_SUMMARY_MODEL": model,
        "STRANDLINE_EMBEDDING_MODEL": model,
        "STRANDLINE_EMBEDDING_BACKEND": "local",
        "STRANDLINE_MODEL_TIMEOUT_SECONDS": str(SECONDS),
        "STRANDLINE_MODEL_SILENCE_SECONDS": str(SECONDS),
    }
    for name, value in variables.items():
        if value:
            monkeypatch.setenv(name, value)
    return load_settings(database_url=database_url)


@pytest.mark.parametrize("role", TEXT_ROLES)
def test_each_text_role_answers_in_the_form_of_its_task(role: TextPurpose, settings: Settings) -> None:
    check = check_role(settings, role, role, call=True)
    assert check.result == "ok", check.found


def test_a_conversation_gets_facts_and_a_summary_and_nothing_waits(rig: Rig) -> None:
    memory = rig.memory("s", user_id="u", memory_blocks=["facts", "summary"], consume="background")
    for role, content in SAID:
        memory.put({"role": role, "content": content})
    memory.flush(all=True)
    wait_until(lambda: nothing_due(rig.url), timeout=SECONDS, what="facts and a summary")
    assert rows_of(rig.url, "SELECT stage, reason FROM strandline.dead_letter") == []
    facts = rows_of(rig.url, "SELECT text FROM strandline.fact WHERE live")
    assert all(text.strip() for (text,) in facts)
    summary = memory.summarize(wait=SECONDS)
    assert summary is not None and summary.text.strip() and summary.through_seq == len(SAID)
    assert verify(rig.database, deep=True).violations == ()


def test_the_server_embeds_if_it_has_an_embedder(settings: Settings, url: str, model: str) -> None:
    try:
        answer = ask(f"{url}/embeddings", {"model": model, "input": ["word"]})
    except HTTPError as error:
        pytest.skip(f"the server embeds nothing by this model ({error.code})")
    dimensions = len(answer["data"][0]["embedding"])
    asking = load_settings(embedding_backend="openai", embedding_dimensions=dimensions)
    check = check_role(asking, "embedding", "embedding", call=True)
    assert check.result == "ok", check.found
    texts = [content for _, content in SAID]
    vectors = build_embedder(asking).embed(texts).vectors
    assert [len(vector) for vector in vectors] == [dimensions] * len(texts)
