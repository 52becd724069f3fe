"""``strandline prompts``: what models are told for each task, and the form in which they have to answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from strandline.cli.command import CommandGroup, Output
from strandline.pipelines.models.answer_forms import answer_schema
from strandline.pipelines.models.prompts.render import TASKS, prompt_texts
from strandline.schemas.settings import load_settings
from strandline.schemas.wire.report import Report


@click.group("prompts", cls=CommandGroup)
def command() -> None:
    """Show what the models are told."""


class PromptReport(Report):
    """The instructions of a task, and the JSON Schema of its answer."""

    task: str
    instructions: str
    answer: dict[str, Any]


class PromptsReport(Report):
    """``strandline prompts show``."""

    prompts: list[PromptReport]


@command.add_offline("show", PromptsReport)
@click.argument("task", type=click.Choice(TASKS), required=False)
def show_command(task: str | None) -> Output:
    """Show the instructions and the answer's JSON Schema of a TASK, or of all.

    A generation keeps the instructions that it was made with; these are for the next one.
    """
    texts = prompt_texts(load_settings().prompts_dir)
    prompts = [
        PromptReport(task=name, instructions=text, answer=answer_schema(name))
        for name, text in texts.items()
        if task in (None, name)
    ]
    return Output(PromptsReport(prompts=prompts), _lines(prompts))


def _lines(prompts: Sequence[PromptReport]) -> Iterator[str]:
    for one in prompts:
        yield f"# {one.task}"
        yield from one.instructions.splitlines()
        yield from ("", f"Answer: {json.dumps(one.answer)}", "")
