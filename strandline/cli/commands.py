"""The commands, in the order of ``--help``: by task, with a summary of each; and their imports.

A command is imported when it is asked for: help imports none.
"""

from __future__ import annotations

import click

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
