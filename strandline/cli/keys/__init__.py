"""``strandline keys``, and its parts."""

from __future__ import annotations

from strandline.cli.keys.command import command

__all__ = ["command"]
