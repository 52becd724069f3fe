"""``strandline worker``: one worker process, in the foreground."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress

import click
from celery.signals import worker_ready

from strandline.cli.command import cli_command
from strandline.cli.servers.options import settings_alone
from strandline.cli.servers.targets import running_servers
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import say
from strandline.cli.terminal.streams import log_to_stderr
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.misspelt import unknown_settings
from strandline.schemas.settings import Settings
from strandline.schemas.values.lanes import STAGES, queue_name
from strandline.wiring.assembly import stage_names
from strandline.wiring.metrics import watch_worker
from strandline.wiring.traces import trace_process
from strandline.wiring.worker_process import run_worker

logger = logging.getLogger("strandline.workers")


@cli_command("worker", settings_alone)
@click.option(
    "--queues",
    metavar="LIST",
    help=f"Stages to serve, comma-separated; default: {','.join(STAGES)}, overflow if there is a handler, and"
    " every custom block.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, 1000), help="Threads; default STRANDLINE_WORKER_CONCURRENCY."
)
@click.option(
    "--no-sweep", is_flag=True, help="Leave sweeps (idle sessions, work without a hint) to other workers."
)
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="WARNING",
    show_default=True,
)
def command(
    settings: Settings, queues: str | None, concurrency: int | None, no_sweep: bool, log_level: str
) -> int:
    """Consume flush events until Ctrl-C or SIGTERM.

    Serves the configured database and broker, or joins what `strandline up` runs in STRANDLINE_HOME.

    When told to end, it finishes batches in hand for up to STRANDLINE_SHUTDOWN_GRACE_SECONDS and hands the
    rest back to other workers; the exit code is 0. A second signal hands back at once; the exit code is then
    128 plus the signal's number. At its start it waits up to STRANDLINE_STARTUP_WAIT_SECONDS for servers that
    are away; if they stay away, the exit code is 1.
    """
    # Before Celery, which takes it as it is: its own format prints no fields.
    log_to_stderr(log_level.upper(), settings.log_format)
    if unknown := list(unknown_settings(os.environ)):
        logger.warning(
            "environment variables are not settings",
            extra={"action": "unknown_settings", "reason": " ".join(unknown)},
        )
    stages = _stages(queues, settings)
    trace_process(settings)
    with (
        ends_as_interrupts(),
        running_servers(settings, only_looking=False) as servers,
        watch_worker(settings, _tell) as watch,
    ):
        if servers.broker_url is None:
            raise ConfigurationError(
                "A worker hears of work through a broker, and none is configured or runs here."
                " Set STRANDLINE_BROKER_URL, or start `strandline up` in another terminal."
            )
        _announce_when_ready(stages)
        return run_worker(
            settings,
            database_url=servers.database_url,
            broker_url=servers.broker_url,
            stages=stages,
            concurrency=concurrency,
            sweep=not no_sweep,
            log_level=log_level.upper(),
            tell=_tell,
            watch=watch,
        )


def _announce_when_ready(stages: tuple[str, ...]) -> None:
    def announce(**_: object) -> None:
        _tell(f"is ready: {', '.join(stages)}; Ctrl-C stops it")

    # weak=False: nothing else holds the function.
    worker_ready.connect(announce, weak=False)


def _tell(line: str) -> None:
    # Celery has replaced sys.stdout; and its reader may be gone.
    with suppress(OSError):
        say(f"strandline worker {os.getpid()} {line}", file=sys.__stdout__)


def _stages(queues: str | None, settings: Settings) -> tuple[str, ...]:
    if queues is None:
        return stage_names(settings)
    prefix = queue_name("")
    named = tuple(
        dict.fromkeys(part.strip().removeprefix(prefix) for part in queues.split(",") if part.strip())
    )
    if not named:
        raise click.BadParameter("names no queue", param_hint="--queues")
    return named
