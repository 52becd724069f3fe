"""A worker process as the benchmarks need it: with models that take no time, or with tasks that do nothing.

    python -m bench.worker_process derive     # Strandline's worker; its models answer at once, in the process
    python -m bench.worker_process nothing    # the same Celery worker; its tasks do nothing

Both take the pool, its size and the broker's settings from the environment, as ``strandline worker`` does.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from strandline.pipelines.models.contract import (
    EmbeddingAnswer,
    ExtractTask,
    MergeTask,
    ModelAnswer,
    SummaryTask,
    Task,
)
from strandline.schemas.settings import load_settings
from strandline.schemas.values.lanes import STAGES, queue_name
from strandline.wiring.worker_process import run_worker
from strandline.workers.celery_app.app import make_app

DIMENSIONS = 256
MODEL = "wordllama-l2-supercat-256"


class InstantTextModel:
    """Answers in the form that is asked for, from the first words of what it is given."""

    model = "instant"

    def wait_seconds(self) -> float:
        return 0.0

    def answer(self, task: Task) -> ModelAnswer:
        return ModelAnswer(json.dumps(_answer(task)), self.model, "0" * 16, 0, 0)


class InstantEmbedder:
    """The same vector for everything, under the name of the model that the database was set up for."""

    model = MODEL
    dimensions = DIMENSIONS
    _vector = (DIMENSIONS**-0.5,) * DIMENSIONS

    def wait_seconds(self) -> float:
        return 0.0

    def embed(self, texts: Sequence[str], *, timeout_seconds: float | None = None) -> EmbeddingAnswer:
        return EmbeddingAnswer((self._vector,) * len(texts), self.model, 0)


def _answer(task: Task) -> dict[str, Any]:
    if isinstance(task, ExtractTask):
        line = next(line for line in task.lines if line.role == "user")
        said = {"messages": [line.number], "topics": [], "said_by": line.name, "about_date": None}
        return {"facts": [{"text": line.text[:80], **said}]}
    if isinstance(task, MergeTask):
        added = range(1, len(task.candidates) + 1)
        return {
            "operations": [{"op": "add", "candidate": number, "fact": None, "text": None} for number in added]
        }
    if isinstance(task, SummaryTask):
        return {"summary": task.lines[-1].text[:200], "topics": []}
    raise AssertionError("nothing is condensed here")


def derive() -> int:
    """Serve every stage."""
    definitions: Any = importlib.import_module("strandline.pipelines.generations.definitions")
    for name, model in (("build_text_model", InstantTextModel), ("build_embedder", InstantEmbedder)):
        assert hasattr(definitions, name)
        setattr(definitions, name, lambda *_, made=model, **__: made())
    settings = load_settings()
    assert settings.database_url is not None and settings.broker_url is not None
    return run_worker(
        settings,
        database_url=settings.database_url.get_secret_value(),
        broker_url=settings.broker_url.get_secret_value(),
        stages=STAGES,
    )


def _do_nothing(*_: object) -> None:
    return


def nothing() -> int:
    """Serve the queue ``strandline.nothing``."""
    settings = load_settings()
    assert settings.broker_url is not None
    app = make_app(settings, settings.broker_url.get_secret_value(), ["nothing"])

    app.task(name=queue_name("nothing"), shared=False)(_do_nothing)
    worker = app.Worker(
        pool="threads",
        concurrency=settings.worker_concurrency,
        queues=[queue_name("nothing")],
        loglevel="ERROR",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    sys.exit({"derive": derive, "nothing": nothing}[sys.argv[1]]())
