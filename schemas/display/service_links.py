"""Variables that Kubernetes puts into every pod for each Service of its namespace.

Some have the names of settings: a Service ``strandline-metrics`` brings ``STRANDLINE_METRICS_PORT=tcp://…``,
and a Service called ``strandline`` brings ``STRANDLINE_SERVICE_HOST`` and ``STRANDLINE_SERVICE_PORT``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_LINK = re.compile(r"(?:tcp|udp|sctp)://(?P<host>[^/]+):(?P<port>[0-9]+)", re.ASCII | re.IGNORECASE)
_PORT = "_PORT"


def without_links(variables: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """The environment, as pydantic-settings keeps it too, without links."""
    links = service_links(variables)
    return {name: value for name, value in variables.items() if name not in links}


def service_links(environ: Mapping[str, str | None]) -> frozenset[str]:
    """The names of ``environ`` that are links; a variable with another value is not a link."""
    return frozenset(
        name
        for port, value in environ.items()
        if port.upper().endswith(_PORT) and (link := _LINK.fullmatch(value or ""))
        for name in _names_beside(port, link, environ)
    )


def _names_beside(port: str, link: re.Match[str], environ: Mapping[str, str | None]) -> Iterator[str]:
    prefix = port[: -len(_PORT)].upper()
    values = {f"{prefix}_SERVICE_HOST": link["host"].strip("[]"), f"{prefix}_SERVICE_PORT": link["port"]}
    for name, value in environ.items():
        spelt = name.upper()
        if spelt in values:
            if value == values[spelt]:
                yield name
        elif spelt == port.upper() or spelt.startswith((f"{prefix}_PORT_", f"{prefix}_SERVICE_PORT_")):
            yield name
