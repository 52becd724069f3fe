"""The group of commands, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import getpass
import io
import os
import socket
import sys
import traceback
from contextlib import nullcontext
from difflib import get_close_matches
from typing import Any

import click

from strandline.cli.commands import COMMANDS, TASKS, load_command
from strandline.cli.terminal.interrupts import INTERRUPTED_EXIT, Terminated, ends_as_interrupts
from strandline.cli.terminal.streams import complain, drop_output, is_of_output, open_closed_streams
from strandline.schemas.display.shown_text import shown, shown_lines
from strandline.schemas.errors import StrandlineError
from strandline.schemas.values.acts.acting import acting
from strandline.schemas.values.identity import COMMAND_ACTOR_PREFIX
from strandline.schemas.version import VERSION


class LazyGroup(click.Group):
    """Knows its commands by name, and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        near = get_close_matches(name, COMMANDS, n=1)
        if name not in COMMANDS and near:
            raise click.UsageError(f"No such command {name!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for task, commands in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([*commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="strandline")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """A memory pipeline for chat: writes are accepted in Postgres, memory is derived in the background.

    With nothing configured, the embedded servers in STRANDLINE_HOME are used.
    """


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage, 128 plus the number of a signal."""
    open_closed_streams()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()  # of a line that failed; Python would otherwise exit with another code
    except OSError:
        drop_output()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code; what went wrong is one sentence on stderr."""
    debug = "--debug" in arguments
    # Wherever it stands: whoever adds it does so behind a line that just failed.
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        _check_arguments(arguments)
        with (
            # The kernel keeps from process 1, as in a container, each signal that it does not handle.
            ends_as_interrupts() if os.getpid() == 1 else nullcontext(),
            acting(actor=_operator(), origin=socket.gethostname()[:255] or None),
        ):
            result: Any = cli.main(arguments, prog_name="strandline", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as exit_request:
        return exit_request.exit_code
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as interrupt:
        # Click raises its own error from the interrupt.
        ended = interrupt.__cause__ or interrupt
        return ended.exit_code if isinstance(ended, Terminated) else INTERRUPTED_EXIT
    except StrandlineError as error:
        return _fail(str(error), debug=debug)
    except BrokenPipeError:
        drop_output()  # the reader went away, as `| head` does, and knows
        return 1
    except Exception as error:  # noqa: BLE001  # the outermost edge of the process: reported, never hidden
        if is_of_output(error):
            drop_output()
            return _fail(f"The output cannot be written: {error.strerror}.", debug=debug)
        return _fail(
            f"Unexpected error ({type(error).__name__}: {error}). Add --debug to see where it happened.",
            debug=debug,
        )
    return result if isinstance(result, int) else 0


def _operator() -> str:
    try:
        return f"{COMMAND_ACTOR_PREFIX}{getpass.getuser()}"
    except (OSError, KeyError):  # a user without a name
        return f"{COMMAND_ACTOR_PREFIX}{os.getuid()}"


def _show(error: click.ClickException) -> None:
    """As click does, but the error quotes typed text, which may have been pasted from anywhere."""
    written = io.StringIO()
    error.show(written)
    complain("\n".join(shown_lines(written.getvalue().rstrip("\n"))))


def _check_arguments(arguments: list[str]) -> None:
    """Refuse bytes that are not text: no name, id or path here can hold them, and no output show them."""
    for place, argument in enumerate(arguments, start=1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"Argument {place} holds bytes that are not UTF-8 text.") from None


def _fail(sentence: str, *, debug: bool) -> int:
    if debug:
        complain("\n".join(shown_lines(traceback.format_exc().rstrip())))
    complain(f"strandline: {shown(sentence)}")
    return 1
