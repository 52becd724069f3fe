"""Printing: rich on a terminal, plain lines in a pipe, and never a secret."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, SecretStr
from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """A console that styles on a terminal; in a pipe, or under NO_COLOR, it writes no control codes."""
    stream = sys.stderr if stderr else sys.stdout
    plain = not is_rich(stderr=stderr)
    return Console(
        file=stream,
        force_terminal=False if plain else None,
        no_color=True if plain else None,
        highlight=False,
        soft_wrap=plain,
        emoji=False,
    )


def is_rich(*, stderr: bool = False) -> bool:
    """Whether output goes to a terminal that may be styled."""
    stream = sys.stderr if stderr else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_json(report: BaseModel) -> None:
    """A report as JSON on stdout."""
    sys.stdout.write(report.model_dump_json(indent=2) + "\n")


def masked(url: str | SecretStr | None) -> str:
    """A URL without its password, also where that stands in the query; of several, parted by ``;``, each."""
    if url is None:
        return "none"
    text = url.get_secret_value() if isinstance(url, SecretStr) else url
    return ";".join(map(_masked_url, re.split(r";(?=[\w+.-]+://)", text)))


def program() -> str:
    """How this program is called in a second terminal."""
    called = Path(sys.argv[0])
    if called.name != "strandline":
        return f"{sys.executable} -m strandline"
    found = shutil.which("strandline")
    if found is not None and Path(found).resolve() == called.resolve():
        return "strandline"
    return str(called.absolute())


def _masked_url(url: str) -> str:
    parts = urlsplit(url)
    netloc = parts.netloc
    credentials, at, host = netloc.rpartition("@")
    if at and ":" in credentials:
        netloc = f"{credentials.partition(':')[0]}:***@{host}"
    query = "&".join(_masked_item(item) for item in parts.query.split("&"))
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def _masked_item(item: str) -> str:
    name, equals, _ = item.partition("=")
    return f"{name}=***" if equals and "password" in name.lower() else item
