"""The group of commands, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import io
import sys
import traceback
from difflib import get_close_matches
from typing import Any

import click

from strandline.cli.interrupts import INTERRUPTED_EXIT, Terminated
from strandline.cli.streams import complain, drop_output, is_of_output, open_closed_streams
from strandline.schemas.display.shown_text import shown, shown_lines
from strandline.schemas.errors import StrandlineError
from strandline.schemas.version import VERSION

# Each command is the object ``command`` of its module; the words here are what --help lists, so that
# help imports none of them.
COMMANDS = {
    "up": "Run Postgres, a broker and workers in this terminal.",
    "demo": "Play a conversation through the real pipeline and look at its memory.",
    "worker": "Consume flush events until stopped.",
    "status": "Show due, held and finished work.",
    "sessions": "List sessions, show the state of one, set its policy.",
    "get": "Show what a read of a session returns now.",
    "search": "Search messages and facts.",
    "flush": "Deliver a session's messages to the pipelines now.",
    "import": "Import existing chats from JSONL, in bulk.",
    "verify": "Prove from the tables that nothing was lost or doubled.",
    "explain": "Explain why something was remembered, or not.",
    "facts": "List facts, show the history of one, or clear a namespace.",
    "limits": "Set, list and clear the limits of namespaces.",
    "replay": "Derive memory again from the log.",
    "generations": "List generations; compare, promote, roll back, prune.",
    "dead-letters": "List dead letters, retry or drop them.",
    "migrate": "Bring the tables of a database to this release.",
    "doctor": "Check this installation, its servers and its models.",
}


class LazyGroup(click.Group):
    """Knows its commands by name, and imports one when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return _command(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = str(args[0])
        near = get_close_matches(name, COMMANDS, n=1)
        if name not in COMMANDS and near:
            raise click.UsageError(f"No such command {name!r}. Did you mean {near[0]!r}?", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _command(name: str) -> click.Command | None:
    """The command of this name; only its own module is imported."""
    match name:
        case "up":
            from strandline.cli import up

            return up.command
        case "demo":
            from strandline.cli import demo

            return demo.command
        case "worker":
            from strandline.cli import worker

            return worker.command
        case "status":
            from strandline.cli import status

            return status.command
        case "sessions":
            from strandline.cli import sessions

            return sessions.command
        case "get":
            from strandline.cli import get

            return get.command
        case "search":
            from strandline.cli import search

            return search.command
        case "flush":
            from strandline.cli import flush

            return flush.command
        case "import":
            from strandline.cli import import_chat

            return import_chat.command
        case "verify":
            from strandline.cli import verify

            return verify.command
        case "explain":
            from strandline.cli import explain

            return explain.command
        case "facts":
            from strandline.cli import facts

            return facts.command
        case "limits":
            from strandline.cli import limits

            return limits.command
        case "replay":
            from strandline.cli import replay

            return replay.command
        case "generations":
            from strandline.cli import generations

            return generations.command
        case "dead-letters":
            from strandline.cli import dead_letters

            return dead_letters.command
        case "migrate":
            from strandline.cli import migrate

            return migrate.command
        case "doctor":
            from strandline.cli import doctor

            return doctor.command
        case _:
            return None


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="strandline")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """A memory pipeline for chat: writes are accepted in Postgres, memory is derived in the background.

    With nothing configured, the embedded servers in STRANDLINE_HOME are used.
    """


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 143 terminated."""
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


def _show(error: click.ClickException) -> None:
    """As click does; it quotes what was typed, which may have been pasted from anywhere."""
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
