"""``strandline demo``, and its parts."""

from __future__ import annotations

from strandline.cli.demo.command import command

__all__ = ["command"]
