"""The command line.  A command's module is imported when that command runs, and not before."""

from __future__ import annotations

from strandline.cli.entry import main

__all__ = ["main"]
