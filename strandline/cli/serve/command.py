"""``strandline serve``: the HTTP service, until a signal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from strandline.administration.keys import any_key
from strandline.cli.command import cli_command
from strandline.cli.servers.options import settings_alone
from strandline.cli.servers.targets import opened_pool, running_servers
from strandline.cli.terminal.output import say
from strandline.cli.terminal.streams import log_to_stderr
from strandline.schemas.errors import ConfigurationError
from strandline.schemas.extras import install_command
from strandline.schemas.settings import Settings
from strandline.wiring.metrics import measure_service
from strandline.wiring.traces import trace_process

NEEDED = f"strandline serve needs Starlette and uvicorn: {install_command('service')}."
_PACKAGES = ("httptools", "starlette", "uvicorn", "uvloop")


@cli_command("serve", settings_alone)
@click.option("--host", metavar="ADDRESS", help="Where to listen; overrides STRANDLINE_SERVICE_HOST.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help="Its port; overrides STRANDLINE_SERVICE_PORT."
)
def command(settings: Settings, host: str | None, port: int | None) -> None:
    """Serve memories over HTTP, to clients with a key, until a signal asks for an end.

    `strandline keys create` makes a key. While none exists, only this machine is listened to.

    After a signal it answers for a while, says that it is not ready, finishes the requests in hand and ends.
    """
    try:
        from strandline.cli.serve.server import check_address, listen, make_server
        from strandline.service.app import build_service
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise ConfigurationError(NEEDED) from None
    overrides = {"service_host": host, "service_port": port}
    settings = settings.model_copy(
        update={name: value for name, value in overrides.items() if value is not None}
    )
    log_to_stderr("WARNING", settings.log_format)
    trace_process(settings)
    with running_servers(settings, only_looking=False) as servers:
        with opened_pool(servers.database_url, settings) as database:
            has_key = database.run(any_key())
        check_address(settings.service_host, has_key=has_key)
        serving = servers.named_in(settings)
        with (
            measure_service(serving, say) as measured,
            listen(
                settings.service_host, settings.service_port, untaken_seconds=settings.service_body_seconds
            ) as listening,
        ):
            app = build_service(measured)
            say(*_announcement(listening.getsockname(), has_key=has_key))
            make_server(app, serving).run(sockets=[listening])


def _announcement(address: tuple[Any, ...], *, has_key: bool) -> Iterator[str]:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    yield f"strandline serve {os.getpid()} is ready: http://{host}:{address[1]}; Ctrl-C stops it"
    if not has_key:
        yield (
            "no key exists yet: every request is refused, and only this machine is listened to;"
            " `strandline keys create` makes one"
        )
