"""The release, in one place; the package metadata is made from it, and has what its extras need."""

import shlex
from importlib import metadata

VERSION = "0.1.0"


def install_command(extra: str) -> str:
    """The command that installs the packages of an extra, which are on PyPI."""
    needs = (line.partition(";") for line in metadata.requires("strandline") or ())
    return shlex.join(["pip", "install", *(name for name, _, when in needs if f'extra == "{extra}"' in when)])
