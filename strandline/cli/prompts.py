"""``strandline prompts``: what models are told for each task, and the form in which they have to answer."""

from __future__ import annotations

import json
from typing import Any

import click

from strandline.cli.servers.options import json_options, settings_from
from strandline.cli.terminal.output import show
from strandline.pipelines.models.answer_forms import answer_schema
from strandline.pipelines.models.prompts.overrides import TASKS, prompt_texts
from strandline.schemas.wire.report import Report


class PromptReport(Report):
    """The instructions of a task, and the JSON Schema of its answer."""

    task: str
    instructions: str
    answer: dict[str, Any]


class PromptsReport(Report):
    """``strandline prompts show``."""

    prompts: list[PromptReport]


@click.group("prompts")
def command() -> None:
    """Show what the models are told."""


@command.command("show", short_help="Show the instructions of each task, and the form of its answer.")
@click.argument("task", type=click.Choice(TASKS), required=False)
@json_options(PromptsReport)
def show_command(task: str | None, as_json: bool) -> None:
    """Show the instructions and the answer's JSON Schema of a TASK, or of all.

    A generation keeps the instructions that it was made with; these are for the next one.
    """
    texts = prompt_texts(settings_from(database_url=None, broker_url=None, schema=None).prompts_dir)
    report = PromptsReport(
        prompts=[
            PromptReport(task=name, instructions=text, answer=answer_schema(name))
            for name, text in texts.items()
            if task in (None, name)
        ]
    )
    lines = (
        line
        for one in report.prompts
        for line in (
            f"# {one.task}",
            *one.instructions.splitlines(),
            "",
            f"Answer: {json.dumps(one.answer)}",
            "",
        )
    )
    show(report, lines, as_json=as_json)
