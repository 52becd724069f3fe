"""The one way to make a command: it opens the servers that the command needs, and prints the result.

A command's function gets what its opener yields, and the options that it names.  An opener is a context
manager over the settings; it gets the options that it names, such as ``namespace``, and may declare options,
which each command then has that does not declare its own.  Errors become a sentence and an exit code in
``entry``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import Parameter, cleandoc, signature
from typing import Any, Concatenate, NamedTuple, TypeVar

import click
from pydantic import BaseModel
from rich.console import RenderableType

from strandline.cli.servers.options import TARGETS, settings_from
from strandline.cli.terminal.output import console, is_rich, print_json, print_schema, say
from strandline.schemas.settings import Settings

Opened = TypeVar("Opened")
Opener = Callable[Concatenate[Settings, ...], AbstractContextManager[Opened]]


class Output(NamedTuple):
    """A command's result: a report for ``--json``, else lines with notes, or their picture on a terminal."""

    report: BaseModel
    lines: Iterable[str]
    code: int = 0
    notes: Iterable[str] = ()
    picture: Callable[[], RenderableType] | None = None


# A command that prints as it goes returns its exit code; None is 0.
Result = Output | int | None
Maker = Callable[[Callable[..., Result]], click.Command]


def cli_command(
    name: str,
    opener: Opener[Opened],
    *reports: type[BaseModel],
    has_json: bool = True,
) -> Callable[[Callable[Concatenate[Opened, ...], Result]], click.Command]:
    """Make a command of a function whose first argument is what ``opener`` yields.

    Args:
        reports: what ``--json`` prints, whose schema ``--json-schema`` prints; without any, there is neither.
        has_json: false for a command that always prints lines of JSON, and needs no ``--json``.
    """

    def make(function: Callable[Concatenate[Opened, ...], Result]) -> click.Command:
        def run(options: dict[str, Any]) -> Result:
            settings = settings_from(options)
            with opener(settings, **_choose(opener, options)) as opened:
                return function(opened, **_choose(function, options))

        click_command = _make_command(name, function, run, reports)
        own = {param.name for param in click_command.params}
        of_opener = [param for param in reversed(_params_of(opener)) if param.name not in own]
        json_options = _json_options(reports)[0 if has_json else 1 :]
        click_command.params = [*of_opener, *click_command.params, *json_options, *TARGETS]
        return click_command

    return make


def offline_command(name: str, *reports: type[BaseModel]) -> Maker:
    """``cli_command`` for a command without a server."""

    def make(function: Callable[..., Result]) -> click.Command:
        def run(options: dict[str, Any]) -> Result:
            return function(**_choose(function, options))

        click_command = _make_command(name, function, run, reports)
        click_command.params += _json_options(reports)
        return click_command

    return make


class CommandGroup(click.Group):
    """A group of commands, which lists each with the first clause of its help."""

    def add(
        self, name: str, opener: Opener[Opened], *reports: type[BaseModel]
    ) -> Callable[[Callable[Concatenate[Opened, ...], Result]], click.Command]:
        """``cli_command`` in this group."""
        make = cli_command(name, opener, *reports)
        return lambda function: self._join(make(function))

    def add_offline(self, name: str, *reports: type[BaseModel]) -> Maker:
        """``offline_command`` in this group."""
        make = offline_command(name, *reports)
        return lambda function: self._join(make(function))

    def _join(self, member: click.Command) -> click.Command:
        first = re.split(r"[.;:]\s|\.$", cleandoc(member.help or ""))[0]
        member.short_help = f"{' '.join(first.split())}."
        self.add_command(member)
        return member


def _make_command(
    name: str,
    function: Callable[..., Result],
    run: Callable[[dict[str, Any]], Result],
    reports: tuple[type[BaseModel], ...],
) -> click.Command:
    @wraps(function)
    def call(*, json_schema: bool = False, **options: Any) -> int:
        if json_schema:
            print_schema(*reports)
            return 0
        result = run(options)
        if isinstance(result, Output):
            show(result, as_json=options["as_json"])
            return result.code
        return result or 0

    return click.command(name)(call)


def _params_of(function: Callable[..., Any]) -> list[click.Parameter]:
    declared: list[click.Parameter] = getattr(function, "__click_params__", [])
    return declared


def _choose(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options that a function names; with ``**`` all, but ``as_json`` only by its name."""
    parameters = signature(function).parameters
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
    return {
        name: value
        for name, value in options.items()
        if name in parameters or (takes_all and name != "as_json")
    }


def _json_options(reports: tuple[type[BaseModel], ...]) -> list[click.Option]:
    if not reports:
        return []
    schemas = "JSON Schemas" if len(reports) > 1 else "JSON Schema"
    help_of_schema = f"Print the {schemas} of the JSON output, and exit."
    return [
        click.Option(["--json", "as_json"], is_flag=True, help="Print JSON instead of text."),
        click.Option(["--json-schema"], is_flag=True, help=help_of_schema),
    ]


def show(output: Output, *, as_json: bool) -> None:
    """Print a result, as JSON or for people."""
    if as_json:
        print_json(output.report)
        return
    say(*output.notes, err=True)
    if output.picture is not None and is_rich():
        console().print(output.picture())
    else:
        say(*output.lines)
