"""The commands, in the order of ``--help``: the name of each, what the help says of it, and its import.

Each import stands in a function, which runs when its command is asked for: help imports no command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import click

Load = Callable[[], click.Command]


class ListedCommand(NamedTuple):
    """A command as ``--help`` lists it, and the function that imports it."""

    summary: str
    load: Load


COMMANDS: dict[str, ListedCommand] = {}


def _list_command(name: str, summary: str) -> Callable[[Load], Load]:
    def enter(load: Load) -> Load:
        COMMANDS[name] = ListedCommand(summary, load)
        return load

    return enter


@_list_command("up", "Run Postgres, a broker and workers in this terminal.")
def _up() -> click.Command:
    from strandline.cli.up import command

    return command


@_list_command("demo", "Play a conversation through the real pipeline and look at its memory.")
def _demo() -> click.Command:
    from strandline.cli.demo.command import command

    return command


@_list_command("worker", "Consume flush events until stopped.")
def _worker() -> click.Command:
    from strandline.cli.worker import command

    return command


@_list_command("serve", "Serve memories over HTTP until stopped.")
def _serve() -> click.Command:
    from strandline.cli.serve.command import command

    return command


@_list_command("keys", "Make, list, rotate and revoke keys of the HTTP service.")
def _keys() -> click.Command:
    from strandline.cli.keys.command import command

    return command


@_list_command("status", "Show due, held and finished work.")
def _status() -> click.Command:
    from strandline.cli.status import command

    return command


@_list_command("sessions", "List and show sessions, correct, fork and delete them, set a policy.")
def _sessions() -> click.Command:
    from strandline.cli.sessions.command import command

    return command


@_list_command("get", "Show what a read of a session returns now.")
def _get() -> click.Command:
    from strandline.cli.get import command

    return command


@_list_command("ask", "Show what memory gives for a question, and where it is from.")
def _ask() -> click.Command:
    from strandline.cli.ask.command import command

    return command


@_list_command("search", "Search messages and facts.")
def _search() -> click.Command:
    from strandline.cli.search import command

    return command


@_list_command("eval", "Measure searches and reads on your own questions.")
def _eval() -> click.Command:
    from strandline.cli.evaluation.command import command

    return command


@_list_command("mcp", "Offer a user's memory to an MCP client, over stdio.")
def _mcp() -> click.Command:
    from strandline.cli.mcp.command import command

    return command


@_list_command("flush", "Deliver a session's messages to the pipelines now.")
def _flush() -> click.Command:
    from strandline.cli.flush import command

    return command


@_list_command("import", "Import existing chats from JSONL, in bulk.")
def _import_chat() -> click.Command:
    from strandline.cli.imports.command import command

    return command


@_list_command("verify", "Prove from the tables that nothing was lost or doubled.")
def _verify() -> click.Command:
    from strandline.cli.verify import command

    return command


@_list_command("explain", "Explain why something was remembered, or not.")
def _explain() -> click.Command:
    from strandline.cli.explain import command

    return command


@_list_command("facts", "List facts, show the history of one, or clear a namespace.")
def _facts() -> click.Command:
    from strandline.cli.facts.command import command

    return command


@_list_command("limits", "Set, list and clear the limits of namespaces.")
def _limits() -> click.Command:
    from strandline.cli.limits import command

    return command


@_list_command("erasures", "Erase users and sessions, and verify that they are gone.")
def _erasures() -> click.Command:
    from strandline.cli.erasures.command import command

    return command


@_list_command("retention", "Set how long things are kept; archive, restore.")
def _retention() -> click.Command:
    from strandline.cli.retention.command import command

    return command


@_list_command("audit", "Show who did what, and prove that nothing of it was changed.")
def _audit() -> click.Command:
    from strandline.cli.audit.command import command

    return command


@_list_command("export", "Export everything kept about a user or a session.")
def _export() -> click.Command:
    from strandline.cli.export import command

    return command


@_list_command("encryption", "Encrypt namespaces, rotate their keys.")
def _encryption() -> click.Command:
    from strandline.cli.encryption.command import command

    return command


@_list_command("replay", "Derive memory again from the log.")
def _replay() -> click.Command:
    from strandline.cli.replay import command

    return command


@_list_command("generations", "List generations; compare, promote, roll back, prune.")
def _generations() -> click.Command:
    from strandline.cli.generations.command import command

    return command


@_list_command("dead-letters", "List dead letters, retry or drop them.")
def _dead_letters() -> click.Command:
    from strandline.cli.dead_letters import command

    return command


@_list_command("migrate", "Bring the tables of a database to this release.")
def _migrate() -> click.Command:
    from strandline.cli.migrate import command

    return command


@_list_command("models", "Show how each model is asked, and try it.")
def _models() -> click.Command:
    from strandline.cli.models import command

    return command


@_list_command("prompts", "Show what the models are told.")
def _prompts() -> click.Command:
    from strandline.cli.prompts import command

    return command


@_list_command("doctor", "Check this installation, its servers and its models.")
def _doctor() -> click.Command:
    from strandline.cli.doctor.command import command

    return command
