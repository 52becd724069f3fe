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

from strandline.cli.terminal.interrupts import INTERRUPTED_EXIT, Terminated, ends_as_interrupts
from strandline.cli.terminal.streams import complain, drop_output, is_of_output, open_closed_streams
from strandline.schemas.display.shown_text import shown, shown_lines
from strandline.schemas.errors import StrandlineError
from strandline.schemas.values.acts.acting import acting
from strandline.schemas.values.identity import COMMAND_ACTOR_PREFIX
from strandline.schemas.version import VERSION

# The summary of each command, by task.
TASKS = {
    "Install and run": {
        "up": "Run Postgres, a broker and workers in this terminal.",
        "demo": "Play a conversation through the real pipeline and look at its memory.",
        "worker": "Consume flush events until stopped.",
        "serve": "Serve memories over HTTP until stopped.",
        "mcp": "Offer a user's memory to an MCP client, over stdio.",
        "migrate": "Bring the tables of a database to this release.",
        "doctor": "Check this installation, its servers and its models.",
    },
    "Read and change memory": {
        "get": "Show what a read of a session returns now.",
        "ask": "Show what memory gives for a question, and where it is from.",
        "search": "Search messages and facts.",
        "sessions": "List and show sessions, correct, fork and delete them, set a policy.",
        "facts": "List, add, correct and settle facts, show the history of one, or clear a namespace.",
        "flush": "Deliver a session's messages to the pipelines now.",
        "import": "Import existing chats from JSONL, in bulk.",
        "explain": "Explain why something was remembered, or not.",
    },
    "Operations": {
        "status": "Show due, held and finished work.",
        "top": "Show each stage live, until a key ends it.",
        "exporter": "Serve metrics to Prometheus until stopped.",
        "dead-letters": "List dead letters, retry or drop them.",
        "limits": "Set, list and clear the limits of namespaces.",
        "keys": "Make, list, rotate and revoke keys of the HTTP service.",
        "verify": "Prove from the tables that nothing was lost or doubled.",
    },
    "Models and replay": {
        "replay": "Derive memory again from the log.",
        "generations": "List generations; compare, promote, roll back, prune.",
        "eval": "Measure searches and reads on your own questions.",
        "models": "Show how each model is asked, and try it.",
        "prompts": "Show what the models are told.",
    },
    "Privacy, retention and audit": {
        "erasures": "Erase users and sessions, and verify that they are gone.",
        "export": "Export everything kept about a user or a session.",
        "retention": "Set how long things are kept; archive, restore.",
        "encryption": "Encrypt namespaces, rotate their keys.",
        "audit": "Show who did what, and prove that nothing of it was changed.",
    },
}
COMMANDS = tuple(name for commands in TASKS.values() for name in commands)


def load_command(name: str) -> click.Command:
    """Import a command of ``COMMANDS``."""
    command: click.Command
    match name:
        case "up":
            from strandline.cli.up import command
        case "demo":
            from strandline.cli.demo.command import command
        case "worker":
            from strandline.cli.worker import command
        case "serve":
            from strandline.cli.serve.command import command
        case "mcp":
            from strandline.cli.mcp import command
        case "migrate":
            from strandline.cli.migrate import command
        case "doctor":
            from strandline.cli.doctor.command import command
        case "get":
            from strandline.cli.get import command
        case "ask":
            from strandline.cli.ask import command
        case "search":
            from strandline.cli.search import command
        case "sessions":
            from strandline.cli.sessions import command
        case "facts":
            from strandline.cli.facts import command
        case "flush":
            from strandline.cli.flush import command
        case "import":
            from strandline.cli.imports import command
        case "explain":
            from strandline.cli.explain import command
        case "exporter":
            from strandline.cli.exporter import command
        case "status":
            from strandline.cli.status import command
        case "top":
            from strandline.cli.top import command
        case "dead-letters":
            from strandline.cli.dead_letters import command
        case "limits":
            from strandline.cli.limits import command
        case "keys":
            from strandline.cli.keys import command
        case "verify":
            from strandline.cli.verify import command
        case "replay":
            from strandline.cli.replay import command
        case "generations":
            from strandline.cli.generations import command
        case "eval":
            from strandline.cli.evaluation import command
        case "models":
            from strandline.cli.models import command
        case "prompts":
            from strandline.cli.prompts import command
        case "erasures":
            from strandline.cli.erasures.command import command
        case "export":
            from strandline.cli.export import command
        case "retention":
            from strandline.cli.retention import command
        case "encryption":
            from strandline.cli.encryption import command
        case "audit":
            from strandline.cli.audit import command
        case _:
            raise KeyError(name)
    return command


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
