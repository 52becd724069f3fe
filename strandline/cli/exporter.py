"""``strandline exporter``: metrics of a database for Prometheus, until a signal."""

from __future__ import annotations

import click

from strandline.administration.status import read_standing
from strandline.cli.command import cli_command
from strandline.cli.servers.targets import Running, opened_servers
from strandline.cli.terminal.interrupts import ends_as_interrupts
from strandline.cli.terminal.output import say
from strandline.wiring.metrics import needing_prometheus, serve_registry


@cli_command("exporter", opened_servers)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=9464, show_default=True, help="Its port.")
def command(running: Running, host: str, port: int) -> None:
    """Serve metrics of a database to Prometheus, until a signal.

    One exporter per database suffices: it asks the tables at each scrape. The metrics name stages and
    generations, and no namespace, user or session.
    """
    with needing_prometheus():
        from prometheus_client import CollectorRegistry

        from strandline.administration.metrics import DatabaseCollector
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(lambda: read_standing(running.database, running.settings)))
    try:
        with serve_registry(registry, host, port) as url, ends_as_interrupts() as interrupts:
            say(f"strandline exporter is ready: {url}; Ctrl-C stops it")
            while True:
                interrupts.pause(3_600)
    except KeyboardInterrupt:
        # A signal is how exporting ends.
        return
