"""``strandline exporter``: metrics of a database for Prometheus, until a signal."""

from __future__ import annotations

import click

from strandline.administration.status import read_standing
from strandline.cli.command import cli_command
from strandline.cli.servers.targets import Running, opened_servers
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import say
from strandline.schemas.errors import ConfigurationError

NEEDED = "strandline exporter needs prometheus-client: pip install 'strandline[metrics]'."


@cli_command("exporter", opened_servers)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=9464, show_default=True, help="Its port.")
def command(running: Running, host: str, port: int) -> None:
    """Serve metrics of a database to Prometheus, until a signal.

    One exporter per database suffices: it asks the tables at each scrape. The metrics name stages and
    generations, and no namespace, user or session.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server

        from strandline.administration.metrics import DatabaseCollector
    except ImportError as error:
        if error.name != "prometheus_client":
            raise
        raise ConfigurationError(NEEDED) from None
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(lambda: read_standing(running.database, running.settings)))
    try:
        server, thread = start_http_server(port, host, registry)
        name = f"[{host}]" if ":" in host else host
    except OSError as error:
        raise ConfigurationError(
            f"Nothing can listen at {host}:{port}: {error.strerror}. Choose another with --host and --port."
        ) from None
    try:
        with ends_as_interrupts() as interrupts:
            say(f"strandline exporter is ready: http://{name}:{server.server_port}/metrics; Ctrl-C stops it")
            while True:
                interrupts.pause(3600.0)
    except KeyboardInterrupt:
        # A signal is how exporting ends.
        return
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
