"""``strandline facts``, and its parts."""

from __future__ import annotations

from strandline.cli.facts.command import command

__all__ = ["command"]
