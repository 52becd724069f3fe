"""Asking a text model: its raw answer, in the form that is stored before it is applied."""

from __future__ import annotations

from typing import Any

from strandline.pipelines.engine.stage import RawAnswer
from strandline.pipelines.models.contract import TextModel


def ask(model: TextModel, task: Any) -> RawAnswer:
    """Call a text model and keep its raw answer in the form that is stored."""
    answer = model.answer(task)
    return RawAnswer(
        model=answer.model,
        prompt_hash=answer.prompt_hash,
        body=answer.text.encode(),
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
    )
