"""``strandline ask``, and its parts."""

from __future__ import annotations

from strandline.cli.ask.command import command

__all__ = ["command"]
