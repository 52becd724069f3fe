"""The packages that the extras of this release need."""

import shlex
from importlib import metadata


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra, which are on PyPI."""
    needs = (line.partition(";") for line in metadata.requires("strandline") or ())
    return shlex.join(["pip", "install", *(name for name, _, when in needs if f'extra == "{extra}"' in when)])
