"""``strandline generations``, and its parts."""

from __future__ import annotations

from strandline.cli.generations.command import command

__all__ = ["command"]
